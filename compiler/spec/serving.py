"""What is said about serving jobs until there is a target for them (X10)."""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink


def report_serving(sink: Sink) -> None:
    """Report the one error that a serving job gets."""
    finding = Finding(
        "serving jobs cannot be compiled yet",
        label="no serving backend exists in this version",
        help="legal kinds: pretrain, finetune",
    )
    sink.report("X10", finding, at="job.kind")
