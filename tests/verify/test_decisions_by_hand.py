"""Decisions that verifiers read from settings, for settings written by hand."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from parc.backends.deepspeed.verify_config import _offload_settings
from parc.backends.shared.verify_torch import read_batch_settings
from parc.backends.torchtitan.verify_module import _model_and_flavor
from parc.backends.torchtitan.verify_settings import _sharding_settings, _stage_settings
from parc.compiler.verify.device_mesh import MeshSizes
from parc.compiler.verify.verify_settings import json_settings


def values(tree: dict[str, Any]) -> dict[str, Any]:
    found = _offload_settings(json_settings("ds_config.json", json.dumps(tree)))
    return {one.path: one.value for one in found}


@pytest.mark.parametrize("section", ["offload_optimizer", "offload_param"])
def test_the_folder_of_an_offload_to_nvme_is_part_of_the_plan(section: str) -> None:
    away = {"device": "nvme", "nvme_path": "/scratch", "pin_memory": True}
    found = values({"zero_optimization": {section: away}})
    field = "optimizer" if section == "offload_optimizer" else "parameters"
    other = "parameters" if field == "optimizer" else "optimizer"
    assert found[f"layout.offload.{field}"] == "nvme"
    assert found[f"layout.offload.{other}"] == "none"
    assert found["layout.offload.nvme_path"] == "/scratch"


@pytest.mark.parametrize("device", ["cpu", "none"])
def test_an_offload_to_the_host_has_no_folder(device: str) -> None:
    found = values({"zero_optimization": {"offload_param": {"device": device}}})
    assert found["layout.offload.parameters"] == device
    assert "layout.offload.nvme_path" not in found


@pytest.mark.parametrize(
    ("reshard", "pp", "dp_shard", "stage", "also_ddp"),
    [
        *(("never", 1, 2, 2, False), ("always", 1, 2, 3, False), ("never", 1, 1, 2, True)),
        *(("always", 1, 1, 3, False), (None, 2, 1, 2, True), (None, 2, 4, 2, False)),
        *((None, 1, 4, 3, False), (None, 1, 1, 3, False)),
    ],
)
def test_torchtitan_without_shards_to_gather_may_be_ddp(
    reshard: str | None, pp: int, dp_shard: int, stage: int, also_ddp: bool
) -> None:
    sizes = MeshSizes(pp=pp, dp_replicate=1, dp_shard=dp_shard, cp=1, tp=1)
    parallelism = {"fsdp_reshard_after_forward": reshard} if reshard else {}
    settings = json_settings("config.py", json.dumps({"parallelism": parallelism}))
    (found,) = [
        one for one in _sharding_settings(settings, sizes) if one.path == "layout.zero_stage"
    ]
    assert found.value == stage
    assert found.accepts is not None
    assert [plan for plan in range(4) if found.accepts(plan)] == ([0] if also_ddp else [])


def test_the_global_batch_follows_from_micro_batches_and_replicas() -> None:
    settings = json_settings("train.json", '{"size": 2, "steps": 3}')
    found = {one.path: one.value for one in read_batch_settings(settings, "size", "steps", 4)}
    assert found == {
        "layout.micro_batch": 2,
        "layout.micro_batches": 3,
        "problem.job.global_batch": 24,
    }


@pytest.mark.parametrize("schedule", [None, "1F1B", "Interleaved1F1B"])
def test_a_single_stage_of_torchtitan_has_one_chunk_with_all_layers(schedule: str | None) -> None:
    sizes = MeshSizes(pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1)
    parallelism = {"pipeline_parallel_schedule": schedule} if schedule else {}
    tree = {"parallelism": parallelism, "model": {"n_layers": 16}}
    settings = json_settings("config.py", json.dumps(tree))
    found = {one.path: one.value for one in _stage_settings(settings, sizes)}
    whole = {"first_layer": 0, "layers": 16, "mtp_layers": 0, "embedding": True, "loss": True}
    assert found == {
        "layout.schedule": "1f1b",
        "layout.vpp": 1,
        "layout.split.chunks": [[whole]],
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("model_spec()", {"called": "model_spec"}),
        ("llama3.model_registry('8B')", {"called": "llama3.model_registry", "flavor": "8B"}),
        ("f('8B', 1)", {"called": "f('8B', 1)"}),
        ("f(flavor='8B')", {"called": "f(flavor='8B')"}),
        ("f(*names)", {"called": "f", "flavor": "*names"}),
        ("spec", {"called": "spec"}),
    ],
)
def test_the_model_of_torchtitan_is_a_function_with_at_most_one_plain_argument(
    source: str, expected: dict[str, str]
) -> None:
    found = _model_and_flavor(ast.parse(source, mode="eval").body)
    assert {name: str(value) for name, value in found.items()} == expected
