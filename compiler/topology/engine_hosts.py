"""How the engines of a serving job lie on hosts: whole hosts, or several engines on one.

Ranks of an engine are contiguous and every host of an engine holds as many of them, as the
engines ask (vllm/v1/executor/multiproc_executor.py: host k runs ranks k L to (k + 1) L - 1).
"""

from __future__ import annotations

from parc.compiler.ir.serving import ServingLayout


def engine_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Hosts of one engine, as few as can be; None where no number of them is even and aligned.

    On every host lie whole tensor-parallel groups, or whole hosts make up one; the same for the
    ranks of data parallelism.
    """
    gpus = layout.engine_gpus
    if gpus <= host_gpus:
        return 1
    fewest = -(-gpus // host_gpus)
    for hosts in range(fewest, gpus + 1):
        if gpus % hosts == 0 and _aligned(layout, gpus // hosts):
            return hosts
    return None


def _aligned(layout: ServingLayout, local: int) -> bool:
    """Whether ``local`` ranks a host cut neither tensor groups nor data-parallel ranks unevenly."""
    blocks = (layout.tp, layout.rank_gpus)
    return all(local % block == 0 or block % local == 0 for block in blocks)


def service_hosts(layout: ServingLayout, host_gpus: int) -> int | None:
    """Hosts of all engines: each holds as many of them; None where an engine does not fit."""
    each = engine_hosts(layout, host_gpus)
    if each is None or each > 1:
        return None if each is None else each * layout.replicas
    most = host_gpus // layout.engine_gpus
    hosts = -(-layout.replicas // most)
    while layout.replicas % hosts:
        hosts += 1
    return hosts


def replica_counts(layout: ServingLayout, host_gpus: int, hosts: int) -> tuple[int, ...]:
    """Numbers of engines that ``hosts`` hosts can hold evenly, ascending."""
    each = engine_hosts(layout, host_gpus)
    if each is None:
        return ()
    if each > 1:
        return tuple(range(1, hosts // each + 1))
    most = host_gpus // layout.engine_gpus
    counts = {engines * used for used in range(1, hosts + 1) for engines in range(1, most + 1)}
    return tuple(sorted(counts))


def local_ranks(layout: ServingLayout, host_gpus: int) -> int:
    """Ranks on every host; ValueError where the engines do not fit, which no legal layout does."""
    hosts = service_hosts(layout, host_gpus)
    if hosts is None:
        raise ValueError(f"{layout.engine_gpus} ranks do not fit hosts of {host_gpus} evenly")
    return layout.gpus // hosts
