"""Plans for TensorRT-LLM as commands and configuration files, and their comparison with a plan."""

from __future__ import annotations

from random import Random
from typing import Any

from ruamel.yaml import YAML

from parc.backends.shared.serving.serve_script import EngineProcess
from parc.backends.tensorrt_llm.arguments import NAME, config_text, shared_arguments
from parc.backends.tensorrt_llm.backend import BACKEND, VERSIONS
from parc.backends.tensorrt_llm.processes import plan_processes
from parc.compiler.ir import ServingPlan
from tests.conformance.tensorrt_llm.schema import Mapping, parse
from tests.conformance.vllm.specs import valid_service

Spec = dict[str, Any]
GROUPS = {"tp": "tp", "pp": "pp", "ep": "moe_ep"}
"""Column of the rank map -> name of the groups in class Mapping."""
START_FLAGS = ("--nnodes", "--node_rank", "--head")
"""Flags that start.sh reads itself."""


def valid_tensorrt_llm_service(seed: int) -> Spec:
    """Return a spec that should compile, the same one for the same seed.

    It is a spec for vLLM without the parts that TensorRT-LLM does not have.
    """
    dice = Random(f"tensorrt-llm {seed}")
    families = {"llama", "qwen3", "qwen3_moe", "deepseek_v3", "mixtral"}
    spec = next(
        tree
        for at in range(100)
        if (tree := valid_service(1000 * seed + at))["model"]["family"] in families
    )
    layout, model, version = spec["layout"], spec["model"], dice.choice(VERSIONS)
    layout.pop("dcp", None)
    layout.pop("redundant_experts", None)
    ranks = layout["tp"] * layout.get("dp", 1)
    spreads = model["family"] in ("qwen3_moe", "deepseek_v3") and dice.random() < 0.6
    layout |= {"tp": 1 if spreads else ranks, "dp": ranks if spreads else 1}
    if not spreads:
        model["heads"] = max(model["heads"], ranks)
        if "kv_heads" in model:
            model["kv_heads"] = min(model["kv_heads"], model["heads"])
    if version < "1.2.0":
        layout.pop("stage_layers", None)
    job = spec["job"]
    job.pop("quantize", None)
    job["block_tokens"] = 32 if version == "1.0.0" else dice.choice([16, 32, 64])
    if model["family"] == "deepseek_v3":
        job |= {"max_model_len": 4096, "max_num_batched_tokens": 4096}
    arguments = dice.choice([[], ["--log_level", "error"], ["--trust_remote_code"]])
    spec |= {"launch": {"args": arguments}, "versions": {NAME: version}}
    return spec | {"emit": [NAME, "rankmap"]}


def words_of(plan: ServingPlan, process: EngineProcess) -> list[str]:
    """Return the words after ``trtllm-serve serve`` for the first process of an engine."""
    words = [plan.problem.service.checkpoint]
    words += [word for argument in shared_arguments(plan) for word in argument.words]
    words += plan.problem.launch.args
    for name, value in process.flags:
        words += [] if name in START_FLAGS else [name, str(value)]
    return [*words, "--extra_llm_api_options", "config.yaml"]


def config_of(plan: ServingPlan) -> dict[str, Any]:
    """Return the parsed configuration file of the plan."""
    tree: dict[str, Any] = YAML(typ="safe", pure=True).load(config_text(plan))
    return tree


def differences(plan: ServingPlan) -> list[str]:
    """Return all differences between the plan and what TensorRT-LLM derives from its files."""
    version = plan.problem.version(NAME)
    try:
        found = parse(version, words_of(plan, plan_processes(plan)[0]), config_of(plan))
        layout = plan.layout
        ep = found["ep_size"] or 1
        mapping = Mapping(layout.engine_gpus, found["tp_size"], found["pp_size"], ep)
    except ValueError as error:
        return [str(error)]
    spreads, cache = found.get("enable_attention_dp", False), found["kv_cache_config"]
    layers = found.get("pp_partition") or mapping.pp_layers(plan.problem.model.layers)
    pairs = {
        "tp": (1 if spreads else found["tp_size"], layout.tp),
        "dp": (found["tp_size"] if spreads else 1, layout.dp),
        "ep": (ep, layout.ep),
        "max_batch_size": (found["max_batch_size"], plan.limits.max_num_seqs),
        "max_num_tokens": (found["max_num_tokens"], plan.limits.max_num_batched_tokens),
        "max_seq_len": (found["max_seq_len"], plan.limits.max_model_len),
        "share": (cache["free_gpu_memory_fraction"], plan.limits.gpu_memory_utilization),
        "block": (cache.get("tokens_per_block", 32), plan.problem.service.block_tokens),
        "cache": (cache["dtype"] == "fp8", plan.problem.service.setup.kv == "fp8"),
        "layers": (list(layers), [stage.layers for stage in plan.stages]),
        "host": (found["host"], "0.0.0.0"),
        "port": (found["port"], plan.problem.endpoint.port),
    }
    wrong = [f"{name}: {one} != {other}" for name, (one, other) in pairs.items() if one != other]
    return wrong + _different_groups(plan, mapping, spreads)


def _different_groups(plan: ServingPlan, mapping: Mapping, spreads: bool) -> list[str]:
    """Return the columns of the rank map whose groups in the first engine differ."""
    mesh = BACKEND.mesh(plan.layout)
    columns = {"dp": "tp", "pp": "pp"} if spreads else {"tp": "tp", "pp": "pp"}
    wrong = []
    for axis, name in columns.items():
        own = [one for one in mesh.groups_along(axis) if one[0] < mapping.world]
        wrong += [] if sorted(own) == sorted(mapping.groups(name)) else [f"groups of {axis}"]
    stage = sorted(mesh.groups_along("tp", "cp", "dp")) if mapping.ep > 1 else []
    first = [one for one in stage if one[0] < mapping.world]
    return wrong + ([] if not stage or first == mapping.groups("moe_ep") else ["groups of ep"])
