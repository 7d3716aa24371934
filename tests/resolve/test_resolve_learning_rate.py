"""Fractions and defaults of the learning rate become steps; contradictions are reported."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_learning_rate import LearningRate, resolve_learning_rate
from parc.compiler.spec.job_spec import DEFAULT_STEPS, JobSpec


def resolved(**job: Any) -> tuple[LearningRate, list[tuple[str, str]]]:
    sink = Sink()
    spec = JobSpec(sequence_length=8, global_batch=1, **job)
    rate = resolve_learning_rate(spec, spec.steps or DEFAULT_STEPS, sink)
    return rate, [(found.path, found.finding.fix) for found in sink.diagnostics]


GIVEN: tuple[tuple[dict[str, Any], LearningRate], ...] = (
    ({}, LearningRate(1e-5, 10, 0.01, 1000, 0)),
    ({"learning_rate": 3e-4, "steps": 100}, LearningRate(3e-5, 1, 0.01, 100, 0)),
    ({"steps": 1}, LearningRate(1e-5, 0, 0.01, 1, 0)),
    ({"warmup_steps": 0.29, "steps": 100}, LearningRate(1e-5, 29, 0.29, 100, 0)),
    ({"warmup_steps": 7, "min_learning_rate": 0.0}, LearningRate(0.0, 7, None, 1000, 0)),
    ({"lr_decay_steps": 500}, LearningRate(1e-5, 5, 0.01, 500, 0)),
    ({"lr_decay": "wsd"}, LearningRate(1e-5, 10, 0.01, 1000, 100)),
    ({"lr_decay": "wsd", "wsd_decay_steps": 250}, LearningRate(1e-5, 10, 0.01, 1000, 250)),
    ({"lr_decay": "wsd", "steps": 5}, LearningRate(1e-5, 0, 0.01, 5, 1)),
)


@pytest.mark.parametrize(("job", "wanted"), GIVEN)
def test_unset_numbers_are_derived(job: dict[str, Any], wanted: LearningRate) -> None:
    assert resolved(**job) == (wanted, [])


CONTRADICTIONS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"min_learning_rate": 2e-4}, "min_learning_rate", "job.min_learning_rate: 1e-05"),
    ({"warmup_steps": 1000}, "warmup_steps", "job.warmup_steps: 1%"),
    ({"warmup_steps": 500, "lr_decay_steps": 500}, "warmup_steps", "job.warmup_steps: 1%"),
    (
        {"lr_decay": "inverse-square-root", "steps": 99},
        "warmup_steps",
        "job.warmup_steps: 1",
    ),
    ({"wsd_decay_steps": 9}, "wsd_decay_steps", "remove job.wsd_decay_steps"),
    (
        {"lr_decay": "wsd", "wsd_decay_steps": 991},
        "wsd_decay_steps",
        "job.wsd_decay_steps: 990",
    ),
)


@pytest.mark.parametrize(("job", "at", "fix"), CONTRADICTIONS)
def test_numbers_that_contradict_each_other_are_reported(
    job: dict[str, Any], at: str, fix: str
) -> None:
    assert resolved(**job)[1] == [(f"job.{at}", fix)]


@pytest.mark.parametrize(
    "job",
    [
        {"min_learning_rate": 1e-4},
        {"warmup_steps": 999},
        {"lr_decay": "wsd", "wsd_decay_steps": 990},
        {"lr_decay": "inverse-square-root", "steps": 100},
    ],
)
def test_the_last_valid_number_is_accepted(job: dict[str, Any]) -> None:
    assert resolved(**job)[1] == []
