"""Hosts of the engines of a serving job: whole hosts per engine, or several engines per host.

The ranks of an engine are contiguous, with equally many on each of its hosts, because vLLM requires
it (vllm/v1/executor/multiproc_executor.py: host k runs ranks k L to (k + 1) L - 1).
"""

from __future__ import annotations

from parc.compiler.ir.serving import ServingLayout


def engine_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the least number of hosts for one engine; None if no number of hosts fits evenly.

    A host must have whole tensor-parallel groups, or a group must have whole hosts. The same holds
    for the ranks of data parallelism.
    """
    gpus = layout.engine_gpus
    if gpus <= host_gpus:
        return 1
    fewest = -(-gpus // host_gpus)
    for hosts in range(fewest, gpus + 1):
        if gpus % hosts == 0 and _is_aligned(layout, gpus // hosts):
            return hosts
    return None


def _is_aligned(layout: ServingLayout, local: int) -> bool:
    """Return True if hosts of ``local`` ranks split no group or dp rank unevenly."""
    blocks = (layout.tp, layout.rank_gpus)
    return all(local % block == 0 or block % local == 0 for block in blocks)


def service_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Return the hosts of all engines, equally many engines per host; None if no engine fits."""
    each = engine_hosts(layout, host_gpus)
    if each is None or each > 1:
        return None if each is None else each * layout.replicas
    most = host_gpus // layout.engine_gpus
    hosts = -(-layout.replicas // most)
    # Equally many engines per host, because a placement has one number of ranks per host.
    while layout.replicas % hosts:
        hosts += 1
    return hosts


def replica_counts(layout: ServingLayout, host_gpus: int, hosts: int) -> tuple[int, ...]:
    """Return the numbers of engines that fit evenly on at most ``hosts`` hosts, ascending."""
    each = engine_hosts(layout, host_gpus)
    if each is None:
        return ()
    if each > 1:
        return tuple(range(1, hosts // each + 1))
    most = host_gpus // layout.engine_gpus
    counts = {engines * used for used in range(1, hosts + 1) for engines in range(1, most + 1)}
    return tuple(sorted(counts))


def local_ranks(layout: ServingLayout, host_gpus: int) -> int:
    """Return the ranks per host.

    Raises:
        ValueError: the engines do not fit the hosts evenly. Valid layouts always fit.
    """
    hosts = service_hosts(layout, host_gpus)
    if hosts is None:
        raise ValueError(
            f"engines of {layout.engine_gpus} ranks do not fit evenly on hosts of {host_gpus} GPUs"
        )
    return layout.gpus // hosts
