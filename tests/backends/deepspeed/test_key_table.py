"""Tests of the two JSON files that flags.yaml defines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.deepspeed.capabilities import DEFAULT, VERSIONS
from parc.backends.deepspeed.files import DS_CONFIG, TRAIN, build_config
from parc.compiler.ir import Plan
from tests.backends.deepspeed.boundaries import DENSE, ROUTED
from tests.compiled import changed, plan_of


def config(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    plan = plan_of(changed(spec, changes))
    return build_config(DS_CONFIG, plan.problem, plan.layout)


def test_batch_equals_micro_batch_times_accumulation_times_replicas() -> None:
    found = config(DENSE, **{"layout.pp": 2, "layout.tp": 2})
    assert found["train_micro_batch_size_per_gpu"] == 1
    assert found["gradient_accumulation_steps"] == 48 // (24 // 4)
    assert found["train_batch_size"] == 48


def test_autotp_omits_the_batch_because_deepspeed_would_count_all_ranks() -> None:
    found = config(DENSE, **{"layout.tp": 2})
    assert found["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in found
    assert "tensor_parallel" not in config(DENSE, **{"layout.tp": 2, "layout.pp": 2})
    assert "tensor_parallel" not in config(ROUTED, **{"layout.tp": 2, "layout.etp": 2})


def test_ulysses_sets_both_sequence_and_data_parallel_size() -> None:
    found = config(DENSE, **{"layout.cp": 2})
    assert (found["sequence_parallel_size"], found["data_parallel_size"]) == (2, 12)
    assert "data_parallel_size" not in config(DENSE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "fp32"),
        ({"job.gradient_precision": "bf16"}, "bf16"),
        ({"job.precision": "fp16"}, None),
        ({"layout.zero_stage": 0, "job.gradient_precision": "bf16"}, None),
    ],
)
def test_gradients_are_accumulated_in_the_type_of_the_job(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert config(DENSE, **changes).get("data_types", {}).get("grad_accum_dtype") == expected


def test_offload_sets_folder_and_aio_only_for_nvme() -> None:
    cpu = config(DENSE, **{"layout.zero_stage": 2, "layout.offload": "cpu"})
    assert cpu["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "aio" not in cpu
    away = {"optimizer": "nvme", "parameters": "nvme", "nvme_path": "/local"}
    nvme = config(DENSE, **{"layout.zero_stage": 3, "layout.offload": away})
    place = {"device": "nvme", "nvme_path": "/local", "pin_memory": True}
    assert nvme["zero_optimization"]["offload_optimizer"] == place
    assert nvme["zero_optimization"]["offload_param"] == place
    assert nvme["aio"]["queue_depth"] > 1


def test_recompute_is_a_pipeline_key_with_pp_and_a_section_without() -> None:
    staged = config(DENSE, **{"layout.pp": 2, "layout.recompute": "full"})
    assert staged["pipeline"] == {"activation_checkpoint_interval": 1}
    assert "activation_checkpointing" not in staged
    plain = config(DENSE, **{"layout.recompute": "full"})
    assert plain["activation_checkpointing"] == {"partition_activations": False}
    assert "pipeline" not in plain


def leaf_values(node: Any) -> list[Any]:
    return (
        [one for part in node.values() for one in leaf_values(part)]
        if isinstance(node, dict)
        else [node]
    )


def test_no_value_is_auto_or_null() -> None:
    for spec in (DENSE, ROUTED):
        plan = plan_of(spec)
        for file in (DS_CONFIG, TRAIN):
            found = build_config(file, plan.problem, plan.layout)
            assert not {"auto", None} & {v for v in leaf_values(found) if not isinstance(v, list)}
            json.dumps(found)


def stages(plan: Plan) -> list[int]:
    found = build_config(TRAIN, plan.problem, plan.layout)["stages"]
    assert isinstance(found, list)
    return found


def test_train_json_has_the_layers_of_every_stage() -> None:
    ends = {"layout.pp": 4, "layout.first_stage_layers": 2, "layout.last_stage_layers": 3}
    assert stages(plan_of(changed(DENSE, ends))) == [2, 4, 3, 3]
    assert stages(plan_of(changed(DENSE, {"layout.pp": 3}))) == [4, 4, 4]


def test_the_default_is_the_newest_release() -> None:
    assert VERSIONS[-1] == DEFAULT


@pytest.mark.parametrize(
    ("job", "kind", "params"),
    [
        ({"steps": 20}, "WarmupCosineLR", {"total_num_steps": 20, "cos_min_ratio": 0.1}),
        (
            {"lr_decay": "linear", "min_learning_rate": 0, "lr_decay_steps": 50},
            "WarmupDecayLR",
            {"total_num_steps": 50, "warmup_max_lr": 1e-4},
        ),
        ({"lr_decay": "constant"}, "WarmupLR", {"warmup_max_lr": 1e-4}),
    ],
)
def test_the_scheduler_has_exactly_the_parameters_of_its_class(
    job: dict[str, Any], kind: str, params: dict[str, Any]
) -> None:
    changes = {f"job.{name}": value for name, value in job.items()}
    found = config(DENSE, **changes, **{"job.learning_rate": 1e-4, "job.warmup_steps": 5})
    warmup = {"warmup_num_steps": 5, "warmup_type": "linear"}
    assert found["scheduler"] == {"type": kind, "params": params | warmup}
