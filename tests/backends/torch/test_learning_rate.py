"""Tests of the emitted learning_rate.py: rates at chosen steps of each decay."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from parc.backends.shared.torch.framework import learning_rate_file
from tests.backends.torch.specs import valid_spec
from tests.compiled import emitted, plan_of
from tests.hyperparameters import planned_rate
from tests.samples import sample_of

PLAN: dict[str, Any] = {
    "learning_rate": 1.0,
    "min_learning_rate": 0.1,
    "warmup_steps": 4,
    "lr_decay": "cosine",
    "lr_decay_steps": 104,
    "wsd_decay_steps": 0,
}


def rate(step: int, **changes: Any) -> float:
    module: dict[str, Any] = {}
    exec(learning_rate_file("x").text, module)
    found: float = module["learning_rate"](step, PLAN | changes)
    return found


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "inverse-square-root", "wsd"])
def test_every_decay_starts_after_a_linear_warm_up(decay: str) -> None:
    wsd = 50 if decay == "wsd" else 0
    rates = [rate(step, lr_decay=decay, wsd_decay_steps=wsd) for step in range(200)]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert min(rates[4:]) >= 0.1


EXPECTED_RATES = (
    ("cosine", 54, 0.55),
    ("cosine", 29, 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2),
    ("cosine", 104, 0.1),
    ("cosine", 150, 0.1),
    ("linear", 29, 0.775),
    ("linear", 104, 0.1),
    ("constant", 150, 1.0),
    ("inverse-square-root", 16, 0.5),
    ("inverse-square-root", 5000, 0.1),
)


@pytest.mark.parametrize(("decay", "step", "expected"), EXPECTED_RATES)
def test_a_decay_reaches_the_expected_rates(decay: str, step: int, expected: float) -> None:
    assert rate(step, lr_decay=decay) == pytest.approx(expected)


def test_wsd_keeps_the_peak_until_its_decay_steps() -> None:
    rates = [rate(step, lr_decay="wsd", wsd_decay_steps=20) for step in (4, 84, 94, 104)]
    assert rates == pytest.approx([1.0, 1.0, 0.55, 0.1])


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "wsd"])
def test_without_warm_up_the_first_step_has_the_peak_rate(decay: str) -> None:
    assert rate(0, lr_decay=decay, warmup_steps=0, wsd_decay_steps=9) == 1.0


@pytest.mark.parametrize("seed", sample_of(range(40), 20))
def test_random_plans_have_the_rates_that_the_spec_defines(seed: int) -> None:
    plan = plan_of(valid_spec("fsdp", seed))
    job = plan.problem.job
    config = json.loads(emitted(plan)["fsdp/config.json"])
    for step in (0, 1, 8, 500, 990, 999):
        done = step + (step < job.warmup_steps)
        assert rate(step, **config) == pytest.approx(planned_rate(job, done))
