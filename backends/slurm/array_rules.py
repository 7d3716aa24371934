"""Checks of job arrays and of runs that need several jobs."""

from __future__ import annotations

import math
import re

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Plan
from parc.compiler.tools.importers.slurm_time import slurm_time

TARGETS = ("slurm",)
AT = "launch.slurm.array"
_NUMBER = r"\d{1,9}"
_RANGE = rf"({_NUMBER})(?:-({_NUMBER})(?::([1-9]\d{{0,8}}))?)?"
_ARRAY = re.compile(rf"((?:{_RANGE})(?:,(?:{_RANGE}))*)(?:%([1-9]\d{{0,8}}))?")
"""Task numbers of sbatch(1), --array: 0-15, 1,3,5, 0-15:4 and 0-15%4."""
MOST_TASKS = 1000
"""Largest task number with Slurm's default MaxArraySize of 1001."""
_SHOWN = 60


def check_array(plan: AnyPlan, sink: Sink) -> None:
    """Report an array that sbatch rejects (L28), or whose tasks overwrite checkpoints (L39)."""
    array = plan.problem.launch.slurm.array
    if array is None:
        return
    if not _ARRAY.fullmatch(array):
        text = f"{array!r:.{_SHOWN}} is not a valid array of sbatch"
        help_text = "valid forms: 0-15, 1,3,5, 0-15:4; append %N to run N tasks at a time"
        sink.report("L28", Finding(text, help=help_text, targets=TARGETS), at=AT)
        return
    count, at_a_time = _tasks(array)
    if not isinstance(plan, Plan) or at_a_time == 1 or plan.problem.job.checkpoint_dir is None:
        return
    finding = Finding(
        f"{at_a_time:,} jobs of the array can write to one checkpoint folder at the same time",
        label=f"{count:,} tasks, each a whole job, without %1",
        help="%1 runs the jobs one after another",
        fix=f'{AT}: "{array.partition("%")[0]}%1"',
        causes=(Cause("job.checkpoint_dir", "the folder of all jobs"),),
        targets=TARGETS,
    )
    sink.report("L39", finding, at=AT)


def _tasks(array: str) -> tuple[int, int]:
    """Return (number of tasks, largest number of tasks that run at the same time) of an array."""
    ranges, _, limit = array.partition("%")
    count = 0
    for first, last, step in re.findall(_RANGE, ranges):
        count += len(range(int(first), int(last or first) + 1, int(step or 1)))
    return count, min(count, int(limit)) if limit else count


def check_run_length(plan: Plan, limit_seconds: int, sink: Sink) -> None:
    """Report a training run that does not finish within the time limit of its jobs (L33)."""
    seconds = plan.run.wall_seconds
    if seconds is None or seconds <= limit_seconds:
        return
    job, array = plan.problem.job, plan.problem.launch.slurm.array
    length, limit = slurm_time(math.ceil(seconds)), slurm_time(limit_seconds)
    jobs = math.ceil(seconds / limit_seconds)
    saves = job.checkpoint_dir is not None
    valid = array is not None and _ARRAY.fullmatch(array)
    tasks = _tasks(array)[0] if array is not None and valid else 1
    if saves and tasks >= jobs:
        return
    has = f", but the array has {tasks:,}" if tasks > 1 else ""
    needs = f"it needs {jobs:,} jobs{has}" if saves else "no number of jobs finishes it"
    finding = Finding(
        f"the run takes {length}, but the time limit is {limit}: {needs}",
        label=f"{length} / {limit} = {seconds / limit_seconds:.2f} jobs",
        help="each job continues from the last checkpoint in job.checkpoint_dir; run the next ones "
        "as an array, or submit them with sbatch --dependency=singleton"
        if saves
        else "without job.checkpoint_dir, each job starts at step 0 again; set it, or increase "
        "launch.slurm.time_limit",
        fix=f'{AT}: "1-{jobs}%1"' if saves and jobs <= MOST_TASKS else "",
        causes=(Cause("job.steps", f"{job.steps:,} steps"),),
        targets=TARGETS,
    )
    sink.report("L33", finding, at="launch.slurm.time_limit")
