"""Texts about a layout: the fields that make the search choose it, its sizes, offloaded state."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics.flow_yaml import flow_text
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.layout import Offload


def format_layout_fields(problem: Problem, layout: Layout) -> str:
    """Return the section ``layout`` of a spec as text: ``layout: {tp: 2, pp: 1, ...}``.

    With these fields, the search can choose only between rank orders, stage splits and CUDA graphs.
    Fields whose default gives the same layout are left out.
    """
    fields: dict[str, Any] = {name: getattr(layout, name) for name in ("tp", "cp", "pp")}
    if layout.pp > 1:
        fields["vpp"] = layout.vpp
    if problem.model.experts is not None:
        fields |= {"ep": layout.ep, "etp": layout.etp}
    fields |= {name: value for name in ("gtp", "egtp") if (value := getattr(layout, name)) > 1}
    fields["zero_stage"] = layout.zero_stage
    if layout.dp_replicate > 1:
        fields["dp_shard"] = layout.dp_shard
    if layout.schedule not in ("1f1b", "interleaved"):
        fields["schedule"] = layout.schedule
    if layout.cp > 1:
        fields["cp_comm"] = layout.cp_comm
    fields["micro_batch"] = layout.micro_batch
    fields["recompute"] = _recompute_field(layout)
    if layout.offload.optimizer != "none" or layout.offload.activations:
        fields["offload"] = _offload_field(layout)
    return f"layout: {flow_text(fields)}"


def format_sizes(layout: Layout) -> str:
    """Return the sizes that share the GPUs: ``tp 8, pp 1, dp 4``."""
    names = ("tp", "cp", "pp", "dp", "ep")
    sizes = {name: getattr(layout, name) for name in names}
    shown = (name for name in names if sizes[name] > 1 or name not in ("cp", "ep"))
    return ", ".join(f"{name} {sizes[name]}" for name in shown)


def _recompute_field(layout: Layout) -> str | dict[str, Any]:
    """Return the value of ``layout.recompute``: a word, or a mapping if the word is not enough."""
    recompute = layout.recompute
    named: dict[str, Any]
    if recompute.granularity == "full":
        named = {"method": recompute.method, "layers": recompute.layers}
        plain = named == {"method": "uniform", "layers": 1}
    else:
        named = {"modules": list(recompute.modules)}
        plain = recompute.modules in ((), ("core_attn",))
    return recompute.granularity if plain else {"granularity": recompute.granularity, **named}


def _offload_field(layout: Layout) -> dict[str, Any]:
    """Return the value of ``layout.offload``."""
    offload = layout.offload
    named: dict[str, Any] = {"optimizer": offload.optimizer, "parameters": offload.parameters}
    named |= {"nvme_path": offload.nvme_path} if offload.nvme_path else {}
    return named | ({"activations": list(offload.activations)} if offload.activations else {})


def format_offload(offload: Offload) -> list[str]:
    """Return texts on offloaded state, such as ``["optimizer on cpu"]``; empty without offload."""
    away = {"optimizer": offload.optimizer, "weights": offload.parameters}
    parts = ", ".join(offload.activations)
    return [
        *(f"{what} on {device}" for what, device in away.items() if device != "none"),
        *([f"activations of {parts} on cpu"] if parts else []),
    ]
