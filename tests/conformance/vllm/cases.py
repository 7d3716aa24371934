"""Serving plans as cases for the checking program of vLLM: commands, environment, config.json."""

from __future__ import annotations

from typing import Any

from parc.backends.shared.serving.serve_script import EngineProcess, HostAddress
from parc.backends.vllm.arguments import shared_arguments
from parc.backends.vllm.environment import PARTITION, serving_environment
from parc.backends.vllm.processes import plan_processes
from parc.compiler.ir import Model, ServingPlan
from tests.conformance.tool_checkers import vllm_gpu

Case = dict[str, Any]
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
}


def config_of(model: Model, precision: str = "bf16") -> dict[str, Any]:
    """Return the config.json of a checkpoint of ``model``."""
    attention, position = model.attention, model.position
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[model.family]],
        "model_type": model.family,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn.size or 4 * model.hidden,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.kv_heads,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocab,
        "max_position_embeddings": position.max_positions,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": position.base,
        "torch_dtype": "float16" if precision == "fp16" else "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": model.tied_embeddings,
    }
    if attention.latent is None:
        config["head_dim"] = attention.head_dim
    config |= _expert_keys(model) | _latent_keys(model) | _scaling_keys(model)
    config |= _recurrent_keys(model)
    if precision == "fp8":
        fp8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8"}
        blocks = {} if model.mamba else {"weight_block_size": [128, 128]}
        config["quantization_config"] = fp8 | blocks
    return config


