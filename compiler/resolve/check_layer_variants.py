"""Check the layers with other shapes, the window chunks and the extra weights of a model (K03)."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.model_spec import LayerVariantSpec, ModelSpec

_SHAPES = ("heads", "kv_heads", "head_dim", "value_dim", "window", "sinks")
"""Keys of a variant that describe grouped-query attention."""
_ATTENDING = ("attention", "parallel")
"""Values of ``mixer`` of layers with softmax attention."""
_SECTIONS = {"linear": "linear_attention", "mamba": "mamba", "convolution": "convolution"}
"""Recurrent token mixer -> section of the model that describes it."""
Found = tuple[str, Finding]
"""(spec path, finding)."""


def check_layer_variants(facts: ModelSpec, sink: Sink) -> bool:
    """Return True if variants, chunks and extra weights fit the model. Else report each problem."""
    found = [*_check_variants(facts), *_check_parts(facts)]
    for path, finding in found:
        sink.report("K03", finding, at=path)
    return not found


def _check_parts(facts: ModelSpec) -> Iterator[Found]:
    """Yield keys of the model that have no effect because another key is absent."""
    if facts.window_chunks and facts.window is None:
        yield (
            "model.window_chunks",
            Finding(
                "window_chunks has no effect without window",
                label="the window is the length of a chunk",
                fix="model.window: 8192",
            ),
        )
    absent = [mixer for mixer, section in _SECTIONS.items() if getattr(facts, section) is None]
    if facts.experts is None:
        absent.append("experts")
    variants = facts.layer_variants or ()
    if facts.convolution and all(one.mixer not in ("convolution", "parallel") for one in variants):
        finding = Finding(
            "no layer has a convolution",
            label="model.convolution has no effect without mixer: convolution",
            help="list the layers: layer_variants: [{layers: [1, 2], mixer: convolution}]",
        )
        yield "model.convolution", finding
    for number, extra in enumerate(facts.extra_weights or ()):
        if extra.at in absent:
            part = "experts" if extra.at == "experts" else f"the token mixer {extra.at}"
            yield (
                f"model.extra_weights[{number}].at",
                Finding(
                    f"no layer has {part}, to which the weights of {extra.name!r} belong",
                    label=f"at is {extra.at}",
                    help="valid values here: layers, attention, dense, embedding, output",
                ),
            )


def _check_variants(facts: ModelSpec) -> Iterator[Found]:
    """Yield the problems of ``layer_variants``."""
    variants = facts.layer_variants or ()
    if variants and facts.pattern:
        yield (
            "model.layer_variants",
            Finding(
                "layer_variants cannot be combined with pattern",
                label="contradicts model.pattern",
                help="remove model.layer_variants or model.pattern",
                causes=(Cause("model.pattern", "pattern is set here"),),
            ),
        )
    yield from _check_shared_keys(facts, variants)
    first_use: dict[int, str] = {}
    for number, variant in enumerate(variants):
        path = f"model.layer_variants[{number}]"
        yield from _check_numbers(facts, variant, f"{path}.layers", first_use)
        yield from _check_mixer(facts, variant, path)
        yield from _check_shapes(facts, variant, path)


def _check_shared_keys(facts: ModelSpec, variants: tuple[LayerVariantSpec, ...]) -> Iterator[Found]:
    """Yield layers that share keys and values although no earlier layer has any."""
    without = {
        layer
        for one in variants
        if one.shared_kv or one.mixer not in _ATTENDING or not one.attention
        for layer in one.layers
    }
    first = next((n for n in range(1, (facts.layers or 0) + 1) if n not in without), None)
    for number, variant in enumerate(variants):
        early = [layer for layer in variant.layers if first is None or layer < first]
        if variant.shared_kv and early:
            finding = Finding(
                f"layer {early[0]} shares keys and values, but no earlier layer has any",
                label="shared_kv is true",
                help="the first layer with attention needs keys and values of its own",
            )
            yield f"model.layer_variants[{number}].shared_kv", finding


def _check_mixer(facts: ModelSpec, variant: LayerVariantSpec, path: str) -> Iterator[Found]:
    """Yield a token mixer of the variant that no section of the model describes."""
    section = _SECTIONS.get(variant.mixer)
    if variant.mixer == "parallel" and not any(getattr(facts, one) for one in _SECTIONS.values()):
        finding = Finding(
            "mixer: parallel needs a recurrent mixer next to attention",
            help=f"describe it in model.{', model.'.join(_SECTIONS.values())}",
        )
        yield f"{path}.mixer", finding
    if section is not None and getattr(facts, section) is None:
        finding = Finding(
            f"mixer: {variant.mixer} needs model.{section}, which is not set",
            help=f"describe these layers in model.{section}",
        )
        yield f"{path}.mixer", finding
    if variant.mixer != "attention" and not variant.attention:
        finding = Finding("mixer has no effect with attention: false", help="remove one of them")
        yield f"{path}.mixer", finding


def _check_numbers(
    facts: ModelSpec, variant: LayerVariantSpec, path: str, first_use: dict[int, str]
) -> Iterator[Found]:
    """Yield layer numbers that the model lacks or that ``first_use`` lists; add the others to it.

    ``first_use`` maps layer numbers to the path of the variant that contains them.
    """
    layers = facts.layers or 0
    absent = [layer for layer in variant.layers if layer > layers]
    if absent:
        numbers = ", ".join(map(str, absent[:4])) + (", ..." if len(absent) > 4 else "")
        one = len(absent) == 1
        finding = Finding(
            f"layer {numbers} does not exist" if one else f"layers {numbers} do not exist",
            label=f"the model has {layers} layers",
            help="if you change the layers of another model, set layer_variants too",
        )
        yield path, finding
    for layer in (layer for layer in variant.layers if layer <= layers):
        if layer in first_use:
            finding = Finding(
                f"layer {layer} is listed twice",
                label="each layer can be listed once",
                causes=(Cause(first_use[layer], "also listed here"),),
            )
            yield path, finding
        first_use.setdefault(layer, path)


def _check_shapes(facts: ModelSpec, variant: LayerVariantSpec, path: str) -> Iterator[Found]:
    """Yield shapes of one variant that contradict each other or the model."""
    heads = variant.heads or facts.heads or 1
    groups = variant.kv_heads or facts.kv_heads or heads
    if heads % groups:
        finding = Finding(
            f"{heads} attention heads are not divisible by {groups} key-value heads",
            label=f"{heads} % {groups} = {heads % groups}, must be 0",
            help="each key-value head must serve the same number of attention heads",
        )
        yield f"{path}.kv_heads", finding
    given = [key for key in _SHAPES if getattr(variant, key) is not None]
    given += [
        key for key in ("shared_kv", "keys_as_values", "compression") if getattr(variant, key)
    ]
    other = "latent" if facts.latent else "" if variant.attention else "attention: false"
    if variant.mixer not in _ATTENDING:
        other = f"mixer: {variant.mixer}"
    if given and other:
        yield (
            f"{path}.{given[0]}",
            Finding(f"{given[0]} has no effect with {other}", help=f"remove {', '.join(given)}"),
        )
    if variant.indexer != "own" and facts.indexer is None:
        message = f"indexer: {variant.indexer} has no effect without model.indexer"
        yield f"{path}.indexer", Finding(message)
    if variant.shared_kv and variant.keys_as_values:
        yield f"{path}.keys_as_values", Finding("keys_as_values has no effect with shared_kv")
    if variant.compression and facts.window is None and variant.window is None:
        yield f"{path}.compression", Finding("compression needs model.window")
    if variant.ffn is not None and not variant.mlp:
        yield f"{path}.ffn", Finding("ffn has no effect with mlp: false", help="remove ffn")
    if variant.full_attention and (facts.window is None or variant.window is not None):
        reason = "and window contradict each other" if variant.window else "needs model.window"
        yield f"{path}.full_attention", Finding(f"full_attention {reason}")
