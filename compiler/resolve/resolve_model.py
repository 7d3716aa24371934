"""Resolve ``model:`` (catalog name, config.json or mapping) to a ``Model`` with all defaults."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from parc.compiler.catalog.find_model import Library, find_model
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import shipped_families
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir.cluster import CHANGED_SUFFIX
from parc.compiler.ir.layer_variant import ExtraWeights, LayerVariant
from parc.compiler.ir.model import (
    Experts,
    FeedForward,
    Model,
    Position,
)
from parc.compiler.ir.token_mixers import (
    Attention,
    Compression,
    Convolution,
    Indexer,
    LatentAttention,
    LinearAttention,
    LowRank,
    Mamba,
)
from parc.compiler.resolve.check_layer_variants import check_layer_variants
from parc.compiler.resolve.check_model import check_model
from parc.compiler.spec.model_spec import ExpertsSpec, LayerVariantSpec, ModelSpec, PositionSpec
from parc.compiler.spec.spec import Spec, TaskSpec

_NESTED = (
    *("experts", "indexer", "latent", "linear_attention", "low_rank", "mamba", "convolution"),
    "position",
)


def resolve_model_of_job(spec: TaskSpec, library: Library, sink: Sink) -> tuple[Model | None, Sink]:
    """Return the model of ``spec``, None after an error, and a sink with the findings K06.

    K06 means that the spec cannot express a computation of the model. Findings on keys that are not
    used for training (K04) are left out for services.
    """
    found, left_out = Sink(sink.positions), Sink(sink.positions)
    model = resolve_model(spec.model, library, found)
    dropped = {"PARC-K06"} if isinstance(spec, Spec) else {"PARC-K06", "PARC-K04"}
    sink.extend(found, lambda one: None if one.code in dropped else one)
    left_out.extend(found, lambda one: one if one.code == "PARC-K06" else None)
    return model, left_out


def resolve_model(spec: str | ModelSpec, library: Library, sink: Sink) -> Model | None:
    """Return the model of ``spec``; None after an error.

    A mapping with ``base`` changes the catalog entry or file that ``base`` names: each key replaces
    the same key of the base. Nested mappings such as ``experts`` are merged key by key, and
    ``experts: null`` removes all experts.
    """
    facts = _facts_with_base(spec, library, sink)
    if facts is None:
        return None
    if not check_model(facts, sink) or not check_layer_variants(facts, sink):
        return None
    try:
        families, family = shipped_families(), facts.family or ""
        unsupported = families.unsupported_parts(family)
        assumed = families.assumed_constants(family)
    except FamilyError as error:
        sink.report("K02", str(error), at="model")
        return None
    model = _build_model(facts, unsupported)
    if unsupported:
        message = f"PARC does not support some parts of {model.name}: {unsupported}"
        sink.report("K06", Finding(message, label=f"family {model.family}"), at="model")
    # A config that sets the constant has a finding with its line already.
    name = assumed.partition(" ")[0]
    reported = any(f".{name} is " in one.finding.message for one in sink.diagnostics)
    if assumed and not reported:
        message = f"No field sets some constants of {model.name}: {assumed}"
        sink.report(
            "K06",
            Finding(
                message,
                label=f"family {model.family}",
                help="Pretraining from scratch is not affected. To continue from published "
                "weights, set the constant in your training program.",
            ),
            at="model",
        )
    return model


def _facts_with_base(spec: str | ModelSpec, library: Library, sink: Sink) -> ModelSpec | None:
    """Return the model facts that the spec sets, completed by the facts of the base model.

    None after an error.
    """
    if isinstance(spec, ModelSpec) and spec.base is None:
        return spec
    at = "model" if isinstance(spec, str) else "model.base"
    name = spec if isinstance(spec, str) else str(spec.base)
    base = find_model(name, library, sink, at)
    if base is None:
        return None
    changes = {} if isinstance(spec, str) else spec.model_dump(mode="json", exclude_unset=True)
    changes.pop("base", None)
    return _validate_facts(_merge_changes(base, changes), sink, at)


def _merge_changes(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the facts ``base`` with the keys that ``changes`` sets.

    Unless ``changes`` sets a name, the result has the name of ``base`` with a suffix that marks the
    model as changed.
    """
    merged = dict(base)
    if changes and "name" not in changes:
        merged["name"] = f"{base['name']}{CHANGED_SUFFIX}"
    for key, value in changes.items():
        old = merged.get(key)
        nested = key in _NESTED and isinstance(old, dict) and isinstance(value, dict)
        merged[key] = old | value if nested and old is not None else value
    # null turns a mixture-of-experts model into a dense one. 0 stands for a key that is not set.
    if changes.get("experts", 0) is None:
        del merged["experts"]
    return merged


