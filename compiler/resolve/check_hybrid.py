"""Check models that combine attention with linear attention or Mamba layers (K03)."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.spec.model_spec import LinearAttentionSpec, MambaSpec, ModelSpec

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
