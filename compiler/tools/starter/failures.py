"""Choice of the findings to show if no starter spec compiles."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import Sink
from parc.compiler.search.explain_oversized import OVERSIZED

_OVERSIZED = {f"PARC-{OVERSIZED}", "PARC-V02"}
"""Codes of the findings that a job, or the KV cache of a service, does not fit in memory."""
_INCOMPLETE = "PARC-X08"
"""Code of the finding that a service has no checkpoint."""

OUTSIDE_FOLDER = (
    "copy the file to the folder of the spec, or write the spec next to the file: "
    "-o FOLDER/spec.yaml"
)
"""Help text for a file outside the folder of the spec. parc init writes specs that every command
can read, so it has no option --root."""


def is_oversized(sink: Sink) -> bool:
    """Return True if a finding reports that the job does not fit in memory."""
    return any(one.code in _OVERSIZED for one in sink.diagnostics)


def main_failure(failed: Sequence[Sink], own_files: Sequence[bool]) -> Sink:
    """Return the findings to show of those of ``failed``, one per attempt.

    A job that does not fit with one precision may have no checkpoint with another one. If the first
    attempt lacks only a checkpoint, one that names a checkpoint shows what else is wrong.
    ``own_files`` is True for each attempt that names one.
    """
    first = failed[0]
    if {one.code for one in first.diagnostics} == {_INCOMPLETE}:
        named = (sink for sink, own in zip(failed, own_files, strict=False) if own)
        first = next(named, first)
    return next(filter(is_oversized, failed), first)
