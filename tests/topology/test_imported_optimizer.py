"""Optimizer and learning rate of emitted files are imported unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.deepspeed.launch_files.import_config import read_deepspeed_json
from parc.backends.megatron.launch_files.import_arguments import OPTIMIZER, read_megatron_args
from parc.compiler.diagnostics import Sink
from tests.backends.deepspeed.boundaries import DENSE as DEEPSPEED
from tests.backends.megatron.boundaries import DENSE as MEGATRON
from tests.compiled import Spec, changed, files_of
from tests.hyperparameters import hyperparameters

SEEDS = range(12)
STEPS = 1000


def job_of(spec: Spec, hyper: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    """Return the emitted file ``path``, and the job that parc import reads from it."""
    changes = {f"job.{name}": value for name, value in hyper.items()}
    text = files_of(changed(spec, {"job.steps": STEPS, **changes}))[path]
    read = read_megatron_args if path.endswith(".sh") else read_deepspeed_json
    fragment = read(text, path, Sink())
    assert fragment is not None
    job = {"steps": STEPS, **fragment.spec["job"]}
    job.pop("data", None)
    return text, job


@pytest.mark.parametrize("seed", SEEDS)
def test_imported_megatron_arguments_are_emitted_unchanged(seed: int) -> None:
    text, job = job_of(MEGATRON, hyperparameters(seed, STEPS), "megatron/args.sh")
    assert job_of(MEGATRON, job, "megatron/args.sh")[0] == text


@pytest.mark.parametrize("seed", SEEDS)
def test_an_imported_deepspeed_config_is_emitted_unchanged(seed: int) -> None:
    hyper = hyperparameters(seed, STEPS, ("cosine", "linear", "constant"), least_warmup=2)
    hyper |= {"min_learning_rate": 0} if hyper["lr_decay"] == "linear" else {}
    text, job = job_of(DEEPSPEED, hyper, "deepspeed/ds_config.json")
    assert job_of(DEEPSPEED, job, "deepspeed/ds_config.json")[0] == text


def test_a_launch_with_only_a_learning_rate_gets_megatrons_defaults() -> None:
    fragment = read_megatron_args("--lr 1e-3 --tensor-model-parallel-size 2", "x", Sink())
    assert fragment is not None
    assert fragment.spec["job"] == {"learning_rate": 1e-3, **OPTIMIZER}
    fragment = read_megatron_args("--tensor-model-parallel-size 2", "x", Sink())
    assert fragment is not None
    assert "job" not in fragment.spec


@pytest.mark.parametrize(
    ("scheduler", "decay"),
    [
        ({"type": "WarmupCosineLR", "params": {"total_num_steps": 9}}, "cosine"),
        ({"type": "WarmupCosineLR"}, None),
        ({"type": "OneCycle", "params": {"total_num_steps": 9}}, None),
        ({"type": ["WarmupCosineLR"], "params": {"total_num_steps": 9}}, None),
        ({"params": {"total_num_steps": 9}}, None),
    ],
)
def test_only_a_known_scheduler_with_parameters_is_read(
    scheduler: dict[str, Any], decay: str | None
) -> None:
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 1}, "scheduler": scheduler}
    fragment = read_deepspeed_json(json.dumps(config), "x", Sink())
    assert fragment is not None
    job = fragment.spec["job"]
    assert job.get("lr_decay") == decay
    assert job.get("lr_decay_steps", job.get("steps")) == (9 if decay else None)