def _validate_facts(tree: dict[str, Any], sink: Sink, at: str) -> ModelSpec | None:
    """Return ``tree`` as a ``ModelSpec``; None after an error: a value is invalid (K03)."""
    try:
        # Strict validation accepts lists for tuples only if the input is JSON.
        return ModelSpec.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        for found in error.errors():
            key = ".".join(str(part) for part in found["loc"])
            sink.report("K03", f"{key}: {found['msg']}", at=at)
        return None


def _build_model(facts: ModelSpec, unsupported_parts: str) -> Model:
    """Return the model with all defaults.

    ``check_model`` must have accepted ``facts``, so required numbers are never None here.
    """
    linear, mamba, convolution = facts.linear_attention, facts.mamba, facts.convolution
    attention = _build_attention(facts)
    return Model(
        name=facts.name or "custom",
        family=facts.family or "custom",
        layers=facts.layers or 0,
        hidden=facts.hidden or 0,
        vocab=facts.vocab or 0,
        attention=attention,
        ffn=FeedForward(
            size=facts.ffn or 0,
            gated=facts.gated is not False,
            activation=facts.activation or "silu",
            bias=bool(facts.mlp_bias),
        ),
        experts=_build_experts(facts, facts.experts) if facts.experts else None,
        norm=facts.norm or "rmsnorm",
        norm_epsilon=facts.norm_epsilon or 1e-5,
        init_std=facts.init_std,
        norms_per_layer=facts.norms_per_layer or 2,
        final_norm=facts.final_norm is not False,
        position=_build_position(facts.position),
        tied_embeddings=bool(facts.tied_embeddings),
        mtp_layers=facts.mtp_layers or 0,
        source=facts.source or "the spec",
        left_out=unsupported_parts,
        linear=LinearAttention(**linear.model_dump()) if linear else None,
        mamba=Mamba(**mamba.model_dump()) if mamba else None,
        convolution=Convolution(width=facts.hidden or 0, **convolution.model_dump())
        if convolution
        else None,
        pattern=facts.pattern or "",
        norm_weights=facts.norm_weights is not False,
        residual_streams=facts.residual_streams or 1,
        variants=tuple(_build_variant(attention, facts, one) for one in facts.layer_variants or ()),
        extra_weights=tuple(ExtraWeights(**one.model_dump()) for one in facts.extra_weights or ()),
    )


def plain_model() -> Model:
    """Return a model without sizes, in which each other field has its default.

    It has experts, so that the defaults of their fields are known too.
    """
    return _build_model(ModelSpec(experts=ExpertsSpec()), "")


