"""LoRA adapters: the linear layers that can have one, and their parameters.

An adapter of a linear layer with k inputs and n outputs has A with rank x k weights and B with n x
rank weights (arXiv:2106.09685). PARC counts queries, keys and values, and gate and up projection,
as separate layers, as in the library transformers.
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.ir.model import LayerKind, Model
from parc.compiler.ir.problem import LoraAdapters, Projection

ATTENTION: tuple[Projection, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP: tuple[Projection, ...] = ("gate_proj", "up_proj", "down_proj")
ALL_LINEAR = (*ATTENTION, *MLP)


def projection_widths(model: Model, kind: LayerKind) -> dict[Projection, tuple[int, int]]:
    """Return projection -> (inputs, outputs) of the linear layers of a layer of type ``kind``.

    Linear layers that cannot have an adapter are left out.
    """
    model = model.with_shapes_of(kind)
    attention, hidden = model.attention, model.hidden
    found: dict[Projection, tuple[int, int]] = {}
    if kind.attends and not _unusual_attention(model):
        inner = attention.heads * attention.value_width
        keys, values = (
            attention.kv_heads * width for width in (attention.head_dim, attention.value_width)
        )
        found["q_proj"] = hidden, attention.query_projection_heads * attention.head_dim
        found["k_proj"] = hidden, keys
        found["v_proj"] = hidden, values
        found["o_proj"] = inner, hidden
    if kind.mlp == "dense" and model.experts is None:
        if model.ffn.gated:
            found["gate_proj"] = hidden, model.ffn.size
        found["up_proj"] = hidden, model.ffn.size
        found["down_proj"] = model.ffn.size, hidden
    return found


def adaptable_projections(model: Model) -> tuple[Projection, ...]:
    """Return the projections of ``model`` that can have an adapter, in the order of ALL_LINEAR."""
    found = {name for kind in model.kinds for name in projection_widths(model, kind)}
    return tuple(name for name in ALL_LINEAR if name in found)


def unadaptable_parts(model: Model) -> Iterator[str]:
    """Yield descriptions of the linear layers of ``model`` that cannot have an adapter."""
    yield from _unusual_attention(model)
    kinds = [one for one in model.kinds if one.recurrent]
    if kinds:
        yield f"layers with {kinds[0].mixer.replace('_', ' ')}"
    if model.experts is not None:
        yield "experts"
    yield from (extra.name for extra in model.extra_weights if extra.multiplied)


def _unusual_attention(model: Model) -> tuple[str, ...]:
    """Return descriptions of the attention of ``model`` beyond the four usual projections."""
    attention = model.attention
    parts = {
        "latent attention": attention.latent,
        "low-rank projections": attention.low_rank,
        "compressed keys": attention.compression,
        "an indexer": attention.indexer,
        "shared keys and values": attention.shared_kv,
        "keys that are also values": attention.keys_as_values or attention.joint_kv,
        "gates per head": attention.head_gate,
    }
    return tuple(name for name, present in parts.items() if present)


def adapter_params(model: Model, kind: LayerKind, lora: LoraAdapters) -> int:
    """Return the number of parameters of the adapters of one layer of type ``kind``."""
    return sum(
        lora.rank * (inputs + outputs) for inputs, outputs in adapted_widths(model, kind, lora)
    )


def adapted_widths(model: Model, kind: LayerKind, lora: LoraAdapters) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of each projection of a layer of type ``kind`` with an adapter."""
    widths = projection_widths(model, kind)
    return [widths[name] for name in lora.targets if name in widths]
