"""Compare ``parc.lock`` with the rank map, and the files that it promises with those there are."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.passes.expected_groups import Expected

LOCK = "parc.lock"
PROMISED = {
    "kubernetes": ("kubernetes/jobset.yaml",),
    "preflight": ("preflight/check_ranks.py", "preflight/expected.json"),
    "rankmap": ("rankmap.csv", "rankmap.json", "rankmap.md"),
    "slurm": ("slurm/job.sbatch",),
    "torchrun": ("torchrun/launch.sh",),
}
"""Backend -> files that it always emits. The framework stands in every lock, emitted or not."""


def promised_files(lock: dict[str, Any]) -> list[str]:
    """Files that the backends of ``lock`` emit."""
    versions = lock["decisions"].get("versions")
    names = versions if isinstance(versions, dict) else {}
    return [file for name, files in PROMISED.items() if name in names for file in files]


def verify_lock(
    lock: dict[str, Any], hosts: list[str], expected: Expected | None, sink: Sink
) -> None:
    """A02 for hosts in another order, A05 for another rank order.

    Args:
        lock: the tree of ``parc.lock``.
        hosts: by node rank, as the rank map has them.
        expected: what the framework's files ask for; None where that is not known.
        sink: where findings go.
    """
    decided = lock["decisions"]
    locked = decided.get("hosts")
    if isinstance(locked, list) and locked != hosts:
        pairs = zip(locked, hosts, strict=False)
        first = next((n for n, (old, new) in enumerate(pairs) if old != new), None)
        label = f"{len(locked)} hosts in {LOCK}, {len(hosts)} in the rank map"
        if first is not None:
            label = (
                f"node rank {first}: {locked[first]!r:.60}, the rank map has {hosts[first]!r:.60}"
            )
        message = f"the hosts of {LOCK} are not those of the rank map"
        sink.report("A02", Finding(message, label), span=Span(LOCK, 1, 1))
    if expected is not None and decided.get("order") != expected.order:
        message = (
            f"order is {decided.get('order')!r:.60} in {LOCK}, "
            f"{expected.file} asks for {expected.order}"
        )
        sink.report("A05", message, span=Span(LOCK, 1, 1))
