"""Facts of models whose layers differ in what mixes tokens. Part of ``check_model``."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.spec.model_spec import LinearAttentionSpec, MambaSpec, ModelSpec

Found = tuple[str, str, Finding]
"""(code, spec path, what is wrong)."""


def check_hybrid(facts: ModelSpec) -> Iterator[Found]:
    """Linear attention, Mamba layers, and the pattern that says where they are."""
    if facts.linear_attention is not None:
        yield from _linear(facts, facts.linear_attention)
    if facts.mamba is not None:
        yield from _mamba(facts, facts.mamba)
    if facts.pattern is not None:
        yield from _pattern(facts, facts.pattern)


def _linear(facts: ModelSpec, linear: LinearAttentionSpec) -> Iterator[Found]:
    values, keys = linear.value_heads or 1, linear.key_heads or 1
    if values % keys:
        told = Finding(
            f"{values} value heads cannot share {keys} key heads",
            label=f"{values} % {keys} = {values % keys}, must be 0",
        )
        yield "K03", "model.linear_attention.value_heads", told
    if linear.full_attention_every == 1:
        told = Finding(
            "no layer has linear attention",
            label="every layer has softmax attention, so that the other facts mean nothing",
            fix="model.linear_attention.full_attention_every: 4",
        )
        yield "K03", "model.linear_attention.full_attention_every", told
    for other in ("latent", "window", "pattern", "sinks"):
        if getattr(facts, other):
            yield _beside(other, "linear_attention")


def _mamba(facts: ModelSpec, mamba: MambaSpec) -> Iterator[Found]:
    heads, groups = mamba.heads or 1, mamba.groups
    if heads % groups:
        told = Finding(
            f"{heads} Mamba heads do not form {groups} equal groups",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
        )
        yield "K03", "model.mamba.groups", told
    if "M" not in (facts.pattern or ""):
        told = Finding(
            "no layer is a Mamba layer",
            label="without an M in model.pattern these facts mean nothing",
            fix='model.pattern: "M-M*-..."',
        )
        yield "K03", "model.mamba", told


def _pattern(facts: ModelSpec, pattern: str) -> Iterator[Found]:
    layers = facts.layers or 0
    if len(pattern) != layers:
        told = Finding(
            f"the pattern has {len(pattern)} letters for {layers} layers",
            label="a letter a layer",
            fix=f"model.layers: {len(pattern)}",
            causes=(Cause("model.layers", "layers come from here"),),
        )
        yield "K03", "model.pattern", told
    needs = {"M": ("mamba", facts.mamba), "-": ("ffn", facts.ffn), "E": ("experts", facts.experts)}
    for letter, (key, given) in needs.items():
        if letter in pattern and not given:
            told = Finding(f"the pattern has {letter} layers, and {key} is not given")
            yield "K03", f"model.{key}", told
    if facts.experts is not None and "E" not in pattern:
        yield "K03", "model.experts", Finding("no layer routes: the pattern has no E")
    if facts.mtp_layers:
        yield _beside("mtp_layers", "pattern")
    for key in ("first_dense_layers", "every"):
        if facts.experts is not None and key in facts.experts.model_fields_set:
            yield _beside(f"experts.{key}", "pattern")


def _beside(key: str, other: str) -> Found:
    told = Finding(
        f"{key} has no meaning beside {other}",
        label=f"contradicts model.{other}",
        help="take one of the two away",
        causes=(Cause(f"model.{other}", "asked for here"),),
    )
    return "K03", f"model.{key}", told
