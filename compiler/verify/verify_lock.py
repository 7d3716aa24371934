"""Compare ``parc.lock`` with the rank map, and the files that it promises with those there are."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.derived_groups import Told

LOCK = "parc.lock"
PROMISED = {
    "kubernetes": ("kubernetes/jobset.yaml",),
    "preflight": ("preflight/check_ranks.py", "preflight/expected.json"),
    "rankmap": ("rankmap.csv", "rankmap.json", "rankmap.md"),
    "slurm": ("slurm/job.sbatch",),
    "torchrun": ("torchrun/launch.sh",),
}
"""Backend -> files that it always emits. The framework stands in every lock, emitted or not."""
SERVING = {"kubernetes": ("kubernetes/leaderworkerset.yaml",)}
"""Those of a job that serves, where they are others."""


def promised_files(lock: dict[str, Any]) -> list[str]:
    """Files that ``lock`` lists, and those that its backends emit."""
    versions = lock["decisions"].get("versions")
    names = versions if isinstance(versions, dict) else {}
    promised = PROMISED | (SERVING if "vllm" in names else {})
    emitted = [file for name, files in promised.items() if name in names for file in files]
    return [*emitted, *lock.get("files", ())]


def verify_lock(lock: dict[str, Any], hosts: list[str], told: Told | None, sink: Sink) -> None:
    """A02 for hosts in another order, A05 for another rank order.

    Args:
        lock: the tree of ``parc.lock``.
        hosts: by node rank, as the rank map has them.
        told: what the framework's files ask for; None where it is not known.
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
    if told is not None and decided.get("order") != told.order:
        found = f"{decided.get('order')!r:.60} in {LOCK}"
        message = f"order is {found}, {told.file} asks for {told.order}"
        sink.report("A05", message, span=Span(LOCK, 1, 1))
