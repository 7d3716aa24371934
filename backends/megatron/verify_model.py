"""Settings of the model in Megatron's arguments, and the fields of ``plan.json`` for comparison.

Each row of ``SHOWN`` reads a field of the plan from the flags. Some flags do not determine a field:
for these, a row of ``IMPLIED`` computes the value that the flag must have from fields of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.backends.megatron.verify_flags import ParsedFlags
from parc.backends.megatron.verify_plan_fields import PlanFields

MODEL = "problem.model"
ATTENTION, POSITION = f"{MODEL}.attention", f"{MODEL}.position"
LINEAR, MAMBA, EXPERTS = f"{MODEL}.linear", f"{MODEL}.mamba", f"{MODEL}.experts"

Shown = tuple[str, str, Callable[[ParsedFlags], Any]]
"""(plan path, flag that determines the value at this path, function that returns this value)."""
Implied = tuple[str, str, Callable[[PlanFields], Any]]
"""(flag, plan path on which the flag depends most, function that computes the value of the
flag)."""


def flag_reader(flag: str) -> Callable[[ParsedFlags], Any]:
    """Return a function that reads the value of ``--flag`` from the emitted command."""
    return lambda settings: settings[flag]


def rows_of_flags(prefix: str, flags: dict[str, str]) -> tuple[Shown, ...]:
    """Return one table row for each plan field whose value equals the value of a flag.

    ``flags`` maps the name of a field to the flag. ``prefix`` is the plan path that contains the
    fields.
    """
    return tuple((f"{prefix}.{name}", flag, flag_reader(flag)) for name, flag in flags.items())


def _key_value_heads(settings: ParsedFlags) -> Any:
    grouped = settings["group-query-attention"]
    return settings["num-query-groups" if grouped else "num-attention-heads"]


def _attention_window(settings: ParsedFlags) -> Any:
    pair = settings["window-size"]
    # The window of TransformerEngine excludes the token itself. Any second number but 0 would
    # let tokens attend to later ones, which no plan does.
    return pair[0] + 1 if isinstance(pair, tuple) and pair[1] == 0 else pair


def _experts_per_layer(settings: ParsedFlags) -> Any:
    """Return a list with True for each layer that has experts (get_gpt_decoder_layer_specs)."""
    layers, frequency = settings["num-layers"], settings["moe-layer-freq"]
    letters = settings["hybrid-layer-pattern"]
    if isinstance(letters, str):
        return [letter == "E" for letter in letters.replace("|", "")]
    if isinstance(frequency, list):
        return [bool(one) for one in frequency] if set(frequency) <= {0, 1} else frequency
    if not isinstance(layers, int) or layers > 10**6 or not isinstance(frequency, int | None):
        return frequency
    return [layer % (frequency or 1) == 0 for layer in range(layers)]


def _activation(fields: PlanFields) -> Any:
    return fields[f"{MODEL}.ffn.activation"]


SHOWN: tuple[Shown, ...] = (
    *rows_of_flags(MODEL, {"layers": "num-layers", "hidden": "hidden-size", "vocab": "vocab-size"}),
    *rows_of_flags(MODEL, {"norm_epsilon": "norm-epsilon"}),
    (
        f"{MODEL}.init_std",
        "init-method-std",
        # Absent from a plan, it is the default of the parser.
        lambda s: s["init-method-std"] if s.text("init-method-std") else None,
    ),
    *rows_of_flags(ATTENTION, {"heads": "num-attention-heads", "head_dim": "kv-channels"}),
    *rows_of_flags(ATTENTION, {"gate": "attention-output-gate"}),
    (f"{ATTENTION}.window", "window-size", _attention_window),
    (
        f"{ATTENTION}.sinks",
        "softmax-type",
        lambda s: {"learnable": True, "vanilla": False}.get(s["softmax-type"], s["softmax-type"]),
    ),
    (
        f"{MODEL}.norm",
        "normalization",
        lambda s: (
            str(s["normalization"]).lower()
            if s["normalization"] in ("RMSNorm", "LayerNorm")
            else s["normalization"]
        ),
    ),
    (
        f"{MODEL}.tied_embeddings",
        "untie-embeddings-and-output-weights",
        lambda s: s["untie-embeddings-and-output-weights"] is False,
    ),
    (f"{MODEL}.mtp_layers", "mtp-num-layers", lambda s: s["mtp-num-layers"] or 0),
    (
        f"{MODEL}.pattern",
        "hybrid-layer-pattern",
        lambda s: str(s["hybrid-layer-pattern"] or "").replace("|", ""),
    ),
)
"""Rows for the fields that every model has."""

SHOWN_GROUPED: tuple[Shown, ...] = (
    (f"{ATTENTION}.kv_heads", "num-query-groups", _key_value_heads),
)
"""Rows for the fields of models with grouped-query attention."""
SHOWN_LATENT = rows_of_flags(
    f"{ATTENTION}.latent",
    {
        "q_lora_rank": "q-lora-rank",
        "kv_lora_rank": "kv-lora-rank",
        "qk_nope_dim": "qk-head-dim",
        "qk_rope_dim": "qk-pos-emb-head-dim",
        "v_dim": "v-head-dim",
    },
)
"""Rows for the fields of models with multi-head latent attention."""
SHOWN_LINEAR = rows_of_flags(
    LINEAR,
    {
        "full_attention_every": "linear-attention-freq",
        "key_heads": "linear-num-key-heads",
        "value_heads": "linear-num-value-heads",
        "key_dim": "linear-key-head-dim",
        "value_dim": "linear-value-head-dim",
        "conv_size": "linear-conv-kernel-dim",
    },
)
"""Rows for the fields of models with linear attention."""
SHOWN_MAMBA = rows_of_flags(
    MAMBA,
    {
        "heads": "mamba-num-heads",
        "head_dim": "mamba-head-dim",
        "state_size": "mamba-state-dim",
        "groups": "mamba-num-groups",
    },
)
"""Rows for the fields of models with Mamba layers."""
SHOWN_EXPERTS: tuple[Shown, ...] = (
    *rows_of_flags(
        EXPERTS,
        {
            "count": "num-experts",
            "size": "moe-ffn-hidden-size",
            "top_k": "moe-router-topk",
            "score_function": "moe-router-score-function",
            "pre_softmax": "moe-router-pre-softmax",
            "shared_gate": "moe-shared-expert-gate",
            "aux_loss_coefficient": "moe-aux-loss-coeff",
        },
    ),
    (
        f"{EXPERTS}.shared_size",
        "moe-shared-expert-intermediate-size",
        lambda s: s["moe-shared-expert-intermediate-size"] or 0,
    ),
    (f"{EXPERTS}.latent_size", "moe-latent-size", lambda s: s["moe-latent-size"] or 0),
    (
        f"{EXPERTS}.scaling_factor",
        "moe-router-topk-scaling-factor",
        lambda s: s["moe-router-topk-scaling-factor"] or 1.0,
    ),
    (f"{EXPERTS}.pattern", "moe-layer-freq", _experts_per_layer),
)
"""Rows for the fields of models with experts."""


def _load_balancing(fields: PlanFields) -> Any:
    if fields[f"{EXPERTS}.aux_loss_coefficient"] == 0:
        return "none"
    return "seq_aux_loss" if fields[f"{EXPERTS}.router_bias"] == "buffer" else "aux_loss"


def _router_group_field(name: str) -> Callable[[PlanFields], Any]:
    # A single group restricts nothing, and Megatron has no such router.
    return lambda f: f[f"{EXPERTS}.{name}"] if f[f"{EXPERTS}.groups"] > 1 else None


def _grouped_gemm(fields: PlanFields) -> bool:
    # validate_args: compute capability 8.0; ROCm reports 9.x.
    gpu = fields["problem.cluster.gpu"]
    return bool(gpu["vendor"] == "amd" or gpu["compute_capability"] >= [8, 0])


def _fused_kernels(fields: PlanFields) -> bool:
    return _grouped_gemm(fields) and fields["problem.cluster.gpu"]["vendor"] == "nvidia"


IMPLIED_EXPERTS: tuple[Implied, ...] = (
    ("moe-router-num-groups", f"{EXPERTS}.groups", _router_group_field("groups")),
    ("moe-router-group-topk", f"{EXPERTS}.group_top_k", _router_group_field("group_top_k")),
    (
        "moe-router-enable-expert-bias",
        f"{EXPERTS}.router_bias",
        lambda f: f[f"{EXPERTS}.router_bias"] == "buffer",
    ),
    ("moe-router-load-balancing-type", f"{EXPERTS}.aux_loss_coefficient", _load_balancing),
    ("moe-router-dtype", f"{EXPERTS}.count", lambda _: "fp32"),
    ("moe-grouped-gemm", f"{EXPERTS}.count", _grouped_gemm),
    *(
        (flag, f"{EXPERTS}.count", _fused_kernels)
        for flag in ("moe-permute-fusion", "moe-router-fusion")
    ),
)
"""Rows for the flags of models with experts."""


def _value_if_rope_scaled(kind: str, path: str) -> Callable[[PlanFields], Any]:
    """Return a function that reads the plan value at ``path``.

    The function returns None if the plan's position scaling is not ``kind``.
    """
    return lambda f: f[path] if f[f"{POSITION}.scaling"] == kind else None


def _value_if_yarn(path: str, default: float) -> Callable[[PlanFields], Any]:
    return lambda f: f[path] if f.is_yarn else default


def _position_type(fields: PlanFields) -> str:
    kind = fields[f"{POSITION}.kind"]
    # With latent attention, the type of the rotary positions is --rope-type.
    if fields.is_yarn:
        return "rope" if fields.latent else "yarn"
    return "learned_absolute" if kind == "learned" else str(kind)


def _is_rotary(fields: PlanFields) -> bool:
    return fields[f"{POSITION}.kind"] in ("rope", "yarn")


def _original_positions(fields: PlanFields) -> Any:
    # The flag exists since 0.19. Latent attention has a constant instead.
    shown = fields.is_yarn and not fields.latent and fields.version >= (0, 19)
    return fields[f"{POSITION}.original_max_positions"] if shown else None


def _dense_width(fields: PlanFields) -> Any:
    # Without a dense layer, the flag still sets a width, which must not be 4 x hidden.
    return fields[f"{MODEL}.ffn.size"] or fields[f"{EXPERTS}.size"]


IMPLIED: tuple[Implied, ...] = (
    ("ffn-hidden-size", f"{MODEL}.ffn.size", _dense_width),
    (
        "group-query-attention",
        f"{ATTENTION}.kv_heads",
        lambda f: not f.latent and f[f"{ATTENTION}.kv_heads"] != f[f"{ATTENTION}.heads"],
    ),
    (
        "qk-layernorm",
        f"{ATTENTION}.qk_norm",
        lambda f: f.latent or f[f"{ATTENTION}.qk_norm"] == "head",
    ),
    (
        "window-attn-skip-freq",
        f"{ATTENTION}.full_attention_every",
        lambda f: (
            (f[f"{ATTENTION}.full_attention_every"] or None) if f[f"{ATTENTION}.window"] else None
        ),
    ),
    ("disable-bias-linear", f"{ATTENTION}.output_bias", lambda f: not f.biased),
    (
        "add-qkv-bias",
        f"{ATTENTION}.qkv_bias",
        lambda f: f[f"{ATTENTION}.qkv_bias"] and not f.biased,
    ),
    (
        "swiglu",
        f"{MODEL}.ffn.gated",
        lambda f: f[f"{MODEL}.ffn.gated"] and _activation(f) == "silu",
    ),
    ("quick-geglu", f"{MODEL}.ffn.activation", lambda f: _activation(f) == "clamped_silu"),
    # gpt-oss: x * sigmoid(1.702 x) * (y + 1), both clamped to 7.
    (
        "glu-linear-offset",
        f"{MODEL}.ffn.activation",
        lambda f: 1.0 if _activation(f) == "clamped_silu" else 0.0,
    ),
    (
        "activation-func-clamp-value",
        f"{MODEL}.ffn.activation",
        lambda f: 7.0 if _activation(f) == "clamped_silu" else None,
    ),
    ("squared-relu", f"{MODEL}.ffn.activation", lambda f: _activation(f) == "relu2"),
    # The fused kernel of bias and GELU computes the tanh form.
    (
        "no-bias-gelu-fusion",
        f"{MODEL}.ffn.activation",
        lambda f: f.biased and _activation(f) in ("gelu", "relu2"),
    ),
    ("no-bias-dropout-fusion", f"{ATTENTION}.output_bias", lambda f: f.biased and f.routed),
    ("position-embedding-type", f"{POSITION}.kind", _position_type),
    (
        "rotary-base",
        f"{POSITION}.base",
        lambda f: f[f"{POSITION}.base"] if _is_rotary(f) else 10000,
    ),
    (
        "rotary-percent",
        f"{POSITION}.percent",
        lambda f: f[f"{POSITION}.percent"] if _is_rotary(f) and not f.latent else 1.0,
    ),
    (
        "use-rope-scaling",
        f"{POSITION}.scaling",
        lambda f: f[f"{POSITION}.scaling"] == "llama3",
    ),
    (
        "rope-scaling-factor",
        f"{POSITION}.scaling_factor",
        lambda f: _value_if_rope_scaled("llama3", f"{POSITION}.scaling_factor")(f) or 8.0,
    ),
    (
        "rotary-seq-len-interpolation-factor",
        f"{POSITION}.scaling_factor",
        _value_if_rope_scaled("linear", f"{POSITION}.scaling_factor"),
    ),
    (
        "rope-type",
        f"{POSITION}.scaling",
        lambda f: ("yarn" if f.is_yarn else "rope") if f.latent else None,
    ),
    # The fused kernel of latent attention supports only YaRN (MLATransformerConfig).
    ("no-rope-fusion", f"{POSITION}.scaling", lambda f: f.latent and not f.is_yarn),
    (
        "rotary-scaling-factor",
        f"{POSITION}.scaling_factor",
        _value_if_yarn(f"{POSITION}.scaling_factor", 1.0),
    ),
    ("mscale", f"{POSITION}.mscale", _value_if_yarn(f"{POSITION}.mscale", 1.0)),
    (
        "mscale-all-dim",
        f"{POSITION}.mscale_all_dim",
        _value_if_yarn(f"{POSITION}.mscale_all_dim", 0.0),
    ),
    (
        "yarn-original-max-position-embeddings",
        f"{POSITION}.original_max_positions",
        _original_positions,
    ),
    # validate_args: at least the sequence length.
    (
        "max-position-embeddings",
        f"{POSITION}.max_positions",
        lambda f: max(f[f"{POSITION}.max_positions"], f["problem.job.sequence_length"]),
    ),
    ("multi-latent-attention", f"{ATTENTION}.latent", lambda f: f.latent),
    (
        "experimental-attention-variant",
        LINEAR,
        lambda f: "gated_delta_net" if f[LINEAR] else None,
    ),
)
"""Rows for the flags of every model."""
