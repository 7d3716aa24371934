"""PublishedLayout layouts, each compiled twice: without a fixed layout, and with the published one.

Blank cells are left to the compiler. A published layout that is predicted not to fit is still
evaluated, on a device with more memory.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parc.backends.registry import framework_of_problem
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Estimate, Gpu, Layout, Plan
from parc.compiler.ir.divisors import divisors
from parc.compiler.pipeline import plan_spec
from parc.compiler.placement.fixed_hosts import evaluate_hosts, plan_on_hosts
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.reading.source import SpecSource

TABLE = Path(__file__).with_name("published_layouts.csv")
INTEGER_PINS = (
    *("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"),
    *("zero_stage", "first_stage_layers", "last_stage_layers"),
)
"""Columns of the table that are integer pins."""
AMPLE_MEMORY = "10 TB"
"""Device memory used to evaluate a layout that does not fit."""


@dataclass(frozen=True, slots=True)
class PublishedLayout:
    """A line of the table: a job, and the layout that its source ran or recommends."""

    id: str
    model: str
    """Catalog name."""
    overrides: tuple[str, ...]
    """Changes to the spec, in the syntax of ``parc --set``."""
    hosts: str
    """Catalog name of a node type or a cluster."""
    gpus: int
    precision: str
    sequence: int
    """Tokens."""
    global_batch: int
    """Sequences."""
    dispatch: dict[str, Any]
    """``moe_dispatcher`` and ``moe_overlap`` of the job: how tokens are sent to their experts."""
    pins: dict[str, Any]
    """``layout:`` of the spec."""
    measured_seconds: float | None
    """Step time, if the source states or implies one."""
    source: str

    @property
    def gradient_precision(self) -> str:
        """Format of gradients; the performance recipes of Megatron-Bridge reduce in 16 bit."""
        return "bf16" if self.is_recipe else "fp32"

    @property
    def is_recipe(self) -> bool:
        """True for a performance recipe of Megatron-Bridge, whose step time may be unpublished."""
        return "Megatron-Bridge" in self.source

    @property
    def family(self) -> str:
        """Group of the summary to which the row belongs."""
        if not self.is_recipe:
            return "nanotron's sweep" if "nanotron" in self.source else "papers and benchmarks"
        return "NVIDIA recipes, " + ("MoE" if "ep" in self.pins else "dense")


@dataclass(frozen=True, slots=True)
class Comparison:
    """PARC's estimates of a published layout and of its own pick."""

    row: PublishedLayout
    pick: Plan | None
    """PARC's plan without pins; None if there is none."""
    layout: Layout | None
    """PublishedLayout layout; None if a rule rejects it."""
    estimate: Estimate | None
    rule_errors: tuple[str, ...]
    """Codes and messages of the rules that reject the layout, or the whole job."""

    @property
    def fits(self) -> bool:
        """True if the low end of the published layout's memory interval is below device memory."""
        if self.pick is None or self.estimate is None:
            return False
        return self.estimate.peak.low_bytes <= self.pick.problem.cluster.gpu.memory_bytes

    @property
    def difference(self) -> float:
        """Predicted step time of the published layout over that of the pick, minus one."""
        if self.pick is None or self.estimate is None:
            raise ValueError(f"{self.row.id}: a rejected layout has no estimate")
        return self.estimate.time.total_seconds / self.pick.estimate.time.total_seconds - 1


