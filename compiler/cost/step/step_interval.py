"""80 % interval of a predicted step time.

The error of a prediction is log-normal. Its spread depends on what is known about the job, and is
measured on published runs whose source was left out of the fit (benchmarks/accuracy/intervals.py,
which also counts how many runs of locked sources lie inside the interval: docs/accuracy.md).
"""

from __future__ import annotations

from math import exp, hypot

from parc.compiler.cost.setup.calibrated_parameters import PARAMETERS
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.stage_time import cached_layer_time
from parc.compiler.ir import Layout

DENSE_SPREAD = 0.12
"""Half width of the interval, as a logarithm, for a dense model on a stack and a GPU with published
runs of at least ``SEVERAL`` sources."""
EXPERTS_SPREAD = 0.19
"""The same for mixtures of experts."""
FEW_SPREAD = 0.22
"""The same for a stack and a GPU with published runs of fewer sources."""
UNMEASURED_SPREAD = 0.26
"""The same for a stack and a GPU without published runs."""
SEVERAL = 3
"""Number of sources whose runs show most of what differs between machines and versions."""
CALIBRATED_SPREAD = 0.094
"""Half width of the interval for a cluster with calibrated parameters: the spread of the errors
within a source."""

NORMAL_SPREAD = 1.2816
"""Half width of the 80 % interval of a normal distribution, in standard deviations."""
LAUNCH_SPREAD = NORMAL_SPREAD * PARAMETERS["launch_seconds"].spread
"""Half width of the interval of the host's time per kernel launch. It differs between CPUs and
versions of the software, and published runs of large models do not show it."""


def step_interval(cost_model: CostModel, layout: Layout, seconds: float) -> tuple[float, float]:
    """Return both ends of the 80 % interval of a step that is predicted to take ``seconds``."""
    problem = cost_model.problem
    spread = EXPERTS_SPREAD if problem.model.experts else DENSE_SPREAD
    sources = cost_model.efficiency.sources_of_gpu(problem.cluster.gpu.catalog_name)
    if problem.calibration:
        spread = CALIBRATED_SPREAD
    elif sources < SEVERAL:
        spread = max(spread, FEW_SPREAD if sources else UNMEASURED_SPREAD)
    spread = hypot(spread, launch_spread(cost_model, layout, seconds))
    return seconds * exp(-spread), seconds * exp(spread)


def launch_spread(cost_model: CostModel, layout: Layout, seconds: float) -> float:
    """Return the half width of the interval that is due to the host's time per kernel launch.

    It is 0 if runs of the stack, or of the cluster, determine this time.
    """
    if cost_model.problem.calibration or cost_model.efficiency.measured_launches:
        return 0.0
    return LAUNCH_SPREAD * launch_share(cost_model, layout, seconds)


def launch_share(cost_model: CostModel, layout: Layout, seconds: float) -> float:
    """Return the fraction of a step that grows in proportion to the host's time per kernel launch.

    The fraction is that of a mean pipeline rank in a step of ``seconds``.
    """
    model = cost_model.problem.model
    launches = 0.0
    for kind in model.kinds:
        layer = cached_layer_time(cost_model, layout, kind)
        passes = 2 if layout.recompute.granularity == "full" else 1
        each = passes * layer.launch_forward + layer.launch_backward
        launches += model.layer_kinds.count(kind) * each
    count = layout.micro_batches(cost_model.problem.job.global_batch)
    return min(1.0, count * launches / layout.pp / seconds)
