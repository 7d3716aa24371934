"""Which model of torchtitan a spec means: a registered flavor, or a decoder built from sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.shared.plain_decoder import hybrid_parts, unsupported_parts
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Model


@dataclass(frozen=True, slots=True)
class Flavor:
    """A model that ``model_registry`` of ``torchtitan.models.<module>`` builds."""

    module: str
    name: str
    positions: int
    """Longest sequence that it takes, tokens."""


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = (files("parc.backends.torchtitan") / "flavors.yaml").read_text("utf-8")
    tree: dict[str, dict[str, Any]] = parse_table(text)
    return tree


def flavor_of(model: Model) -> Flavor | None:
    """The registered model of the same family and sizes; None where there is none."""
    entry = _table().get(model.family)
    if entry is None or model.mtp_layers or model.left_out or any(hybrid_parts(model)):
        return None
    have = _sizes(model)
    for name, wanted in entry["flavors"].items():
        if all(have[key] == value for key, value in wanted.items()):
            return Flavor(entry["module"], name, entry["positions"])
    return None


def _sizes(model: Model) -> dict[str, int | bool]:
    """What a row of flavors.yaml may ask for."""
    experts = model.experts
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.attention.heads,
        "kv_heads": model.attention.kv_heads,
        "ffn": model.ffn.size,
        "vocab": model.vocab,
        "tied": model.tied_embeddings,
        "experts": experts.count if experts else 0,
        "top_k": experts.top_k if experts else 0,
        "expert": experts.size if experts else 0,
        "shared": experts.shared_size if experts else 0,
        "dense": model.dense_layers,
    }


def missing(model: Model) -> tuple[str, ...]:
    """What torchtitan lacks of ``model``, in words; empty where it can train it."""
    if flavor_of(model) is not None:
        return ()
    found = [part for part in unsupported_parts(model) if part != "tied embeddings"]
    if model.attention.qkv_bias:
        found.append("biases on queries, keys and values")
    if model.position.scaling == "linear":
        found.append("linear scaling of positions")
    return tuple(found)


def unknown_model(model: Model) -> Finding:
    """Torchtitan trains no such model."""
    names = [f"{family}: {', '.join(entry['flavors'])}" for family, entry in _table().items()]
    mtp = model.mtp_layers and not missing(_without_prediction(model))
    return Finding(
        message=f"torchtitan has no model of the sizes of {model.name}",
        label=f"a decoder that is built from sizes has no {', no '.join(missing(model))}",
        help=f"legal: plain decoders of any size; {'; '.join(names)}",
        fix=f"model: {{base: {model.name}, mtp_layers: 0}}" if mtp else "emit: [megatron]",
        targets=("torchtitan",),
    )


def _without_prediction(model: Model) -> Model:
    from dataclasses import replace

    return replace(model, mtp_layers=0)