def _build_variant(attention: Attention, facts: ModelSpec, spec: LayerVariantSpec) -> LayerVariant:
    """Return the layer shapes that ``spec`` sets; ``attention`` and ``facts`` have the others."""
    changes: dict[str, Any] = {
        key: value
        for key in ("heads", "kv_heads", "head_dim", "window", "sinks")
        if (value := getattr(spec, key)) is not None
    }
    if spec.value_dim is not None or spec.head_dim is not None:
        head_dim = spec.head_dim or attention.head_dim
        value_dim = spec.value_dim or (attention.value_dim if spec.head_dim is None else 0)
        changes["value_dim"] = 0 if value_dim == head_dim else value_dim
    if attention.indexer and spec.indexer != "own":
        shared = replace(attention.indexer, shared=True)
        changes["indexer"] = shared if spec.indexer == "shared" else None
    if spec.full_attention:
        changes["window"] = None
    changes |= {"shared_kv": spec.shared_kv, "keys_as_values": spec.keys_as_values}
    if spec.compression is not None:
        changes["compression"] = Compression(**spec.compression.model_dump())
    # The distance between layers with full attention describes the layers without a variant.
    changed = replace(attention, full_attention_every=0, **changes)
    return LayerVariant(
        layers=tuple(layer - 1 for layer in spec.layers),
        attention=changed if spec.attention and spec.mixer in ("attention", "parallel") else None,
        ffn_size=(spec.ffn or facts.ffn or 0) if spec.mlp else None,
        mixer=spec.mixer if spec.attention else "none",
    )


def _build_attention(facts: ModelSpec) -> Attention:
    """Return the attention of the model with all defaults."""
    heads = facts.heads or 1
    latent = LatentAttention(**facts.latent.model_dump()) if facts.latent else None
    # In latent attention, the head dim of queries and keys is the sum of the part without and the
    # part with rotary positions.
    head_dim = latent.qk_nope_dim + latent.qk_rope_dim if latent else facts.head_dim
    return Attention(
        heads=heads,
        kv_heads=facts.kv_heads or heads,
        head_dim=head_dim or (facts.hidden or 0) // heads,
        qkv_bias=bool(facts.qkv_bias),
        output_bias=bool(facts.attention_output_bias),
        qk_norm=facts.qk_norm or "none",
        window=facts.window,
        latent=latent,
        sinks=bool(facts.sinks),
        # Without a sliding window all layers have full attention, so the key has no meaning.
        full_attention_every=(facts.full_attention_every or 0) if facts.window else 0,
        gate=bool(facts.attention_gate),
        head_gate=bool(facts.head_gate),
        value_dim=facts.value_dim or 0,
        chunked=bool(facts.window_chunks),
        indexer=Indexer(**facts.indexer.model_dump()) if facts.indexer else None,
        joint_kv=bool(facts.joint_kv),
        low_rank=LowRank(**facts.low_rank.model_dump()) if facts.low_rank else None,
    )


def _build_experts(facts: ModelSpec, spec: ExpertsSpec) -> Experts:
    """Return the experts of the model; the result also lists which layers have experts."""
    keep = spec.model_dump(exclude={"first_dense_layers", "every"})
    if facts.pattern:
        return Experts(**keep, pattern=tuple(letter == "E" for letter in facts.pattern))
    return Experts(**keep, pattern=_layers_with_experts(spec, facts.layers or 0))


def _layers_with_experts(spec: ExpertsSpec, layers: int) -> tuple[bool, ...]:
    """Return one boolean per layer: True if the layer has experts.

    Layer i, counted from 0, has experts if i >= first_dense_layers and (i + 1) % every == 0.
    """
    # The second condition is decoder_sparse_step of Qwen2-MoE in transformers.
    return tuple(i >= spec.first_dense_layers and (i + 1) % spec.every == 0 for i in range(layers))


def _build_position(spec: PositionSpec | None) -> Position:
    """Return the position encoding with all defaults.

    YaRN can be set as the kind or as the scaling, with the same meaning.
    """
    spec = spec or PositionSpec()
    yarn = "yarn" in (spec.kind, spec.scaling)
    most = spec.max_positions or 0
    return Position(
        kind="yarn" if yarn else spec.kind,
        base=spec.base,
        percent=spec.percent,
        scaling="yarn" if yarn else spec.scaling,
        scaling_factor=spec.scaling_factor,
        max_positions=most,
        original_max_positions=spec.original_max_positions or most,
        mscale=spec.mscale,
        mscale_all_dim=spec.mscale_all_dim,
    )
