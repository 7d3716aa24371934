"""One file of somebody else to findings: what it is, then what is wrong with it."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.diagnostics import Finding
from parc.compiler.resolve.resolve_targets import version_of
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES
from parc.compiler.tools.lint.added import is_known
from parc.compiler.tools.lint.launch import lint_launch, starts_something
from parc.compiler.tools.lint.lint_deepspeed import is_deepspeed, lint_deepspeed
from parc.compiler.tools.lint.lint_megatron import is_megatron, lint_megatron
from parc.compiler.tools.lint.lint_vllm import is_vllm, lint_vllm
from parc.compiler.tools.lint.more import More, Skipped
from parc.compiler.tools.lint.script import Script, read_script
from parc.compiler.tools.lint.script_sink import ScriptSink

JUDGES = {"megatron": lint_megatron, "vllm": lint_vllm}


def lint_text(text: str, name: str, more: More) -> tuple[ScriptSink, list[Skipped]]:
    """What is wrong with ``text``, and which rules need what it does not say.

    I05 where nothing shows what it starts, I06 where it is too long for a script.
    """
    sink = ScriptSink(name, text)
    if len(text) > MAX_TEXT_BYTES:
        sink.report("I06", Finding(f"{name} has more than {MAX_TEXT_BYTES} bytes"))
        return sink, []
    if more.framework == "deepspeed" or (more.framework == "auto" and is_deepspeed(text)):
        versioned = _versioned("deepspeed", more, sink)
        if versioned is not None:
            lint_deepspeed(text, name, versioned, sink)
        return sink, []
    script = read_script(text, name)
    lint_launch(script, sink)
    kind = _seen(script) if more.framework == "auto" else more.framework
    if kind == "" and not starts_something(script):
        told = "megatron, deepspeed or vllm"
        finding = Finding(f"nothing shows what {name} starts", help=f"--framework {told}")
        sink.report("I05", finding)
    judge = JUDGES.get(kind)
    versioned = None if judge is None else _versioned(kind, more, sink)
    if judge is None or versioned is None or not is_known(more, sink):
        return sink, []
    return sink, judge(script, versioned, sink)


def _versioned(kind: str, more: More, sink: ScriptSink) -> More | None:
    """``more`` with the version of the framework that it belongs to; None after X18."""
    version = version_of(kind, more.version or None, sink)
    return None if version is None else replace(more, version=version)


def _seen(script: Script) -> str:
    """Framework that a script starts; empty where nothing shows it."""
    if is_megatron(script):
        return "megatron"
    return "vllm" if is_vllm(script) else ""
