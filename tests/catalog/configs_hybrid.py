"""Hugging Face configs of hybrids: the relevant keys, as on the model pages."""

QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "intermediate_size": 5120,
    "max_position_embeddings": 262144,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "use_sliding_window": False,
}
QWEN3_5 = {
    "model_type": "qwen3_5_moe_text",
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "hidden_size": 4096,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15,
    "linear_num_value_heads": 64,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 1024,
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 60,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "shared_expert_intermediate_size": 1024,
}
NEMOTRON_H_8B = {
    "model_type": "nemotron_h",
    "attention_head_dim": 128,
    "expand": 2,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "max_position_embeddings": 8192,
    "num_hidden_layers": 52,
    "rms_norm_eps": 1e-05,
    "time_step_limit": [0.0, float("inf")],
    "use_mamba_kernels": True,
}
NEMOTRON_H_56B = NEMOTRON_H_8B | {
    "hidden_size": 8192,
    "hybrid_override_pattern": "M-M-M-M*-" + 9 * "M-M-M-M-M*-" + "M-M-M-M-M-",
    "intermediate_size": 32768,
    "mamba_num_heads": 256,
    "num_attention_heads": 64,
    "num_hidden_layers": 118,
    "ssm_state_size": 256,
}
NEMOTRON_3_NANO = {
    "model_type": "nemotron_h",
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_num_heads": 64,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 1856,
    "moe_latent_size": None,
    "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "routed_scaling_factor": 2.5,
}
HYBRIDS = {
    "qwen3-next-80b-a3b": QWEN3_NEXT,
    "qwen3.5-397b-a17b": QWEN3_5,
    "nemotron-h-8b": NEMOTRON_H_8B,
    "nemotron-h-56b": NEMOTRON_H_56B,
    "nemotron-3-nano-30b-a3b": NEMOTRON_3_NANO,
}
"""Name in the catalog -> config; absent keys have the default of the class."""
