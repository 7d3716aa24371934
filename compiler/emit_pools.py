"""Output folder of a disaggregated service: a folder for each pool, the router, all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from parc.backends.base import PoolRouting
from parc.backends.registry import engine
from parc.compiler.ir import Artifact, ServingPlan
from parc.compiler.ir.serving import POOLS
from parc.compiler.report.json.plan_json import lock_artifact

RANK_MAP = "rankmap.csv"


def emit_pools(
    plan: ServingPlan, emit_files: Callable[[ServingPlan], Iterable[Artifact]]
) -> tuple[Artifact, ...]:
    """Return all files of a plan with two pools.

    ``emit_files`` returns the files of one pool, which are complete: each folder can be verified
    and used like the output of a service of its own.
    """
    files = [list(emit_files(pool)) for pool in plan.pools]
    artifacts = [
        replace(one, path=f"{name}/{one.path}")
        for name, own in zip(POOLS, files, strict=True)
        for one in own
    ]
    target = engine(plan.problem.framework)
    if isinstance(target, PoolRouting):
        artifacts.append(target.emit_router(*plan.pools))
    artifacts += _joint_rank_map(files)
    # Last, because the lock contains a digest of every other file.
    return (*artifacts, lock_artifact(plan, artifacts))


def _joint_rank_map(files: list[list[Artifact]]) -> list[Artifact]:
    """Return the rank maps of both pools as one table; nothing if none was emitted.

    A column that only one pool has is empty in the other one.
    """
    texts = [one.text for own in files for one in own if one.path == RANK_MAP]
    if not texts:
        return []
    # The first columns are the same in both pools; only the last one, ep, can be absent.
    head = max((text.partition("\n")[0] for text in texts), key=len)
    rows = [f"pool,{head}"]
    for name, text in zip(POOLS, texts, strict=True):
        own, *lines = text.splitlines()
        missing = "," * (head.count(",") - own.count(","))
        rows += [f"{name},{line}{missing}" for line in lines]
    return [Artifact(RANK_MAP, "\n".join((*rows, "")))]
