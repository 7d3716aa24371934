"""Sides of a diff, built from plans without a search."""

from __future__ import annotations

from parc.backends.registry import backend
from parc.compiler.ir import Plan
from parc.compiler.report.diff.read_side import DiffSide, read_diff_side
from parc.compiler.report.json.plan_json import lock_artifact, plan_artifact


def files_of(plan: Plan, **extra: str) -> dict[str, str]:
    """Return plan.json, parc.lock, the rank map, and the files ``args``, ``launch``, ``sbatch``."""
    artifacts = [plan_artifact(plan), lock_artifact(plan, ()), *backend("rankmap").emit(plan)]
    files = {artifact.path: artifact.text for artifact in artifacts}
    paths = {
        "args": "megatron/args.sh",
        "launch": "torchrun/launch.sh",
        "sbatch": "slurm/job.sbatch",
    }
    return files | {paths[name]: text for name, text in extra.items()}


def side_of(plan: Plan, name: str = "plan", **extra: str) -> DiffSide:
    """Return a side of a diff."""
    return read_diff_side(name, files_of(plan, **extra))
