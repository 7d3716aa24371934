"""Time of the slowest of several prompts that run in the same step."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from random import Random

import pytest

from parc.compiler.cost.serving.common_steps import CommonSteps
from parc.compiler.ir.serving import Lengths


def test_the_slowest_of_several_prompts_takes_longer_if_their_lengths_differ() -> None:
    varied = CommonSteps(8, 1.0, 0.0, 100.0, Lengths(input_cv=0.5, range_ratio=0.0), 0.0)
    equal = replace(varied, lengths=Lengths())
    assert equal.slowest_of(8) == pytest.approx(1.0)
    # Mean maximum of eight lognormal lengths with a coefficient of variation of 0.5.
    random, sigma = Random(1), sqrt(log(1.25))
    samples = [
        max(random.lognormvariate(-(sigma**2) / 2, sigma) for _ in range(8)) for _ in range(9000)
    ]
    assert varied.slowest_of(8) == pytest.approx(sum(samples) / len(samples), rel=0.03)


@pytest.mark.parametrize("prompts", [1, 5, 8])
@pytest.mark.parametrize(("most", "quadratic"), [(0.6, 0.0), (1.3, 0.35), (4.0, 0.5)])
def test_the_slowest_prompt_is_that_of_samples_with_parts_of_prompts_and_attention(
    most: float, quadratic: float, prompts: int
) -> None:
    # A coefficient of variation of 0.8 gives a mean square of 1.64, with a mean length of 1.
    random, sigma = Random(2), sqrt(log(1.64))
    varied = CommonSteps(8, 1.0, 0.0, most, Lengths(input_cv=0.8, range_ratio=0.0), quadratic)

    def seconds() -> float:
        length = min(random.lognormvariate(-(sigma**2) / 2, sigma), most)
        return (1 - quadratic) * length + quadratic * length**2 / 1.64

    slowest = sum(max(seconds() for _ in range(prompts)) for _ in range(20_000))
    mean = sum(seconds() for _ in range(20_000))
    assert varied.slowest_of(prompts) == pytest.approx(slowest / mean, rel=0.03)