def _expert_keys(model: Model) -> dict[str, Any]:
    experts = model.experts
    if experts is None:
        return {}
    if model.family == "mixtral":
        return {
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.top_k,
            "intermediate_size": experts.size,
            "sliding_window": None,
        }
    own = {"moe_intermediate_size": experts.size, "num_experts_per_tok": experts.top_k}
    if model.family in ("qwen3_moe", "qwen3_next"):
        return {
            **own,
            "num_experts": experts.count,
            "shared_expert_intermediate_size": experts.shared_size,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return {
        **own,
        "n_routed_experts": experts.count,
        "n_shared_experts": max(experts.shared_size // experts.size, 1),
        "n_group": experts.groups,
        "topk_group": experts.group_top_k,
        "first_k_dense_replace": model.layers - model.moe_layers,
        "moe_layer_freq": 1,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": experts.scaling_factor,
    }


def _recurrent_keys(model: Model) -> dict[str, Any]:
    """Return the keys for the linear attention of Qwen3-Next, or the Mamba layers and pattern of
    Nemotron-H.
    """
    linear, mamba = model.linear, model.mamba
    if linear is not None:
        return {
            "full_attention_interval": linear.full_attention_every,
            "linear_num_key_heads": linear.key_heads,
            "linear_num_value_heads": linear.value_heads,
            "linear_key_head_dim": linear.key_dim,
            "linear_value_head_dim": linear.value_dim,
            "linear_conv_kernel_dim": linear.conv_size,
        }
    if mamba is None:
        return {}
    return {
        "hybrid_override_pattern": model.pattern,
        "mamba_num_heads": mamba.heads,
        "mamba_head_dim": mamba.head_dim,
        "ssm_state_size": mamba.state_size,
        "n_groups": mamba.groups,
        "conv_kernel": mamba.conv_size,
        "layer_norm_epsilon": model.norm_epsilon,
        "mlp_hidden_act": "relu2",
        "n_shared_experts": 1 if model.experts and model.experts.shared_size else 0,
        "moe_shared_expert_intermediate_size": model.experts.shared_size if model.experts else 0,
    }


def _latent_keys(model: Model) -> dict[str, Any]:
    latent = model.attention.latent
    if latent is None:
        return {}
    return {
        "kv_lora_rank": latent.kv_lora_rank,
        "q_lora_rank": latent.q_lora_rank,
        "qk_nope_head_dim": latent.qk_nope_dim,
        "qk_rope_head_dim": latent.qk_rope_dim,
        "v_head_dim": latent.v_dim,
    }


def _scaling_keys(model: Model) -> dict[str, Any]:
    position = model.position
    if position.scaling == "none":
        return {}
    scaling: dict[str, Any] = {
        "rope_type": position.scaling,
        "factor": position.scaling_factor,
        "original_max_position_embeddings": position.original_max_positions,
    }
    if position.scaling == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return {"rope_scaling": scaling}


def words_of(plan: ServingPlan, process: EngineProcess) -> list[str]:
    """Return the words after `vllm serve` for one process of the plan."""
    words = [plan.problem.service.checkpoint]
    words += [word for argument in shared_arguments(plan) for word in argument.words]
    for name, value in process.flags:
        words.append(name)
        if isinstance(value, HostAddress):
            words.append(plan.placement.hosts[value.node].name)
        elif value is not None:
            words.append(str(value))
    return [*words, *plan.problem.launch.args]


def cases_of(plan: ServingPlan, groups: bool = True) -> list[tuple[EngineProcess, Case]]:
    """Return cases of the first and the last process of the first engine, and of the last process
    of the plan.
    """
    running = plan_processes(plan)
    first = [process for process in running if process.replica == 0]
    chosen = {id(process): process for process in (first[0], first[-1], running[-1])}
    return [
        (process, case_of(plan, process, groups and process is first[0]))
        for process in chosen.values()
    ]


def case_of(plan: ServingPlan, process: EngineProcess, groups: bool) -> Case:
    """Return a case for one process; ``groups`` requests the groups of its engine."""
    problem = plan.problem
    partition = {name: value for name, value, _ in serving_environment(plan) if name == PARTITION}
    setup = problem.service.setup
    blocks = "fp8" if setup.weights == "fp8" and not problem.service.quantize else setup.weights
    return {
        "name": f"{problem.name} node {process.node} engine {process.replica}",
        "argv": words_of(plan, process),
        "env": partition,
        "gpu": vllm_gpu(problem.cluster.gpu),
        "gpus_per_node": len(process.devices),
        "config": config_of(problem.model, blocks),
        "groups": groups,
    }


def differences(plan: ServingPlan, process: EngineProcess, verdict: dict[str, Any]) -> list[str]:
    """Return all differences between vLLM's verdict and the plan."""
    if not verdict["accepted"]:
        return [f"rejected at {verdict['stage']}: {verdict['error'][:300]}"]
    layout, limits = plan.layout, plan.limits
    wanted: dict[str, Any] = {
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "pcp": layout.pcp,
        "dcp": layout.dcp,
        "ep": layout.ep,
        "max_model_len": limits.max_model_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "gpu_memory_utilization": limits.gpu_memory_utilization,
        "block_size": plan.problem.service.block_tokens,
        "pp_layers": [stage.layers for stage in plan.stages],
    }
    sizes = verdict["sizes"]
    found = [
        f"{name}: vLLM {sizes.get(name)}, PARC {value}"
        for name, value in wanted.items()
        if sizes.get(name) != value
    ]
    expected = _planned_ranks(plan, process)
    if process.ports and len(process.ports) > 1:
        return found  # a supervisor, which starts engines of one rank each
    if sizes["node_ranks"] != expected:
        found.append(f"ranks: vLLM {sizes['node_ranks']}, PARC {expected}")
    return found + _group_differences(plan, verdict)


def _planned_ranks(plan: ServingPlan, process: EngineProcess) -> list[int]:
    """Return the ranks of the engine on the GPUs of this process, from the rank map."""
    first = process.node * plan.placement.ranks_per_node
    base = process.replica * plan.layout.engine_gpus
    return [first + device - base for device in process.devices]


def _group_differences(plan: ServingPlan, verdict: dict[str, Any]) -> list[str]:
    if "groups" not in verdict:
        return []
    mesh, gpus = plan.placement.dense, plan.layout.engine_gpus
    found = []
    for family in plan.placement.families:
        name = {"cp": "pcp"}.get(family.name, family.name)
        theirs = verdict["groups"].get(name)
        if family.name == "replica" or theirs is None:
            continue
        ours = [sorted(group) for group in mesh.groups_along(*family.axes) if max(group) < gpus]
        if sorted(map(sorted, theirs)) != sorted(ours):
            found.append(f"groups {name}: vLLM {theirs[:3]}, PARC {ours[:3]}")
    return found
