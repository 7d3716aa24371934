"""Diagnostics of the launchers for a plan."""

from __future__ import annotations

from parc.backends.registry import backend
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import Plan


def found(plan: Plan) -> tuple[Diagnostic, ...]:
    sink = Sink()
    for name in ("slurm", "torchrun"):
        backend(name).check(plan, sink)
    return sink.diagnostics


def codes(plan: Plan) -> list[str]:
    return [diagnostic.code.removeprefix("PARC-") for diagnostic in found(plan)]
