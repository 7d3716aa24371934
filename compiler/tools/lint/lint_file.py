"""Lint one launch file: detect the framework, then run the checks of its backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from parc.backends.plugin_error import first_recognizing
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.resolve.resolve_targets import resolve_version
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES
from parc.compiler.tools.importers.script_commands import find_program_of_others
from parc.compiler.tools.lint.complete_facts import check_lint_options
from parc.compiler.tools.lint.launch_lines import lint_launch, starts_job_launcher
from parc.compiler.tools.lint.linter import ConfigLinter, ScriptLinter, linters_by_backend
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink, read_script
from parc.compiler.tools.lint.try_fixes import try_fixes

MOST_COMMANDS = 50
"""Maximum number of commands that are checked one by one, which takes milliseconds each."""


def lint_text(text: str, name: str, options: LintOptions) -> tuple[ScriptSink, list[SkippedRule]]:
    """Check the launch file ``text``; return (sink that contains the findings, skipped rules).

    A rule is skipped if it needs a fact that neither the file nor an option contains. A file whose
    framework cannot be detected (I05) and a text that is too long (I06) are reported.
    """
    sink = ScriptSink(name, text)
    if len(text) > MAX_TEXT_BYTES:
        sink.report("I06", Finding(f"{name} is larger than {MAX_TEXT_BYTES} bytes"))
        return sink, []
    kind = _detect_config_backend(text) if options.framework == "auto" else options.framework
    config = linters_by_backend().get(kind)
    if isinstance(config, ConfigLinter):
        versioned = _with_version(kind, options, sink)
        if versioned is not None:
            config.lint(text, name, versioned, sink)
        return sink, []
    # Mistakes with Slurm and torchrun do not depend on the framework, so check them in any case.
    script = read_script(text, name)
    lint_launch(script, sink)
    kinds = [options.framework]
    if options.framework == "auto":
        kinds = _detect_script_backends(script, sink)
    if not kinds and not options.allow_unknown:
        _report_unknown(script, sink)
    skipped: list[SkippedRule] = []
    for kind in kinds:
        linter = linters_by_backend().get(kind)
        if not isinstance(linter, ScriptLinter):
            return sink, []
        versioned = _with_version(kind, options, sink)
        if versioned is None or not check_lint_options(options, sink):
            return sink, []
        skipped += _lint_commands(linter, script, versioned, sink)
    if skipped and not sink.checked and not options.allow_unknown:
        finding = Finding(
            f"nothing in {name} was checked: {skipped[0].reason}",
            help="supply facts with --model, --cluster and --gpus, or accept this with "
            "--allow-unknown",
        )
        sink.report("I10", finding)
    reported = {one.code.removeprefix("PARC-") for one in sink.diagnostics}
    skipped = _one_per_code(
        _without_given_option(one, options) for one in skipped if one.code not in reported
    )
    # Several rules can have one code; it counts as evaluated only if none of them was skipped.
    sink.checked -= {one.code for one in skipped}
    return sink, skipped


def _lint_commands(
    linter: ScriptLinter, script: LintedScript, options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Report the findings of each command that starts the framework; return the skipped rules.

    Two commands can set a flag to different values. Each is therefore checked in a script without
    the others.
    """
    starts = linter.starts(script)
    # The words of one statement, such as those of a variable, can start several programs.
    apart = len({one.statement for one in starts}) == len(starts)
    if not (apart and 0 < len(starts) <= MOST_COMMANDS):
        return _lint_one_command(linter, script, options, sink)
    skipped = []
    for start in starts:
        found = ScriptSink(script.name, script.text)
        alone = script.with_one_command(start, starts)
        skipped += _lint_one_command(linter, alone, options, found)
        sink.extend(found)
        sink.checked |= found.checked
    linter.lint_together(script, sink)
    return skipped


def _lint_one_command(
    linter: ScriptLinter, script: LintedScript, options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    skipped = linter.lint(script, options, sink)
    try_fixes(script, lambda edited, trial: linter.lint(edited, options, trial), sink)
    return skipped


def _without_given_option(rule: SkippedRule, options: LintOptions) -> SkippedRule:
    """Return ``rule`` without the advice to pass an option that the user has passed.

    With the number of GPUs, the rule needs the data-parallel size, which a flag in another file
    can change.
    """
    given = {"--gpus": options.gpus, "--model": options.model, "--cluster": options.cluster}
    if given.get(rule.option) is None:
        return rule
    fact = "the data-parallel size" if rule.option == "--gpus" else rule.fact
    return replace(rule, fact=fact, option="")


def _one_per_code(skipped: Iterable[SkippedRule]) -> list[SkippedRule]:
    """Return the first skipped rule of each code; one whose fact an option supplies comes first.

    The rules with one code can need different facts.
    """
    found: dict[str, SkippedRule] = {}
    for one in skipped:
        if one.code not in found or (one.option and not found[one.code].option):
            found[one.code] = one
    return list(found.values())


def _report_unknown(script: LintedScript, sink: ScriptSink) -> None:
    """Report that PARC cannot check the framework of the script.

    The code is I05 if the script does not seem to start a program, and otherwise I09.
    """
    *names, last = linters_by_backend()
    valid = f"{', '.join(names)} or {last}"
    if not starts_job_launcher(script):
        finding = Finding(
            f"cannot detect which framework {script.name} starts",
            help=f"name the framework with --framework; valid values: {valid}",
        )
        sink.report("I05", finding)
        return
    other = find_program_of_others(script.words)
    config = next((word.text for word in script.words if word.text.endswith(".json")), "")
    own = f"check its config with parc lint {config}, " if config and not other else ""
    finding = Finding(
        f"{script.name} starts no framework that PARC can check: only the launch lines were "
        "checked",
        label=f"{other.text} has its own flags, which PARC cannot read"
        if other
        else "no flag or program of a supported framework",
        help="accept this with --allow-unknown"
        if other
        else f"{own}name the framework with --framework ({valid}), or accept this with "
        "--allow-unknown",
    )
    sink.report("I09", finding, span=other.span if other else None)


def _with_version(kind: str, options: LintOptions, sink: ScriptSink) -> LintOptions | None:
    """Return ``options`` with the version of the backend ``kind`` that the checks apply to.

    This is the requested version, or else the default one. Return None after reporting a requested
    version that the backend does not support (X18).
    """
    version = resolve_version(kind, options.version or None, sink)
    return None if version is None else replace(options, version=version)


def _detect_config_backend(text: str) -> str:
    """Return the name of the backend whose configuration file has this text; empty if none does."""
    configs = {
        name: one for name, one in linters_by_backend().items() if isinstance(one, ConfigLinter)
    }
    tests = ((name, partial(one.recognizes, text)) for name, one in configs.items())
    # A linter that fails is reported only for scripts, which have no other linters after them.
    return first_recognizing(tests, Sink()) or ""


def _detect_script_backends(script: LintedScript, sink: ScriptSink) -> list[str]:
    """Return the names of the backends that a script starts; empty if the script shows none.

    Several backends are returned only if each has commands of its own.
    """
    scripts = {
        name: one for name, one in linters_by_backend().items() if isinstance(one, ScriptLinter)
    }
    tests = ((name, partial(one.recognizes, script)) for name, one in scripts.items())
    first = first_recognizing(tests, sink)
    if first is None:
        return []
    others = [name for name, one in scripts.items() if name != first and one.starts(script)]
    return [first, *(others if scripts[first].starts(script) else [])]
