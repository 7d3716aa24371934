"""Fields of Megatron-Bridge's ConfigContainer as the flags of Megatron-LM that mean the same.

Both configure the same classes of Megatron-Core, so that the verifier of Megatron-LM's arguments
can check the fields. The tables repeat the dataclasses of Megatron-Bridge, not the table of the
emitter. Source: Megatron-Bridge 0.6.2, training/config.py and models/gpt_provider.py;
Megatron-Core 0.19.2, training/config, transformer/transformer_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from parc.compiler.verify.verify_settings import EmittedSettings

MODEL, PRECISION, OVERLAP = "model.", "mixed_precision.", "comm_overlap."

NAMED: dict[str, str] = {
    f"{MODEL}{field}": field.replace("_", "-")
    for field in (
        *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels"),
        *("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
        *("window_attn_skip_freq", "softmax_type", "glu_linear_offset", "normalization"),
        *("activation_func_clamp_value", "init_method_std", "position_embedding_type"),
        *("rotary_base", "rotary_percent", "rope_scaling_factor", "vocab_size"),
        *("attention_dropout", "hidden_dropout", "make_vocab_size_divisible_by"),
        *("mtp_num_layers", "mtp_loss_scaling_factor", "moe_ffn_hidden_size"),
        *("moe_shared_expert_intermediate_size", "moe_latent_size", "moe_router_topk"),
        "moe_router_score_function",
        *("moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor"),
        *("moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_router_dtype"),
        *("moe_token_dispatcher_type", "moe_flex_dispatcher_backend"),
        *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
        *("expert_model_parallel_size", "expert_tensor_parallel_size", "cp_comm_type"),
        *("pipeline_model_parallel_layout", "recompute_granularity", "recompute_method"),
        *("recompute_num_layers", "recompute_modules", "offload_modules", "moe_layer_freq"),
        "moe_latent_size",
        *("hierarchical_context_parallel_sizes", "attention_backend", "transformer_impl"),
    )
} | {
    f"{MODEL}layernorm_epsilon": "norm-epsilon",
    f"{MODEL}seq_len_interpolation_factor": "rotary-seq-len-interpolation-factor",
    f"{MODEL}num_moe_experts": "num-experts",
    f"{MODEL}num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    f"{MODEL}num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
    f"{MODEL}seq_length": "seq-length",
    "train.train_iters": "train-iters",
    "train.global_batch_size": "global-batch-size",
    "train.micro_batch_size": "micro-batch-size",
    "train.manual_gc_interval": "manual-gc-interval",
    "validation.eval_iters": "eval-iters",
    "optimizer.lr": "lr",
    "optimizer.min_lr": "min-lr",
    "optimizer.weight_decay": "weight-decay",
    "optimizer.adam_beta1": "adam-beta1",
    "optimizer.adam_beta2": "adam-beta2",
    "optimizer.adam_eps": "adam-eps",
    "optimizer.clip_grad": "clip-grad",
    "scheduler.lr_decay_style": "lr-decay-style",
    "scheduler.lr_decay_iters": "lr-decay-iters",
    "scheduler.lr_wsd_decay_style": "lr-wsd-decay-style",
    "scheduler.lr_wsd_decay_iters": "lr-wsd-decay-iters",
    "scheduler.lr_warmup_fraction": "lr-warmup-fraction",
    "scheduler.lr_warmup_iters": "lr-warmup-iters",
    "ddp.num_distributed_optimizer_instances": "num-distributed-optimizer-instances",
    "ddp.data_parallel_sharding_strategy": "data-parallel-sharding-strategy",
    f"{PRECISION}fp8": "fp8-format",
    f"{PRECISION}fp8_recipe": "fp8-recipe",
    f"{PRECISION}fp8_amax_history_len": "fp8-amax-history-len",
    f"{PRECISION}fp8_amax_compute_algo": "fp8-amax-compute-algo",
    f"{PRECISION}fp4": "fp4-format",
    f"{PRECISION}fp4_recipe": "fp4-recipe",
    "dataset.data_path": "data-path",
    "dataset.split": "split",
    "tokenizer.tokenizer_type": "tokenizer-type",
    "tokenizer.tokenizer_model": "tokenizer-model",
    "checkpoint.save": "save",
    "checkpoint.save_interval": "save-interval",
    "checkpoint.async_strategy": "async-strategy",
    "checkpoint.ckpt_format": "ckpt-format",
    "logger.log_interval": "log-interval",
    "logger.tensorboard_dir": "tensorboard-dir",
    "logger.wandb_project": "wandb-project",
    "logger.wandb_exp_name": "wandb-exp-name",
    "logger.wandb_save_dir": "wandb-save-dir",
    "profiling.profile_step_start": "profile-step-start",
    "profiling.profile_step_end": "profile-step-end",
    "profiling.profile_ranks": "profile-ranks",
    "rng.seed": "seed",
    "dist.distributed_timeout_minutes": "distributed-timeout-minutes",
}
"""Field -> flag with the same value."""

LATENT = {
    f"{MODEL}rope_type": "rope-type",
    f"{MODEL}rotary_scaling_factor": "rotary-scaling-factor",
    f"{MODEL}mscale": "mscale",
    f"{MODEL}mscale_all_dim": "mscale-all-dim",
}
"""Fields of MLAModelProvider, the counterparts of ``PLAIN``."""
PLAIN = {
    f"{MODEL}yarn_rotary_scaling_factor": "rotary-scaling-factor",
    f"{MODEL}yarn_mscale": "mscale",
    f"{MODEL}yarn_mscale_all_dim": "mscale-all-dim",
    f"{MODEL}yarn_original_max_position_embeddings": "yarn-original-max-position-embeddings",
}
"""Fields of GPTModelProvider that MLAModelProvider ignores."""

SWITCHES: dict[str, str] = {
    f"{MODEL}{field}": field.replace("_", "-")
    for field in (
        *("multi_latent_attention", "attention_output_gate", "qk_layernorm", "add_qkv_bias"),
        *("moe_shared_expert_gate", "moe_router_pre_softmax", "moe_router_enable_expert_bias"),
        *("moe_router_fusion", "moe_router_force_load_balancing", "moe_grouped_gemm"),
        *("moe_permute_fusion", "moe_shared_expert_overlap", "sequence_parallel"),
        *("moe_router_padding_for_quantization", "account_for_embedding_in_pipeline_split"),
        *("account_for_loss_in_pipeline_split", "fine_grained_activation_offloading"),
        "cross_entropy_loss_fusion",
    )
} | {
    f"{MODEL}rope_scaling": "use-rope-scaling",
    f"{OVERLAP}tp_comm_overlap": "tp-comm-overlap",
    f"{OVERLAP}overlap_moe_expert_parallel_comm": "overlap-moe-expert-parallel-comm",
    f"{OVERLAP}delay_wgrad_compute": "delay-wgrad-compute",
    "train.manual_gc": "manual-gc",
    "train.exit_signal_handler": "exit-signal-handler",
    "optimizer.use_precision_aware_optimizer": "use-precision-aware-optimizer",
    f"{PRECISION}bf16": "bf16",
    f"{PRECISION}fp16": "fp16",
    f"{PRECISION}fp8_param_gather": "fp8-param-gather",
    f"{PRECISION}fp4_param_gather": "fp4-param-gather",
    f"{PRECISION}reuse_grad_buf_for_mxfp8_param_ag": "reuse-grad-buf-for-mxfp8-param-ag",
    "checkpoint.async_save": "async-save",
    "logger.log_throughput": "log-throughput",
    "profiling.use_nsys_profiler": "profile",
    f"{MODEL}init_model_with_meta_device": "init-model-with-meta-device",
    "ddp.use_megatron_fsdp": "use-megatron-fsdp",
    "dist.use_tp_pp_dp_mapping": "use-tp-pp-dp-mapping",
}
"""Field -> flag that is given if the field is true."""
OPPOSITES = {
    f"{MODEL}add_bias_linear": "disable-bias-linear",
    f"{MODEL}share_embeddings_and_output_weights": "untie-embeddings-and-output-weights",
    f"{MODEL}apply_rope_fusion": "no-rope-fusion",
    f"{MODEL}bias_dropout_fusion": "no-bias-dropout-fusion",
    f"{MODEL}gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
}
"""Field -> flag that is given if the field is false."""
DTYPES = {
    "optimizer.exp_avg_dtype": "exp-avg-dtype",
    "optimizer.exp_avg_sq_dtype": "exp-avg-sq-dtype",
    "ddp.megatron_fsdp_main_grads_dtype": "megatron-fsdp-main-grads-dtype",
}
"""Field with a torch dtype -> flag."""
TORCH = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
"""Name of a torch dtype -> name in flags."""

COMPOSED = {
    "swiglu": f"{MODEL}activation_func",
    "quick-geglu": f"{MODEL}activation_func",
    "squared-relu": f"{MODEL}activation_func",
    "no-bias-gelu-fusion": f"{MODEL}bias_activation_fusion",
    "num-query-groups": f"{MODEL}num_query_groups",
    "group-query-attention": f"{MODEL}num_query_groups",
    "window-size": f"{MODEL}window_size",
    "num-virtual-stages-per-pipeline-rank": f"{MODEL}virtual_pipeline_model_parallel_size",
    "grad-reduce-in-bf16": f"{PRECISION}grad_reduce_in_fp32",
    "use-distributed-optimizer": "ddp.use_distributed_optimizer",
    "overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "overlap-param-gather": "ddp.overlap_param_gather",
    "mock-data": "dataset.data_path",
    "load": "checkpoint.load",
    "pretrained-checkpoint": "checkpoint.pretrained_checkpoint",
    "exit-on-missing-checkpoint": "checkpoint.load",
    "finetune": "checkpoint.finetune",
    "use-persistent-ckpt-worker": "checkpoint.use_persistent_ckpt_worker",
}
"""Flag that follows from several fields, or from a value in another notation -> main field."""
FIELD_OF_FLAG = {
    **{
        flag: field
        for table in (PLAIN, LATENT, NAMED, SWITCHES, OPPOSITES, DTYPES)
        for field, flag in table.items()
    },
    **COMPOSED,
}
"""Flag -> field, for findings."""

CONSTANTS: Mapping[str, Any] = {
    f"{MODEL}attention_softmax_in_fp32": False,
    f"{MODEL}deallocate_pipeline_outputs": True,
    f"{MODEL}should_pad_vocab": True,
}
"""Field without a flag -> value that Megatron-LM's programs always use."""
YARN: Mapping[str, Any] = {
    f"{MODEL}yarn_beta_fast": 32.0,
    f"{MODEL}yarn_beta_slow": 1.0,
    f"{MODEL}yarn_correction_range_round_to_int": True,
}
"""Field of YaRN without a flag -> Megatron-LM's default, where GPTModelProvider has None."""
REQUIRED = (
    *(f"{MODEL}multi_latent_attention", f"{MODEL}add_bias_linear", f"{MODEL}apply_rope_fusion"),
    *(f"{MODEL}share_embeddings_and_output_weights", f"{MODEL}cross_entropy_loss_fusion"),
    *(f"{MODEL}bias_activation_fusion", f"{MODEL}bias_dropout_fusion", f"{MODEL}activation_func"),
    *(f"{MODEL}gated_linear_unit", f"{PRECISION}bf16", f"{PRECISION}grad_reduce_in_fp32"),
    *(f"{PRECISION}params_dtype", f"{PRECISION}pipeline_dtype"),
    *(f"{OVERLAP}{name}" for name in ("overlap_p2p_comm", "batch_p2p_comm")),
    *(f"{OVERLAP}{name}" for name in ("overlap_grad_reduce", "overlap_param_gather")),
    *(f"{OVERLAP}align_param_gather", "ddp.check_for_nan_in_grad"),
    f"{MODEL}gradient_accumulation_fusion",
)
"""Fields whose default depends on the provider, or is not the default of the flag."""
DEPENDENT = (
    (f"{MODEL}rope_scaling", f"{MODEL}rope_scaling_factor", "1.0"),
    (f"{PRECISION}fp8", f"{PRECISION}fp8_recipe", "tensorwise"),
)
"""(field, second field, default of the second field that is relevant if the first is set)."""


