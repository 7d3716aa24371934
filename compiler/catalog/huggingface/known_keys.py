"""Keys of Hugging Face configs that need no reading, and what is known of the others."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    """The words of ``text``; a list of sixty strings would take sixty lines."""
    return frozenset(text.split())


UNUSED = {
    "quantization_config": "weights are in the precision that job.precision says, not in this one",
    "mtp_num_hidden_layers": "multi-token prediction is trained where model.mtp_layers asks",
    "num_mtp_modules": "multi-token prediction is trained where model.mtp_layers asks",
    "num_nextn_predict_layers": "multi-token prediction is trained where model.mtp_layers asks",
}
"""Keys that a user may expect to count, and why they do not."""

HARMLESS = _words(
    """
    _attn_implementation _name_or_path architectures attention_softmax_in_fp32 auto_map bos_token
    capacity_factor dtype eos_token ep_size
    gradient_checkpointing head_type id2label initializer_range initializer_factor is_decoder
    is_llama_config label2id max_window_layers n_ctx num_experts_to_offload output_attentions
    output_hidden_states output_router_logits pad_token pretraining_tp problem_type
    reorder_and_upcast_attn resid_pdrop attn_pdrop embd_pdrop return_dict rope_interleave
    rope_interleaved router_jitter_noise scale_attn_weights seq_aux task_specific_params
    tokenizer_class torch_dtype transformers.js_config transformers_version unsloth_version
    unsloth_fixed unsloth_tied use_bfloat16 use_cache use_mrope max_length temperature
    original_max_position_embeddings rope_theta sliding_window cache_implementation
    length_penalty num_beams num_beam_groups num_return_sequences repetition_penalty top_k top_p
    typical_p scale_attention_softmax_in_fp32 router_dtype vocab_size_multiple org_vocab_size
    use_flash_attention summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj tie_encoder_decoder attn_softmax_bf16 model_max_length
    """
)
"""Keys that change neither a shape nor what one step computes in training."""

STRUCTURAL = _words(
    """
    attention_bias attention_k_eq_v attn_output_gate block_configs enable_moe_block
    experts_per_token first_k_dense_replace full_attention_interval global_head_dim
    hidden_size_per_layer_input hybrid_override_pattern index_head_dim index_n_heads index_topk
    interleave_moe_layer_step is_encoder_decoder kv_lora_rank layer_types linear_num_key_heads
    linear_num_value_heads mamba_num_heads mlp_bias moe_intermediate_size moe_layer_freq
    moe_num_experts n_routed_experts n_shared_experts no_rope_layers num_experts
    num_experts_per_tok num_global_key_value_heads num_kv_shared_layers num_local_experts
    parallel_attn q_lora_rank qk_layernorm qk_nope_head_dim qk_rope_head_dim rotary_dim
    shared_expert_intermediate_size ssm_state_size text_config use_double_wide_mlp use_qk_norm
    use_sliding_window v_head_dim vision_config add_cross_attention
    mamba_conv_bias mamba_d_conv mamba_n_groups
    """
)
"""Keys that add, remove or reshape parameters in some family."""

UNKNOWN_FAMILIES = {
    "nemotron-nas": "every layer has its own width and may lack attention (block_configs)",
    "deci": "every layer has its own width and may lack attention (block_configs)",
    "glm_moe_dsa": "latent attention has a sparse indexer with parameters of its own",
    "deepseek_v32": "latent attention has a sparse indexer with parameters of its own",
    "afmoe": "a gate on the attention output has parameters that no field holds",
    "apertus": "its activation (xIELU) has two trained parameters a layer",
    "axk1": "a norm behind the experts of routed layers alone, which no field holds",
    "baichuan": "its code lies beside its checkpoint, in forms that differ",
    "bailing_hybrid": "linear attention alternates with attention",
    "bailing_moe_linear": "linear attention alternates with attention",
    "bitnet": "norms inside attention and MLP have parameters that no field holds",
    "bloom": "a norm after the embedding has 2 x hidden parameters that no field holds "
    "(the catalog's bloom-176b leaves it out)",
    "cwm": "the first of every four layers attends fully, and no field says the first",
    "codegen": "the output projection has a bias, and no field holds it",
    "deepseek_v4": "compressed attention has parameters of its own",
    "doge": "weighted residuals and dynamic masks have parameters that no field holds",
    "diffllama": "differential attention has parameters of its own",
    "falcon_h1": "Mamba runs beside attention in every layer",
    "falcon_mamba": "there is no attention",
    "gptj": "the output projection has a bias of vocab_size, and no field holds it",
    "jetmoe": "attention heads are experts as well",
    "kimi_linear": "linear attention alternates with latent attention",
    "lfm2": "convolutions alternate with attention",
    "lfm2_moe": "convolutions alternate with attention",
    "longcat_flash": "each layer has two attentions and experts that pass tokens on",
    "mimo_v2_flash": "full and sliding layers differ in key-value heads and head dims",
    "minimax": "linear attention alternates with attention",
    "mpt": "ALiBi positions and norms without a bias",
    "nanochat": "norms have no parameters",
    "olmo": "norms have no parameters, and every norm has some here",
    "olmo_hybrid": "linear attention alternates with attention",
    "opt": "the table of positions has two rows more than positions, and no field holds them "
    "(the catalog's opt-175b leaves them out)",
    "phimoe": "the output projection has a bias of vocab_size, and no field holds it",
    "recurrent_gemma": "recurrent layers alternate with attention layers",
    "rwkv": "there is no attention",
    "zamba2": "Mamba layers alternate with attention layers",
    "gemma4_text": "full and sliding layers differ in head dim, and keys serve as values",
    "gemma3n_text": "per-layer embeddings and shared key-value layers",
    "mamba": "there is no attention",
    "mamba2": "there is no attention",
    "jamba": "its Mamba layers are of the first kind, with a selective scan a channel",
    "bamba": "a layer is Mamba-2 or attention with an MLP behind it (a pattern can say: M-M-*-)",
    "bert": "it is an encoder",
    "t5": "it is an encoder and a decoder",
}
"""model_type -> why it is not read."""
