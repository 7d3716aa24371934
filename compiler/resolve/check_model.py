"""Model facts judged: nothing missing, nothing contradictory. Part of ``resolve_model``."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.resolve.check_hybrid import check_hybrid
from parc.compiler.spec.model_spec import ExpertsSpec, ModelSpec, PositionSpec

_NEEDED = ("layers", "hidden", "heads", "vocab")
_NEEDED_EXPERTS = ("count", "top_k", "size")
_NEEDED_LATENT = ("kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim")
_NEEDED_LINEAR = ("key_heads", "value_heads", "key_dim", "value_dim")
_NEEDED_MAMBA = ("heads", "head_dim", "state_size")
# Grouped-query words that mean nothing beside latent attention.
_NOT_LATENT = ("kv_heads", "head_dim", "qkv_bias", "attention_output_bias", "sinks", "window")


def check_model(facts: ModelSpec, sink: Sink) -> bool:
    """True where a ``Model`` can be made of ``facts``; reports every reason why not."""
    missing = _missing(facts)
    for path in missing:
        told = Finding(f"{path} is not given", label="missing", fix=f"{path}: <number>")
        sink.report("K03", told, at=path)
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


def _missing(facts: ModelSpec) -> list[str]:
    """Spec paths of numbers that nothing else can stand for."""
    paths = [f"model.{key}" for key in _NEEDED if getattr(facts, key) is None]
    routes = facts.experts is not None or (facts.pattern is not None and "-" not in facts.pattern)
    if not facts.ffn and not routes:
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
    """Head counts and the width of a head."""
    found: list[_Found] = []
    hidden, heads = facts.hidden or 0, facts.heads or 1
    groups = facts.kv_heads or heads
    if heads % groups:
        told = Finding(
            f"{heads} attention heads cannot share {groups} key-value heads",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
            help="kv_heads must divide heads",
            causes=(Cause("model.heads", "heads come from here"),),
        )
        found.append(("K03", "model.kv_heads", told))
    if facts.latent is None and facts.head_dim is None and hidden % heads:
        told = Finding(
            f"hidden {hidden} is no multiple of {heads} heads, and head_dim is not given",
            label=f"{hidden} % {heads} = {hidden % heads}, must be 0",
            help="give model.head_dim where it is not hidden / heads",
            causes=(Cause("model.heads", "heads come from here"),),
        )
        found.append(("D07", "model.hidden", told))
    return found


def _latent(facts: ModelSpec) -> list[_Found]:
    """Latent attention has projections of its own."""
    if facts.latent is None:
        return []
    set_too = [key for key in _NOT_LATENT if getattr(facts, key)]
    if facts.kv_heads == facts.heads:
        set_too = [key for key in set_too if key != "kv_heads"]
    if facts.qk_norm not in (None, "none"):
        set_too.append("qk_norm")
    return [
        (
            "K03",
            f"model.{key}",
            Finding(
                f"{key} has no meaning beside latent attention",
                label="contradicts model.latent",
                help="take one of the two away",
                causes=(Cause("model.latent", "latent attention is asked for here"),),
            ),
        )
        for key in set_too
    ]


def _position(position: PositionSpec) -> list[_Found]:
    """Rotated share and scaling."""
    found: list[_Found] = []
    if position.percent > 1:
        told = Finding(f"percent is {position.percent:g}", label="a share, at most 1")
        found.append(("K03", "model.position.percent", told))
    rotary = position.kind in ("rope", "yarn")
    if position.scaling != "none" and not rotary:
        told = Finding(f"{position.kind} positions cannot have {position.scaling} scaling")
        found.append(("K03", "model.position.scaling", told))
    if position.kind == "yarn" and position.scaling not in ("none", "yarn"):
        told = Finding(f"yarn positions cannot have {position.scaling} scaling as well")
        found.append(("K03", "model.position.scaling", told))
    return found


def _experts(facts: ModelSpec, experts: ExpertsSpec) -> list[_Found]:
    """Routed layers, the dense layers beside them, and the router."""
    found: list[_Found] = []
    layers = facts.layers or 0
    first = max(experts.first_dense_layers, experts.every - 1)
    routed = sum(1 for n in range(experts.every, layers + 1, experts.every) if n > first)
    if not routed:
        told = f"none of {layers} layers routes: {first} are dense before the first"
        found.append(("K03", "model.experts", Finding(told)))
    if routed < layers and not facts.ffn:
        told = f"{layers - routed} of {layers} layers are dense, and ffn is not given"
        found.append(("K03", "model.ffn", Finding(told, fix="model.ffn: <number>")))
    return found


def _router(experts: ExpertsSpec) -> list[_Found]:
    """Top-k and groups (Megatron: TransformerConfig.__post_init__)."""
    count, top_k = experts.count or 1, experts.top_k or 1
    groups, group_top_k = experts.groups, experts.group_top_k
    wrong = {
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
    for key, (broken, told) in wrong.items():
        if broken:
            help = f"legal groups: divisors of {count}" if key == "groups" else ""
            causes = (Cause("model.experts.count", "experts come from here"),)
            finding = Finding(told, help=help, causes=causes)
            found.append(("D17", f"model.experts.{key}", finding))
    if not found and groups > 1 and top_k > group_top_k * (count // groups):
        told = f"{group_top_k} groups of {count // groups} experts hold fewer than top_k {top_k}"
        found.append(("D17", "model.experts.group_top_k", Finding(told)))
    return found
