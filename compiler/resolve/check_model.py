"""Check that the dimensions of a model are complete and consistent (K03, D07, D17).

Hybrid models, which combine attention with linear attention or Mamba layers, are included.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, CodedFinding, Finding, Sink
from parc.compiler.spec.model_spec import (
    ExpertsSpec,
    LinearAttentionSpec,
    MambaSpec,
    ModelSpec,
    PositionSpec,
)

_REQUIRED = ("layers", "hidden", "heads", "vocab")
_REQUIRED_EXPERTS = ("count", "top_k", "size")
_REQUIRED_LATENT = ("kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim")
_REQUIRED_LINEAR = ("key_heads", "value_heads", "key_dim", "value_dim")
_REQUIRED_INDEXER = ("heads", "head_dim", "top_k")
_REQUIRED_LOW_RANK = ("queries", "output")
_REQUIRED_MAMBA = ("heads", "head_dim", "state_size")
RECURRENT_SECTIONS = ("linear_attention", "mamba", "convolution")
"""Sections of recurrent token mixers, of which a model can have one."""
# Fields of grouped-query attention. Latent attention replaces it, so they would have no effect.
_NOT_WITH_LATENT = (
    *("kv_heads", "head_dim", "value_dim", "qkv_bias", "attention_output_bias", "sinks", "window"),
    *("joint_kv", "low_rank"),
)


def check_model(facts: ModelSpec, sink: Sink) -> bool:
    """Return True if ``facts`` describe a complete and consistent model.

    Otherwise each problem is reported.
    """
    missing = _missing_model_numbers(facts)
    for path in missing:
        finding = Finding(
            f"{path} is not set",
            label="this key is required and has no default",
            fix=f"{path}: <number>",
        )
        sink.report("K03", finding, at=path)
    # The other checks would report missing numbers again, as 0 or 1.
    if missing:
        return False
    found = [
        *_check_heads(facts),
        *_check_latent_attention(facts),
        *_check_position(facts.position or PositionSpec()),
        *(_check_experts(facts, facts.experts) if facts.experts and not facts.pattern else ()),
        *(_check_router(facts.experts) if facts.experts else ()),
        *_check_hybrid_layers(facts),
    ]
    for code, path, finding in found:
        sink.report(code, finding, at=path)
    return not found


def _missing_model_numbers(facts: ModelSpec) -> list[str]:
    """Return the spec paths of the required numbers of a model that are not set."""
    paths = [f"model.{key}" for key in _REQUIRED if getattr(facts, key) is None]
    # Letter "-" of a layer pattern is a dense MLP. Without one, no layer reads ffn.
    no_dense = facts.experts is not None or (facts.pattern is not None and "-" not in facts.pattern)
    if not facts.ffn and not no_dense:
        paths.append("model.ffn")
    if facts.position is None or facts.position.max_positions is None:
        paths.append("model.position.max_positions")
    for name, keys in (
        ("experts", _REQUIRED_EXPERTS),
        ("latent", _REQUIRED_LATENT),
        ("linear_attention", _REQUIRED_LINEAR),
        ("mamba", _REQUIRED_MAMBA),
        ("indexer", _REQUIRED_INDEXER),
        ("low_rank", _REQUIRED_LOW_RANK),
    ):
        part = getattr(facts, name)
        if part is not None:
            paths += [f"model.{name}.{key}" for key in keys if getattr(part, key) is None]
    return paths


def _check_heads(facts: ModelSpec) -> list[CodedFinding]:
    """Check that heads are divisible by kv_heads, and the hidden size by heads."""
    found: list[CodedFinding] = []
    hidden, heads = facts.hidden or 0, facts.heads or 1
    groups = facts.kv_heads or heads
    if heads % groups:
        finding = Finding(
            f"{heads} attention heads are not divisible by {groups} key-value heads",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
            help="each key-value head must serve the same number of attention heads",
            causes=(Cause("model.heads", "the number of heads"),),
        )
        found.append(CodedFinding("K03", "model.kv_heads", finding))
    if facts.latent is None and facts.head_dim is None and hidden % heads:
        finding = Finding(
            f"hidden size {hidden} is not divisible by {heads} heads, and head_dim is not set",
            label=f"{hidden} % {heads} = {hidden % heads}, must be 0",
            help="set model.head_dim to the width of one head",
            causes=(Cause("model.heads", "the number of heads"),),
        )
        found.append(CodedFinding("D07", "model.hidden", finding))
    return found


def _check_latent_attention(facts: ModelSpec) -> list[CodedFinding]:
    """Return a finding for each field that has no effect in a model with latent attention."""
    if facts.latent is None:
        return []
    conflicting = [key for key in _NOT_WITH_LATENT if getattr(facts, key)]
    # Configs with latent attention, such as DeepSeek-V3, set kv_heads to heads. That is harmless.
    if facts.kv_heads == facts.heads:
        conflicting = [key for key in conflicting if key != "kv_heads"]
    if facts.qk_norm not in (None, "none"):
        conflicting.append("qk_norm")
    return [
        CodedFinding(
            "K03",
            f"model.{key}",
            Finding(
                f"{key} has no effect with latent attention",
                label="contradicts model.latent",
                help=f"remove model.{key} or model.latent",
                causes=(Cause("model.latent", "latent attention is set here"),),
            ),
        )
        for key in conflicting
    ]


def _check_position(position: PositionSpec) -> list[CodedFinding]:
    """Check the fraction of rotated dimensions and the scaling of rotary position embeddings."""
    found: list[CodedFinding] = []
    if position.percent > 1:
        finding = Finding(
            f"position.percent is {position.percent:g}",
            label="percent is a fraction, must be at most 1",
        )
        found.append(CodedFinding("K03", "model.position.percent", finding))
    rotary = position.kind in ("rope", "yarn")
    if position.scaling != "none" and not rotary:
        finding = Finding(f"{position.kind} positions cannot have {position.scaling} scaling")
        found.append(CodedFinding("K03", "model.position.scaling", finding))
    if position.kind == "yarn" and position.scaling not in ("none", "yarn"):
        finding = Finding(f"yarn positions cannot also have {position.scaling} scaling")
        found.append(CodedFinding("K03", "model.position.scaling", finding))
    return found


def _check_experts(facts: ModelSpec, experts: ExpertsSpec) -> list[CodedFinding]:
    """Check that at least one layer has experts, and that ffn is set if another layer has none."""
    found: list[CodedFinding] = []
    layers = facts.layers or 0
    first = max(experts.first_dense_layers, experts.every - 1)
    routed = sum(1 for n in range(experts.every, layers + 1, experts.every) if n > first)
    if not routed:
        message = f"no layer has experts: the first {first} of {layers} layers are dense"
        found.append(CodedFinding("K03", "model.experts", Finding(message)))
    if routed < layers and not facts.ffn:
        message = f"{layers - routed} of {layers} layers are dense, but model.ffn is not set"
        found.append(CodedFinding("K03", "model.ffn", Finding(message, fix="model.ffn: <number>")))
    return found


def _check_router(experts: ExpertsSpec) -> list[CodedFinding]:
    """Check top-k routing and the groups of experts."""
    # These are the checks of TransformerConfig.__post_init__ in Megatron.
    count, top_k = experts.count or 1, experts.top_k or 1
    groups, group_top_k = experts.groups, experts.group_top_k
    problems = {
        "top_k": (
            top_k > count,
            f"a token cannot be routed to {top_k} experts, because the model has {count}",
        ),
        "groups": (
            count % groups > 0,
            f"{count} experts are not divisible by {groups} groups: {count} % {groups} = "
            f"{count % groups}, must be 0",
        ),
        "group_top_k": (
            group_top_k > groups,
            f"a token cannot be routed to {group_top_k} groups, because there are {groups}",
        ),
    }
    found: list[CodedFinding] = []
    for key, (violated, message) in problems.items():
        if violated:
            help = f"valid values: divisors of {count}" if key == "groups" else ""
            causes = (Cause("model.experts.count", "the number of experts"),)
            finding = Finding(message, help=help, causes=causes)
            found.append(CodedFinding("D17", f"model.experts.{key}", finding))
    if not found and groups > 1 and top_k > group_top_k * (count // groups):
        most = group_top_k * (count // groups)
        message = f"top_k {top_k} exceeds the {most} experts in {group_top_k} groups"
        found.append(CodedFinding("D17", "model.experts.group_top_k", Finding(message)))
    return found


def _check_hybrid_layers(facts: ModelSpec) -> Iterator[CodedFinding]:
    """Yield the problems of the recurrent layers and of the layer pattern."""
    sections = [key for key in RECURRENT_SECTIONS if getattr(facts, key) is not None]
    for other in sections[1:]:
        message = f"a model cannot have both {sections[0]} and {other}"
        yield _contradiction(message, other, sections[0])
    if len(sections) > 1:
        return
    if facts.linear_attention is not None:
        yield from _check_linear_attention(facts, facts.linear_attention)
    if facts.mamba is not None:
        yield from _check_mamba(facts, facts.mamba)
    if facts.pattern is not None:
        yield from _check_layer_pattern(facts, facts.pattern)


def _check_linear_attention(
    facts: ModelSpec, linear: LinearAttentionSpec
) -> Iterator[CodedFinding]:
    """Check the head counts of linear attention, and fields that conflict with linear attention."""
    values, keys = linear.value_heads or 1, linear.key_heads or 1
    if values % keys:
        finding = Finding(
            f"{values} value heads are not divisible by {keys} key heads",
            label=f"{values} % {keys} = {values % keys}, must be 0",
        )
        yield CodedFinding("K03", "model.linear_attention.value_heads", finding)
    listed = any(one.mixer in ("linear", "parallel") for one in facts.layer_variants or ())
    if linear.full_attention_every == 1 and not listed:
        finding = Finding(
            "no layer has linear attention",
            label="with full_attention_every 1, every layer has full attention",
            fix="model.linear_attention.full_attention_every: 4",
        )
        yield CodedFinding("K03", "model.linear_attention.full_attention_every", finding)
    kinds = {
        "conv_size": linear.kind != "lightning",
        "full_rank_gates": linear.kind == "kimi-delta",
    }
    for key, has_effect in kinds.items():
        if key in linear.model_fields_set and not has_effect:
            path = f"model.linear_attention.{key}"
            yield CodedFinding(
                "K03", path, Finding(f"{key} has no effect with kind: {linear.kind}")
            )
    for other in ("window", "pattern", "sinks"):
        if getattr(facts, other) and not listed:
            yield _no_effect_finding(other, "linear_attention")


def _check_mamba(facts: ModelSpec, mamba: MambaSpec) -> Iterator[CodedFinding]:
    """Check the heads of Mamba layers and their groups, and that some layers are Mamba layers."""
    heads, groups = mamba.heads or 1, mamba.groups
    if heads % groups:
        finding = Finding(
            f"{heads} Mamba heads are not divisible by {groups} groups",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
        )
        yield CodedFinding("K03", "model.mamba.groups", finding)
    if mamba.step_rank:
        for key in ("head_dim", "groups"):
            value = getattr(mamba, key)
            if value != 1:
                finding = Finding(
                    f"{key} is {value}, but layers with step_rank are Mamba-1",
                    label=f"Mamba-1 has one head per channel: {key} must be 1",
                    fix=f"model.mamba.{key}: 1",
                )
                yield CodedFinding("K03", f"model.mamba.{key}", finding)
        if "norm" in mamba.model_fields_set and mamba.norm:
            finding = Finding("norm has no effect with step_rank", help="remove model.mamba.norm")
            yield CodedFinding("K03", "model.mamba.norm", finding)
    listed = any(one.mixer in ("mamba", "parallel") for one in facts.layer_variants or ())
    if "M" not in (facts.pattern or "") and not listed:
        finding = Finding(
            "no layer is a Mamba layer",
            label="model.mamba has no effect without an M in model.pattern or mixer: mamba",
            fix='model.pattern: "M-M*-..."',
        )
        yield CodedFinding("K03", "model.mamba", finding)


def _check_layer_pattern(facts: ModelSpec, pattern: str) -> Iterator[CodedFinding]:
    """Check the number and the kinds of the layers in the layer pattern."""
    layers = facts.layers or 0
    if len(pattern) != layers:
        finding = Finding(
            f"the pattern has {len(pattern)} letters for {layers} layers",
            label="the pattern must have one letter per layer",
            fix=f"model.layers: {len(pattern)}",
            causes=(Cause("model.layers", "the number of layers"),),
        )
        yield CodedFinding("K03", "model.pattern", finding)
    # Letters of Megatron's hybrid layer pattern; "*", attention, needs no section.
    needs = {"M": ("mamba", facts.mamba), "-": ("ffn", facts.ffn), "E": ("experts", facts.experts)}
    for letter, (key, given) in needs.items():
        if letter in pattern and not given:
            finding = Finding(f"model.pattern contains {letter}, but model.{key} is not set")
            yield CodedFinding("K03", f"model.{key}", finding)
    if facts.experts is not None and "E" not in pattern:
        yield CodedFinding(
            "K03", "model.experts", Finding("no layer has experts: model.pattern contains no E")
        )
    if facts.mtp_layers:
        yield _no_effect_finding("mtp_layers", "pattern")
    for key in ("first_dense_layers", "every"):
        if facts.experts is not None and key in facts.experts.model_fields_set:
            yield _no_effect_finding(f"experts.{key}", "pattern")


def _no_effect_finding(key: str, other: str) -> CodedFinding:
    return _contradiction(f"{key} has no effect with {other}", key, other)


def _contradiction(message: str, key: str, other: str) -> CodedFinding:
    """Return the finding that ``model.key`` contradicts ``model.other``."""
    finding = Finding(
        message,
        label=f"contradicts model.{other}",
        help=f"remove model.{key} or model.{other}",
        causes=(Cause(f"model.{other}", f"{other} is set here"),),
    )
    return CodedFinding("K03", f"model.{key}", finding)
