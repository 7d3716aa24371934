"""Tests of files emitted for the torch backends: Python parses, every setting is read."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.registry import framework
from tests.backends.torch.specs import valid_spec
from tests.compiled import (
    emitted,
    error_codes,
    files_of,
    plan_of,
    planned,
    verification_codes,
)
from tests.samples import sample_of

FRAMEWORKS = ("fsdp", "torchtitan", "accelerate")
SEEDS = range(24)


@pytest.mark.parametrize("seed", sample_of(SEEDS, 12))
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_random_valid_spec_compiles_and_verifies(name: str, seed: int) -> None:
    plan = plan_of(valid_spec(name, seed))
    files = emitted(plan)
    assert plan.problem.framework == name
    assert "torchrun/launch.sh" in files
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)


def read_keys(text: str, name: str) -> set[str]:
    """Return the top-level keys that a program reads from the mapping ``name``."""
    return set(re.findall(rf'{name}\["(\w+)"\]', text))


def test_the_fsdp_config_has_exactly_the_keys_that_the_program_reads() -> None:
    files = files_of(valid_spec("fsdp", 0))
    config = json.loads(files["fsdp/config.json"])
    read = read_keys(files["fsdp/train.py"] + files["fsdp/parallelize.py"], "CONFIG")
    read |= read_keys(files["fsdp/learning_rate.py"], "plan")
    read |= read_keys(files["fsdp/start.py"], "PLAN")
    read |= read_keys(files["fsdp/data.py"], "PLAN") | read_keys(files["fsdp/model.py"], "CONFIG")
    assert read == config.keys()
    assert read_keys(files["fsdp/model.py"], "config") == config["model"].keys()
    axes = {"dp_replicate", "dp_shard", "tp"}
    assert config["mesh"].keys() == axes


def test_the_accelerate_job_has_exactly_the_keys_that_the_program_reads() -> None:
    spec = valid_spec("accelerate", 0)
    spec["layout"] = {"zero_stage": 3}
    spec["job"]["gradient_precision"] = "bf16"
    spec.pop("launch", None)
    files = files_of(spec)
    job = json.loads(files["accelerate/job.json"])
    read = read_keys(files["accelerate/train.py"].replace("'", '"'), "JOB")
    read |= read_keys(files["accelerate/learning_rate.py"], "plan")
    read |= read_keys(files["accelerate/start.py"], "PLAN")
    read |= read_keys(files["accelerate/data.py"] + files["accelerate/hf_model.py"], "PLAN")
    # The verifier reads the number of layers from its own key for every kind of program.
    assert read | {"layers"} == job.keys()


def deepspeed_spec(layout: dict[str, Any]) -> dict[str, Any]:
    """Return a spec for Accelerate with DeepSpeed."""
    spec = valid_spec("fsdp", 0)
    return spec | {"layout": layout, "emit": ["accelerate", "deepspeed", "rankmap", "torchrun"]}


def test_accelerate_starts_deepspeed_with_its_config_file() -> None:
    layout = {"zero_stage": 3, "offload": "cpu", "recompute": "full", "micro_batch": 1}
    plan = plan_of(deepspeed_spec(layout))
    files = emitted(plan)
    assert plan.problem.framework == "deepspeed"
    assert {path for path in files if path.startswith("deepspeed/")} == {"deepspeed/ds_config.json"}
    tree = YAML(typ="safe", pure=True).load(files["accelerate/config.yaml"])
    assert tree["distributed_type"] == "DEEPSPEED"
    assert tree["deepspeed_config"]["deepspeed_config_file"] in files
    assert not {"mixed_precision", "fsdp_config", "parallelism_config"} & tree.keys()
    config = json.loads(files["deepspeed/ds_config.json"])
    assert not {"steps_per_print", "activation_checkpointing"} & config.keys()
    job = json.loads(files["accelerate/job.json"])
    assert job["gradient_checkpointing"] is True
    assert job["gradient_accumulation_steps"] == config["gradient_accumulation_steps"]
    script = files["torchrun/launch.sh"]
    assert '--deepspeed_config_file="$here/../deepspeed/ds_config.json"' in script
    assert "--machine_rank" in script


def test_help_suggests_deepspeed_for_a_strategy_that_accelerate_lacks() -> None:
    spec = deepspeed_spec({"zero_stage": 3, "offload": "cpu"}) | {"emit": ["accelerate"]}
    sink = planned(spec)[1]
    helps = [found.finding.help for found in sink.diagnostics if found.code == "PARC-E08"]
    assert any("with deepspeed it supports optimizer offload to the host" in one for one in helps)


def test_the_order_of_the_pair_does_not_matter_and_a_third_framework_is_rejected() -> None:
    spec = deepspeed_spec({"zero_stage": 2, "micro_batch": 1})
    files, turned = files_of(spec), files_of(spec | {"emit": spec["emit"][::-1]})
    digests = {"plan.json", "parc.lock"}  # they contain the digest of the spec text
    assert {path for path in files if files[path] != turned[path]} <= digests
    third = spec | {"emit": ["accelerate", "deepspeed", "megatron"]}
    assert [found.code for found in planned(third)[1].diagnostics] == ["PARC-X22"]


@pytest.mark.parametrize(
    ("file", "was", "becomes", "code"),
    [
        ("deepspeed/ds_config.json", '"train_batch_size": ', '"train_batch_size": 1', "A09"),
        ("accelerate/config.yaml", "num_processes: ", "num_processes: 1", "A05"),
        ("deepspeed/ds_config.json", "{", '{"tensor_parallel": {"autotp_size": 2},', "A05"),
        ("accelerate/train.py", "backward(", "forward(", "A18"),
    ],
)
def test_contradicting_files_of_the_pair_are_reported(
    file: str, was: str, becomes: str, code: str
) -> None:
    files = files_of(deepspeed_spec({"zero_stage": 2, "micro_batch": 1}))
    assert was in files[file]
    assert code in verification_codes(files | {file: files[file].replace(was, becomes, 1)})
    assert "A03" in verification_codes(
        {name: text for name, text in files.items() if "ds_config" not in name}
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_accelerate_config_parses_to_the_sizes_of_the_layout(seed: int) -> None:
    plan = plan_of(valid_spec("accelerate", seed))
    files = emitted(plan)
    tree = YAML(typ="safe", pure=True).load(files["accelerate/config.yaml"])
    layout = plan.layout
    assert tree["num_processes"] == layout.world
    if layout.zero_stage:
        mesh = tree["parallelism_config"]
        assert mesh["parallelism_config_dp_shard_size"] == layout.dp_shard
        assert mesh["parallelism_config_tp_size"] == layout.tp
        assert tree["fsdp_config"]["fsdp_reshard_after_forward"] is (layout.zero_stage == 3)
    else:
        assert tree["distributed_type"] == "MULTI_GPU"
        assert "parallelism_config" not in tree


def test_a_user_program_gets_the_mesh_but_no_model() -> None:
    spec = valid_spec("fsdp", 0) | {"launch": {"program": "my train.py", "args": ["--a b"]}}
    spec["model"] = "mixtral-8x7b"
    spec["layout"] = {"micro_batch": 1}
    spec["cluster"]["nodes"] = 8
    spec["job"]["global_batch"] = 64
    plan = plan_of(spec)
    files = emitted(plan)
    assert {path for path in files if path.startswith("fsdp/")} == {
        "fsdp/config.json",
        "fsdp/parallelize.py",
    }
    assert "model" not in json.loads(files["fsdp/config.json"])
    command = framework("fsdp").launch_command(plan)
    assert command.program == "'my train.py'"
    assert command.args == "'--a b'"
    assert "PYTHONPATH" in command.setup[0]


def test_text_of_the_spec_is_escaped_in_the_torchtitan_module() -> None:
    hostile = "a\"b'c\\d\n{{ e }} é"
    spec = valid_spec("torchtitan", 0)
    spec["job"] |= {"data": [hostile], "checkpoint_dir": hostile, "tokenizer_model": hostile}
    files = files_of(spec)
    tree = ast.parse(files["torchtitan/parc_titan.py"])
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert texts.count(hostile) == 3
    assert files["torchtitan/parc_titan.py"].isascii()


def test_accelerate_trains_the_default_job_with_gradients_in_fp32() -> None:
    spec = valid_spec("accelerate", 4) | {"layout": {}}
    spec["job"] = {"sequence_length": 2048, "global_batch": 64}
    spec.pop("launch", None)
    files = files_of(spec)
    assert json.loads(files["accelerate/job.json"])["reduce_dtype"] == "fp32"
    assert "distributed_type: FSDP\n" in files["accelerate/config.yaml"]
    own = {"launch": {"program": "train.py"}, "layout": {"zero_stage": 3}}
    assert "E11" in error_codes(spec | own)
