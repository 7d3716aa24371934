"""Published layouts, each compiled twice as a user would: free, and pinned to what was published.

Blank cells are left to the compiler. A published layout that is predicted not to fit is priced all
the same, on a device with more memory.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Estimate, Layout, Plan
from parc.compiler.pipeline import plan_spec
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.spec.reading.source import Source

TABLE = Path(__file__).with_name("published_layouts.csv")
NUMBERS = (
    *("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"),
    *("zero_stage", "first_stage_layers", "last_stage_layers"),
)
"""Pins that are integers; columns of the table."""
BOUNDLESS = "10 TB"
"""Device memory under which a layout that does not fit is priced."""


@dataclass(frozen=True, slots=True)
class Published:
    """One line of the table: a job, and the layout that its source ran or recommends."""

    id: str
    model: str
    """Catalog name."""
    overrides: tuple[str, ...]
    """What the model changes of it, as ``parc --set`` takes it."""
    hosts: str
    """Catalog name of a node type or a cluster."""
    gpus: int
    precision: str
    sequence: int
    """Tokens."""
    global_batch: int
    """Sequences."""
    dispatch: dict[str, Any]
    """How tokens reach their experts: ``moe_dispatcher`` and ``moe_overlap`` of the job."""
    pins: dict[str, Any]
    """``layout:`` of the spec."""
    measured_seconds: float | None
    """Step time, where the source prints or implies one."""
    source: str

    @property
    def gradient_precision(self) -> str:
        """Format of gradients: the performance recipes of Megatron-Bridge reduce in 16 bit."""
        return "bf16" if "Megatron-Bridge" in self.source else "fp32"

    @property
    def family(self) -> str:
        """The group that the summary counts it under."""
        if "Megatron-Bridge" not in self.source:
            return "nanotron's sweep" if "nanotron" in self.source else "papers and benchmarks"
        return "NVIDIA recipes, " + ("MoE" if "ep" in self.pins else "dense")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What PARC says about a published layout and about its own."""

    row: Published
    pick: Plan | None
    """What PARC plans with nothing pinned; None where it has no plan."""
    layout: Layout | None
    """The published layout as PARC understands it; None where a rule refuses it."""
    estimate: Estimate | None
    refusal: tuple[str, ...]
    """Codes and messages of the rules that refuse it, or the job as a whole."""

    @property
    def fits(self) -> bool:
        """Whether the published layout is predicted to fit, at least within the band."""
        if self.pick is None or self.estimate is None:
            return False
        return self.estimate.peak.low_bytes <= self.pick.estimate.limit_bytes

    @property
    def difference(self) -> float:
        """Predicted step time of the published layout over that of the pick, less one."""
        if self.pick is None or self.estimate is None:
            raise ValueError(f"{self.row.id}: a refused layout has no price")
        return self.estimate.time.total_seconds / self.pick.estimate.time.total_seconds - 1


def read_table(path: Path = TABLE) -> tuple[Published, ...]:
    """The table.

    Raises:
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_published(cells) for cells in csv.DictReader(file))


def compare(row: Published) -> Comparison:
    """Compile the row free and pinned."""
    pick, errors = _plan(row, {})
    if pick is None:
        return Comparison(row, None, None, None, errors)
    plan, errors = _plan(row, row.pins)
    if plan is None and all(error.startswith(f"{OVERSIZED} ") for error in errors):
        plan, errors = _plan(row, row.pins, pick.problem.cluster.gpu.name)
    if plan is None:
        return Comparison(row, pick, None, None, errors)
    return Comparison(row, pick, plan.layout, plan.estimate, ())


def spec_text(row: Published, pins: dict[str, Any], boundless_gpu: str = "") -> str:
    """The spec of a row; ``boundless_gpu`` names the GPU that gets more memory than there is."""
    cluster: dict[str, Any] = _hosts(row)
    if boundless_gpu:
        # under its own name it keeps the kernel times that were measured on it
        cluster["gpu"] = {"base": boundless_gpu, "name": boundless_gpu, "memory": BOUNDLESS}
    return json.dumps(
        {
            "parc": 1,
            "name": row.id,
            "model": row.model,
            "cluster": cluster,
            "job": {
                "sequence_length": row.sequence,
                "global_batch": row.global_batch,
                "precision": row.precision,
                "gradient_precision": row.gradient_precision,
                **row.dispatch,
            },
            "layout": pins,
            "emit": ["megatron"],
        }
    )


def _plan(
    row: Published, pins: dict[str, Any], boundless_gpu: str = ""
) -> tuple[Plan | None, tuple[str, ...]]:
    """The plan, and the errors as code and message."""
    sink = Sink()
    source = Source(f"{row.id}.yaml", spec_text(row, pins, boundless_gpu), None)
    plan = plan_spec(source, row.overrides, sink)
    errors = tuple(
        f"{found.code.removeprefix('PARC-')} {found.finding.message}"
        for found in sink.diagnostics
        if found.severity == "error"
    )
    return plan, errors


def _hosts(row: Published) -> dict[str, Any]:
    library = Library(None)
    if row.hosts in library.names("clusters"):
        node = library.entry("clusters", row.hosts)["node"]
        base = {"base": row.hosts}
    else:
        node, base = row.hosts, {"node": row.hosts}
    return {**base, "nodes": row.gpus // int(library.entry("nodes", node)["gpus_per_node"])}


def _published(cells: dict[str, str]) -> Published:
    pins: dict[str, Any] = {name: int(cells[name]) for name in NUMBERS if cells[name]}
    if cells["recompute"]:
        pins["recompute"] = _recompute(cells["recompute"])
    if cells["pipeline_layout"]:
        pins["pipeline_layout"] = cells["pipeline_layout"]
    return Published(
        id=cells["id"],
        model=cells["model"],
        overrides=tuple(cells["set"].split()),
        hosts=cells["hosts"],
        gpus=int(cells["gpus"]),
        precision=cells["precision"],
        sequence=int(cells["sequence"]),
        global_batch=int(cells["global_batch"]),
        dispatch=_dispatch(cells),
        pins=pins,
        measured_seconds=float(cells["measured_seconds"]) if cells["measured_seconds"] else None,
        source=cells["source"],
    )


def _dispatch(cells: dict[str, str]) -> dict[str, Any]:
    named = {"moe_dispatcher": cells["moe_dispatcher"]} if cells["moe_dispatcher"] else {}
    return {**named, **({"moe_overlap": True} if cells["moe_overlap"] == "true" else {})}


def _recompute(text: str) -> Any:
    """none; ``selective:a+b``; ``full:uniform:1``."""
    word, *rest = text.split(":")
    if word == "selective":
        return {"granularity": word, "modules": rest[0].split("+")}
    if word == "full":
        return {"granularity": word, "method": rest[0], "layers": int(rest[1])}
    return word
