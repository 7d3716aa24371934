"""80 % interval of a predicted step time.

The error of a prediction is log-normal. Its spread depends on what is known about the job, and is
measured on published runs whose source was left out of the fit (benchmarks/accuracy/intervals.py,
which also counts how many runs of locked sources lie inside the interval: docs/accuracy.md).
"""

from __future__ import annotations

from math import exp

from parc.compiler.cost.setup.cost_model import CostModel

DENSE_SPREAD = 0.099
"""Half width of the interval, as a logarithm, for a dense model on a stack and GPU generation with
published runs."""
EXPERTS_SPREAD = 0.25
"""The same for mixtures of experts."""
UNMEASURED_SPREAD = 0.2
"""The same for a stack and GPU generation without published runs."""
CALIBRATED_SPREAD = 0.071
"""The same for a cluster with calibrated parameters: the spread of the errors within a source."""


def step_interval(cost_model: CostModel, seconds: float) -> tuple[float, float]:
    """Return both ends of the 80 % interval of a step that is predicted to take ``seconds``."""
    problem = cost_model.problem
    spread = EXPERTS_SPREAD if problem.model.experts else DENSE_SPREAD
    if problem.calibration:
        spread = CALIBRATED_SPREAD
    elif not cost_model.efficiency.measured:
        spread = max(spread, UNMEASURED_SPREAD)
    return seconds * exp(-spread), seconds * exp(spread)