def read_table(path: Path = TABLE) -> tuple[PublishedLayout, ...]:
    """Read the table.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_parse_row(cells) for cells in csv.DictReader(file))


def compare_with_choice(row: PublishedLayout) -> Comparison:
    """Compile the row without pins and with pins."""
    pick, errors = plan_row(row, {})
    if pick is None:
        return Comparison(row, None, None, None, errors)
    plan, errors = plan_row(row, row.pins)
    # A layout that violates no rule except memory still has a step time to compare.
    if plan is None and all(error.startswith(f"{OVERSIZED} ") for error in errors):
        plan, errors = plan_row(row, row.pins, pick.problem.cluster.gpu.name)
    if plan is None:
        return Comparison(row, pick, None, None, errors)
    return Comparison(row, pick, plan.layout, plan.estimate, ())


def cluster_gpu(row: PublishedLayout) -> Gpu:
    """Return the GPU of the hosts of ``row``."""
    tree = {**_cluster_section(row), "nodes": 1}
    cluster = resolve_cluster(ClusterSpec.model_validate(tree), Library(None), Sink())
    assert cluster is not None  # a test checks the names of hosts
    return cluster.gpu


def spec_text(row: PublishedLayout, pins: dict[str, Any], ample_memory_gpu: str = "") -> str:
    """Return the spec of a row. ``ample_memory_gpu`` gets AMPLE_MEMORY."""
    cluster: dict[str, Any] = _cluster_section(row)
    if ample_memory_gpu:
        # the GPU keeps its name, because kernel timings are looked up by name
        cluster["gpu"] = {
            "base": ample_memory_gpu,
            "name": ample_memory_gpu,
            "memory": AMPLE_MEMORY,
        }
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
            # The sources state no graphs of layers; an override sets them where a recipe does. No
            # source uses Megatron-FSDP.
            "layout": {"cuda_graphs": False, **({"zero_stage": 1, **pins} if pins else {})},
            "emit": ["megatron"],
        }
    )


def plan_row(
    row: PublishedLayout, pins: dict[str, Any], ample_memory_gpu: str = ""
) -> tuple[Plan | None, tuple[str, ...]]:
    """Return the plan, and the errors as code and message.

    With ``pins``, the plan has the stages that the framework makes of them, because that is what
    the published run had; the search would balance the stages.
    """
    sink = Sink()
    source = SpecSource(f"{row.id}.yaml", spec_text(row, pins, ample_memory_gpu), None)
    plan = plan_spec(source, row.overrides, sink)
    assert plan is None or isinstance(plan, Plan)  # the spec describes a training job
    errors = tuple(
        f"{found.code.removeprefix('PARC-')} {found.finding.message}"
        for found in sink.diagnostics
        if found.severity == "error"
    )
    return (_with_framework_split(plan) if plan is not None and pins else plan), errors


def _with_framework_split(plan: Plan) -> Plan:
    """Return ``plan`` with the split of the layers that the framework itself makes."""
    problem, layout = plan.problem, plan.layout
    target = framework_of_problem(problem)
    own = target.find_split(problem, layout.pp, layout.vpp)
    if own is None or own == layout.split:
        return plan
    cost_model = cost_model_for(problem, target)
    hosts = [host.name for host in plan.placement.hosts]
    found = plan_on_hosts(cost_model, replace(layout, split=own), hosts)
    return plan if found is None else evaluate_hosts(cost_model, found)


def _cluster_section(row: PublishedLayout) -> dict[str, Any]:
    """Return ``cluster:`` of the spec. The node is a mapping, so that overrides can change it.

    A job on several NVLink domains has equally many hosts in each of them, as Slurm allocates them
    with ``--segment``: 64 of the 72 GPUs of a rack for 256 GPUs.
    """
    library = Library(None)
    base: dict[str, Any]
    if row.hosts in library.names("clusters"):
        node = library.entry("clusters", row.hosts)["node"]
        base = {"base": row.hosts}
    else:
        node, base = row.hosts, {"node": {"base": row.hosts}}
    entry = library.entry("nodes", node)
    gpus = int(entry["gpus_per_node"])
    nodes, most = row.gpus // gpus, int(entry.get("nvlink_domain", gpus)) // gpus
    if most > 1 and nodes > most and "node" in base:
        base["node"]["nvlink_domain"] = gpus * max(
            divisor for divisor in divisors(nodes) if divisor <= most
        )
    return {**base, "nodes": nodes}


def _parse_row(cells: dict[str, str]) -> PublishedLayout:
    pins: dict[str, Any] = {name: int(cells[name]) for name in INTEGER_PINS if cells[name]}
    if cells["recompute"]:
        pins["recompute"] = _parse_recompute(cells["recompute"])
    if cells["pipeline_layout"]:
        pins["pipeline_layout"] = cells["pipeline_layout"]
    return PublishedLayout(
        id=cells["id"],
        model=cells["model"],
        overrides=tuple(cells["set"].split()),
        hosts=cells["hosts"],
        gpus=int(cells["gpus"]),
        precision=cells["precision"],
        sequence=int(cells["sequence"]),
        global_batch=int(cells["global_batch"]),
        dispatch=_dispatch_settings(cells),
        pins=pins,
        measured_seconds=float(cells["measured_seconds"]) if cells["measured_seconds"] else None,
        source=cells["source"],
    )


def _dispatch_settings(cells: dict[str, str]) -> dict[str, Any]:
    named = {"moe_dispatcher": cells["moe_dispatcher"]} if cells["moe_dispatcher"] else {}
    return {**named, **({"moe_overlap": True} if cells["moe_overlap"] == "true" else {})}


def _parse_recompute(text: str) -> Any:
    """Parse ``none``, ``selective:a+b`` or ``full:uniform:1``."""
    word, *rest = text.split(":")
    if word == "selective":
        return {"granularity": word, "modules": rest[0].split("+")}
    if word == "full":
        return {"granularity": word, "method": rest[0], "layers": int(rest[1])}
    return word
