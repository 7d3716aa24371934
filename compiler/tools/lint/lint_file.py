"""Lint one launch file: detect the framework, then run its checks."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.diagnostics import Finding
from parc.compiler.resolve.resolve_targets import version_of
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES
from parc.compiler.tools.lint.completion import check_options
from parc.compiler.tools.lint.launch import lint_launch, starts_something
from parc.compiler.tools.lint.linter import ConfigLinter, ScriptLinter, linters
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import Script, ScriptSink, read_script


def lint_text(text: str, name: str, options: LintOptions) -> tuple[ScriptSink, list[SkippedRule]]:
    """Check ``text``; return its findings and the rules that need an unknown fact.

    Reports I05 if the framework cannot be detected, I06 if the text is too long for a script.
    """
    sink = ScriptSink(name, text)
    if len(text) > MAX_TEXT_BYTES:
        sink.report("I06", Finding(f"{name} is larger than {MAX_TEXT_BYTES} bytes"))
        return sink, []
    kind = _config_kind(text) if options.framework == "auto" else options.framework
    config = linters().get(kind)
    if isinstance(config, ConfigLinter):
        versioned = _versioned(kind, options, sink)
        if versioned is not None:
            config.lint(text, name, versioned, sink)
        return sink, []
    # Mistakes with Slurm and torchrun do not depend on the framework, so check them in any case.
    script = read_script(text, name)
    lint_launch(script, sink)
    kind = _script_kind(script) if options.framework == "auto" else options.framework
    if kind == "" and not starts_something(script):
        *names, last = linters()
        valid = f"{', '.join(names)} or {last}"
        finding = Finding(f"cannot detect what {name} starts", help=f"--framework {valid}")
        sink.report("I05", finding)
    linter = linters().get(kind)
    if not isinstance(linter, ScriptLinter):
        return sink, []
    versioned = _versioned(kind, options, sink)
    if versioned is None or not check_options(options, sink):
        return sink, []
    return sink, linter.lint(script, versioned, sink)


def _versioned(kind: str, options: LintOptions, sink: ScriptSink) -> LintOptions | None:
    """Return ``options`` with a version that the backend ``kind`` supports; None after X18."""
    version = version_of(kind, options.version or None, sink)
    return None if version is None else replace(options, version=version)


def _config_kind(text: str) -> str:
    """Return the backend whose configuration ``text`` is; empty if it is none."""
    configs = {name: one for name, one in linters().items() if isinstance(one, ConfigLinter)}
    return next((name for name, one in configs.items() if one.recognizes(text)), "")


def _script_kind(script: Script) -> str:
    """Return the backend that a script starts; empty if its words show none."""
    scripts = {name: one for name, one in linters().items() if isinstance(one, ScriptLinter)}
    return next((name for name, one in scripts.items() if one.recognizes(script)), "")
