"""Columns of the tables of candidates that describe a layout.

Together they show every field of a layout, so that two candidates never look equal. The documents
in JSON and CSV contain all columns; a table leaves out those that do not help to compare its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from parc.compiler.evaluate.layout_fields import format_offload
from parc.compiler.ir import AnyPlan, Layout, ServingLayout
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layout import ZeroPlus
from parc.compiler.report.text.layout_text import (
    format_recompute,
    name_cp_exchange,
)

L = TypeVar("L", Layout, ServingLayout)
Shown = Literal["always", "if different", "if needed"]
"""Tables that have a column: all of them, those in which its values differ, or those in which two
rows would look equal without it."""
GRAPHS = {False: "no", True: "layers", "full_iteration": "step"}
"""Value of ``layout.cuda_graphs`` -> text of the table."""


@frozen
class LayoutColumn(Generic[L]):
    """Column with a property of a layout."""

    name: str
    value: Callable[[L], str | int | bool]
    """Function: layout -> value in JSON and CSV."""
    fields: tuple[str, ...]
    """Fields of the layout that the column shows."""
    shown: Shown = "always"
    text: Callable[[Any], str] = str
    """Function: value -> text of the table."""
    title: str = ""
    """Name in the table; empty if it is ``name``."""

    @property
    def head(self) -> str:
        """Name in the table."""
        return self.title or self.name

    def cell(self, layout: L) -> str:
        """Return the text of the table for ``layout``."""
        return self.text(self.value(layout))


def candidate_count(plan: AnyPlan) -> str:
    """Return the line above a table of candidates: how many there are, and how many are stored."""
    search = plan.search
    # A plan stores only the best candidates, so the number of all of them is computed.
    count = search.enumerated - sum(rejected for _, rejected in search.dropped)
    stored = len(search.ranked)
    rest = f"; only the best {stored} are stored" if stored < count else ""
    return f"{plan.problem.name}: {count:,} candidates of {search.enumerated:,} layouts{rest}"


def shown_columns(
    columns: Sequence[LayoutColumn[L]], layouts: Sequence[L]
) -> list[LayoutColumn[L]]:
    """Return those of ``columns`` that a table of ``layouts`` needs, in the same order."""
    names = {
        one.name
        for one in columns
        if one.shown == "always"
        or (one.shown == "if different" and len(set(map(one.cell, layouts))) > 1)
    }
    for extra in columns:
        if extra.shown != "if needed":
            continue
        rows = [tuple(one.cell(row) for one in columns if one.name in names) for row in layouts]
        with_extra = zip(rows, map(extra.cell, layouts), strict=True)
        if len(set(with_extra)) > len(set(rows)):
            names.add(extra.name)
    return [one for one in columns if one.name in names]


def _size(name: str, shown: Shown = "always") -> LayoutColumn[Layout]:
    """Return the column of the field ``name``, whose value is shown as it is."""
    return LayoutColumn(name, attrgetter(name), (name,), shown)


def _format_stages(layout: Layout) -> str:
    """Return the decoder layers of each pipeline stage, such as ``7+8x6+7``."""
    stages = [layout.split.stage_layers(stage) for stage in range(layout.pp)]
    runs = [(layers, len(list(same))) for layers, same in groupby(stages)]
    return "+".join(f"{layers}x{count}" if count > 1 else str(layers) for layers, count in runs)


def _format_zero_plus(zero: ZeroPlus) -> str:
    """Return the settings of ZeRO++, such as ``hpz 8, 8-bit weights``."""
    words = [f"hpz {zero.hpz}"] if zero.hpz > 1 else []
    words += ["quantized weights"] if zero.quantized_weights else []
    words += ["quantized gradients"] if zero.quantized_gradients else []
    return ", ".join(words) or "none"


EXPERT_SIZES = ("ep", "etp")
"""Columns that are left out for a model without experts."""
TRAINING_COLUMNS: tuple[LayoutColumn[Layout], ...] = (
    *map(_size, ("tp", "cp", "pp", "vpp")),
    LayoutColumn("dp", attrgetter("dp"), ("dp_shard",)),
    *map(_size, (*EXPERT_SIZES, "micro_batch")),
    *(_size(name, "if different") for name in ("dp_replicate", "zero_stage", "gtp", "egtp")),
    LayoutColumn(
        "cp_exchange", name_cp_exchange, ("cp_comm", "cp_a2a"), "if different", title="cp exchange"
    ),
    LayoutColumn(
        "offload",
        lambda layout: ", ".join(format_offload(layout.offload)) or "none",
        ("offload",),
        "if different",
    ),
    LayoutColumn(
        "zero_plus",
        lambda layout: _format_zero_plus(layout.zero_plus),
        ("zero_plus",),
        "if different",
        title="ZeRO++",
    ),
    LayoutColumn("recompute", lambda layout: format_recompute(layout.recompute), ("recompute",)),
    LayoutColumn("split", lambda layout: layout.split.form, ("split",), "if different"),
    LayoutColumn("stages", _format_stages, ("split",), "if needed"),
    LayoutColumn(
        "cuda_graphs",
        lambda layout: layout.cuda_graphs,
        ("cuda_graphs",),
        "if different",
        text=lambda value: GRAPHS[value],
        title="graphs",
    ),
    *(_size(name, "if needed") for name in ("schedule", "sequence_parallel", "order")),
)
SERVING_COLUMNS: tuple[LayoutColumn[ServingLayout], ...] = (
    *(
        LayoutColumn[ServingLayout](name, attrgetter(name), (name,))
        for name in ("tp", "pcp", "pp", "dp", "ep", "dcp", "replicas")
    ),
    LayoutColumn("gpus", lambda layout: layout.gpus, (), title="GPUs"),
    LayoutColumn(
        "redundant_experts",
        lambda layout: layout.redundant_experts,
        ("redundant_experts",),
        "if different",
        title="redundant experts",
    ),
    LayoutColumn(
        "stages", lambda layout: "+".join(map(str, layout.stages)), ("stages",), "if needed"
    ),
)