def plain_text(value: Any) -> Any:
    """Return ``value`` with the texts that OmegaConf reads from it; None if it would expand one."""
    if isinstance(value, list):
        read = [plain_text(one) for one in value]
        return None if None in read else read
    if not isinstance(value, str):
        return value
    found = [len(match[1]) for match in re.finditer(r"(\\*)\$\{", value)]
    if any(length % 2 == 0 for length in found):
        return None
    return re.sub(r"(\\*)\\\$\{", lambda match: match[1][: len(match[1]) // 2] + "${", value)


def command_line_words(value: Any) -> tuple[str, ...]:
    """Return the command-line words of a value."""
    if isinstance(value, list):
        return tuple(str(one) for one in value)
    return (str(value),)


def same_value_flags(settings: EmittedSettings) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (flag, field, words) for each field that is set by one flag."""
    own = LATENT if settings.get(f"{MODEL}multi_latent_attention") is True else PLAIN
    for field, flag in (NAMED | own).items():
        value = plain_text(settings.get(field))
        if field in settings and value is not None:
            words = (str(value),) if flag == "moe-layer-freq" else command_line_words(value)
            yield flag, field, words
    for field, flag in (SWITCHES | OPPOSITES).items():
        value = settings.get(field)
        if field in settings and value is not (field in OPPOSITES):
            yield flag, field, () if isinstance(value, bool) else command_line_words(value)
    for field, flag in DTYPES.items():
        if (value := settings.get(field)) is not None:
            yield flag, field, (TORCH.get(str(value), str(value)),)
    for field, second, default in DEPENDENT:
        if settings.get(field) and second not in settings:
            yield FLAG_OF_FIELD[second], field, (default,)


FLAG_OF_FIELD = {field: flag for flag, field in FIELD_OF_FLAG.items()}
"""Field -> flag."""
