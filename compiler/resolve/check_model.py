"""Checks of a model of the spec, hybrid models included.

Check that the facts of a model are complete and consistent (K03, D07, D17).

Check models that combine attention with linear attention or Mamba layers (K03).
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.model_spec import (
    ExpertsSpec,
    LinearAttentionSpec,
    MambaSpec,
    ModelSpec,
    PositionSpec,
)

_NEEDED = ("layers", "hidden", "heads", "vocab")
_NEEDED_EXPERTS = ("count", "top_k", "size")
_NEEDED_LATENT = ("kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim")
_NEEDED_LINEAR = ("key_heads", "value_heads", "key_dim", "value_dim")
_NEEDED_MAMBA = ("heads", "head_dim", "state_size")
# Fields of grouped-query attention, which latent attention replaces.
_NOT_LATENT = ("kv_heads", "head_dim", "qkv_bias", "attention_output_bias", "sinks", "window")


def check_model(facts: ModelSpec, sink: Sink) -> bool:
    """Return True if ``facts`` describe a complete model; report every problem otherwise."""
    missing = _missing(facts)
    for path in missing:
        finding = Finding(f"{path} is not set", label="missing", fix=f"{path}: <number>")
        sink.report("K03", finding, at=path)
    if missing:
        return False
    found = [
        *_heads(facts),
        *_latent(facts),
        *_position(facts.position or PositionSpec()),
        *(_experts(facts, facts.experts) if facts.experts and not facts.pattern else ()),
        *(_router(facts.experts) if facts.experts else ()),
        *check_hybrid(facts),
    ]
    for code, path, finding in found:
        sink.report(code, finding, at=path)
    return not found


_Found = tuple[str, str, Finding]
"""(code, spec path, finding)."""


def _missing(facts: ModelSpec) -> list[str]:
    """Return the spec paths of missing numbers that have no default."""
    paths = [f"model.{key}" for key in _NEEDED if getattr(facts, key) is None]
    no_dense = facts.experts is not None or (facts.pattern is not None and "-" not in facts.pattern)
    if not facts.ffn and not no_dense:
        paths.append("model.ffn")
    if facts.position is None or facts.position.max_positions is None:
        paths.append("model.position.max_positions")
    for name, keys in (
        ("experts", _NEEDED_EXPERTS),
        ("latent", _NEEDED_LATENT),
        ("linear_attention", _NEEDED_LINEAR),
        ("mamba", _NEEDED_MAMBA),
    ):
        part = getattr(facts, name)
        if part is not None:
            paths += [f"model.{name}.{key}" for key in keys if getattr(part, key) is None]
    return paths


def _heads(facts: ModelSpec) -> list[_Found]:
    """Check that head counts divide each other and the hidden size."""
    found: list[_Found] = []
    hidden, heads = facts.hidden or 0, facts.heads or 1
    groups = facts.kv_heads or heads
    if heads % groups:
        finding = Finding(
            f"{heads} attention heads cannot share {groups} key-value heads",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
            help="heads must be divisible by kv_heads",
            causes=(Cause("model.heads", "the number of heads"),),
        )
        found.append(("K03", "model.kv_heads", finding))
    if facts.latent is None and facts.head_dim is None and hidden % heads:
        finding = Finding(
            f"hidden {hidden} is not divisible by {heads} heads, and head_dim is not set",
            label=f"{hidden} % {heads} = {hidden % heads}, must be 0",
            help="set model.head_dim if it is not hidden / heads",
            causes=(Cause("model.heads", "the number of heads"),),
        )
        found.append(("D07", "model.hidden", finding))
    return found


def _latent(facts: ModelSpec) -> list[_Found]:
    """Report fields of grouped-query attention next to latent attention."""
    if facts.latent is None:
        return []
    conflicting = [key for key in _NOT_LATENT if getattr(facts, key)]
    if facts.kv_heads == facts.heads:
        conflicting = [key for key in conflicting if key != "kv_heads"]
    if facts.qk_norm not in (None, "none"):
        conflicting.append("qk_norm")
    return [
        (
            "K03",
            f"model.{key}",
            Finding(
                f"{key} has no effect with latent attention",
                label="contradicts model.latent",
                help="remove one of the two",
                causes=(Cause("model.latent", "latent attention is set here"),),
            ),
        )
        for key in conflicting
    ]


def _position(position: PositionSpec) -> list[_Found]:
    """Check the rotated share and the scaling."""
    found: list[_Found] = []
    if position.percent > 1:
        finding = Finding(f"percent is {position.percent:g}", label="must be at most 1")
        found.append(("K03", "model.position.percent", finding))
    rotary = position.kind in ("rope", "yarn")
    if position.scaling != "none" and not rotary:
        finding = Finding(f"{position.kind} positions cannot have {position.scaling} scaling")
        found.append(("K03", "model.position.scaling", finding))
    if position.kind == "yarn" and position.scaling not in ("none", "yarn"):
        finding = Finding(f"yarn positions cannot also have {position.scaling} scaling")
        found.append(("K03", "model.position.scaling", finding))
    return found


def _experts(facts: ModelSpec, experts: ExpertsSpec) -> list[_Found]:
    """Check that some layer has experts, and that dense layers have a width."""
    found: list[_Found] = []
    layers = facts.layers or 0
    first = max(experts.first_dense_layers, experts.every - 1)
    routed = sum(1 for n in range(experts.every, layers + 1, experts.every) if n > first)
    if not routed:
        message = f"no layer has experts: {first} dense layers come first, of {layers} layers"
        found.append(("K03", "model.experts", Finding(message)))
    if routed < layers and not facts.ffn:
        message = f"{layers - routed} of {layers} layers are dense, and ffn is not set"
        found.append(("K03", "model.ffn", Finding(message, fix="model.ffn: <number>")))
    return found


def _router(experts: ExpertsSpec) -> list[_Found]:
    """Check top-k and expert groups (Megatron: TransformerConfig.__post_init__)."""
    count, top_k = experts.count or 1, experts.top_k or 1
    groups, group_top_k = experts.groups, experts.group_top_k
    problems = {
        "top_k": (top_k > count, f"a token cannot visit {top_k} of {count} experts"),
        "groups": (
            count % groups > 0,
            f"{count} experts do not form {groups} equal groups: {count} % {groups} = "
            f"{count % groups}",
        ),
        "group_top_k": (
            group_top_k > groups,
            f"a token cannot visit {group_top_k} of {groups} groups",
        ),
    }
    found: list[_Found] = []
    for key, (violated, message) in problems.items():
        if violated:
            help = f"valid values: divisors of {count}" if key == "groups" else ""
            causes = (Cause("model.experts.count", "the number of experts"),)
            finding = Finding(message, help=help, causes=causes)
            found.append(("D17", f"model.experts.{key}", finding))
    if not found and groups > 1 and top_k > group_top_k * (count // groups):
        message = f"{group_top_k} groups of {count // groups} experts are fewer than top_k {top_k}"
        found.append(("D17", "model.experts.group_top_k", Finding(message)))
    return found


Found = tuple[str, str, Finding]
"""(code, spec path, finding)."""


def check_hybrid(facts: ModelSpec) -> Iterator[Found]:
    """Yield the problems of linear attention, Mamba layers and the layer pattern."""
    if facts.linear_attention is not None:
        yield from _linear(facts, facts.linear_attention)
    if facts.mamba is not None:
        yield from _mamba(facts, facts.mamba)
    if facts.pattern is not None:
        yield from _pattern(facts, facts.pattern)


def _linear(facts: ModelSpec, linear: LinearAttentionSpec) -> Iterator[Found]:
    values, keys = linear.value_heads or 1, linear.key_heads or 1
    if values % keys:
        finding = Finding(
            f"{values} value heads cannot share {keys} key heads",
            label=f"{values} % {keys} = {values % keys}, must be 0",
        )
        yield "K03", "model.linear_attention.value_heads", finding
    if linear.full_attention_every == 1:
        finding = Finding(
            "no layer has linear attention",
            label="every layer has full attention, so the section has no effect",
            fix="model.linear_attention.full_attention_every: 4",
        )
        yield "K03", "model.linear_attention.full_attention_every", finding
    for other in ("latent", "window", "pattern", "sinks"):
        if getattr(facts, other):
            yield _conflict(other, "linear_attention")


def _mamba(facts: ModelSpec, mamba: MambaSpec) -> Iterator[Found]:
    heads, groups = mamba.heads or 1, mamba.groups
    if heads % groups:
        finding = Finding(
            f"{heads} Mamba heads do not form {groups} equal groups",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
        )
        yield "K03", "model.mamba.groups", finding
    if "M" not in (facts.pattern or ""):
        finding = Finding(
            "no layer is a Mamba layer",
            label="the section has no effect without an M in model.pattern",
            fix='model.pattern: "M-M*-..."',
        )
        yield "K03", "model.mamba", finding


def _pattern(facts: ModelSpec, pattern: str) -> Iterator[Found]:
    layers = facts.layers or 0
    if len(pattern) != layers:
        finding = Finding(
            f"the pattern has {len(pattern)} letters for {layers} layers",
            label="must have one letter per layer",
            fix=f"model.layers: {len(pattern)}",
            causes=(Cause("model.layers", "the number of layers"),),
        )
        yield "K03", "model.pattern", finding
    needs = {"M": ("mamba", facts.mamba), "-": ("ffn", facts.ffn), "E": ("experts", facts.experts)}
    for letter, (key, given) in needs.items():
        if letter in pattern and not given:
            finding = Finding(f"the pattern has {letter} layers, but {key} is not set")
            yield "K03", f"model.{key}", finding
    if facts.experts is not None and "E" not in pattern:
        yield "K03", "model.experts", Finding("no layer has experts: the pattern has no E")
    if facts.mtp_layers:
        yield _conflict("mtp_layers", "pattern")
    for key in ("first_dense_layers", "every"):
        if facts.experts is not None and key in facts.experts.model_fields_set:
            yield _conflict(f"experts.{key}", "pattern")


def _conflict(key: str, other: str) -> Found:
    finding = Finding(
        f"{key} has no effect with {other}",
        label=f"contradicts model.{other}",
        help="remove one of the two",
        causes=(Cause(f"model.{other}", "set here"),),
    )
    return "K03", f"model.{key}", finding
