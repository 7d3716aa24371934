"""A Megatron launch as a problem and a layout: whole for wording, partial for judging."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from parc.backends.megatron.backend import BACKEND
from parc.backends.megatron.meshes import ORDERS
from parc.backends.megatron.stages.layout_string import LayoutStringError, parse
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_ZERO_PLUS,
    Layout,
    Problem,
    Split,
)
from parc.compiler.pipeline import resolve_spec
from parc.compiler.search.enumerate_layouts import floor_split
from parc.compiler.spec.reading.source import Source
from parc.compiler.tools.lint.added import cluster_tree, known_cluster
from parc.compiler.tools.lint.more import More
from parc.compiler.tools.lint.unknown import changed, without

STAND_IN = {"layers": 2, "hidden": 128, "heads": 2, "ffn": 512, "vocab": 32_000}
"""Sizes of a model where the script has none; no rule is asked about them."""
OF_HEADS = ("kv_heads", "head_dim")
DEFAULTS = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "zero_stage": 0}
"""Megatron's own (megatron/training/arguments.py); etp is tp."""
EXPERTS = {"count": 2, "top_k": 1, "size": 128}
SPLITTING = ("first_stage_layers", "last_stage_layers", "pipeline_layout")
FIELDS = {
    "recompute": ("recompute", "recompute.granularity", "recompute.method", "recompute.layers"),
    "split": ("vpp", "pp", *SPLITTING, "count_embedding", "count_loss"),
    "schedule": ("vpp", "pp"),
}
"""Field of a layout -> pins that it follows from, where it is not one itself."""

Known = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Facts:
    """``problem`` and ``layout`` have a value everywhere, the other two only where one is known."""

    problem: Problem
    layout: Layout
    known_problem: Problem
    known_layout: Layout
    guessed_experts: bool
    """Nobody says whether the model routes to experts."""


def megatron_facts(
    spec: Mapping[str, Any], known: Known, more: More
) -> tuple[Facts | None, tuple[Diagnostic, ...]]:
    """The launch of ``spec``, a fragment, and what its values alone break; None where all does."""
    tree = _tree(spec, more)
    trial = Sink()
    problem = resolve_spec(Source("lint", json.dumps(tree), more.folder), (), trial)
    if any(found.code == "PARC-D07" for found in trial.diagnostics) and more.model is None:
        tree["model"]["head_dim"] = STAND_IN["hidden"]
        problem = resolve_spec(Source("lint", json.dumps(tree), more.folder), (), Sink())
    if not isinstance(problem, Problem):
        return None, trial.diagnostics
    partial = _known_problem(problem, known, more)
    layout, partial_layout = _layouts(problem, partial, known)
    guessed = more.model is None and not known("model.experts.count")
    return Facts(problem, layout, partial, partial_layout, guessed), trial.diagnostics


def gpus_known(known: Known, more: More) -> bool:
    """Whether the size of the job is known."""
    whole = known("cluster.nodes") and known("cluster.node.gpus_per_node")
    return more.gpus is not None or whole


def _tree(spec: Mapping[str, Any], more: More) -> dict[str, Any]:
    """A spec that is complete."""
    model: Any = more.model
    if model is None:
        written = dict(spec.get("model", {}))
        if "heads" not in written:
            written = {key: size for key, size in written.items() if key not in OF_HEADS}
        elif "hidden" not in written:
            written["hidden"] = written["heads"] * STAND_IN["hidden"]
        model = {**STAND_IN, "name": "the model", **written}
        position = {"max_positions": 1 << 30, **model.get("position", {})}
        model["position"] = position
        experts = model.pop("experts", {})
        if "count" in experts:
            model["experts"] = {**EXPERTS, **experts}
        elif not model["ffn"]:
            model["ffn"] = 4 * model["hidden"]
    job = {"sequence_length": 4096, "global_batch": 1, "precision": "bf16"} | {
        key: value
        for key, value in spec.get("job", {}).items()
        if key in ("sequence_length", "global_batch", "precision", "gradient_precision")
    }
    counted = {"count_embedding": False, "count_loss": False}
    layout = _interleaved({**counted, **spec.get("layout", {})})
    return {
        "parc": 1,
        "name": "lint",
        "model": model,
        "cluster": cluster_tree(spec.get("cluster", {}), more),
        "job": job,
        "layout": layout,
        "emit": ["megatron"],
        "versions": {"megatron": more.version},
    }


def _interleaved(layout: dict[str, Any]) -> dict[str, Any]:
    """A layout string says by itself how many virtual stages there are."""
    text = layout.get("pipeline_layout")
    if text is None or "vpp" in layout:
        return layout
    with suppress(LayoutStringError):
        stages, pp = len(parse(text)), layout.get("pp", 1)
        if stages % pp == 0:
            layout["vpp"] = stages // pp
    return layout


def _known_problem(problem: Problem, known: Known, more: More) -> Problem:
    """``problem`` without what nobody said."""
    job = {"sequence_length", "global_batch", "precision"}
    shared = more.gpus is not None or known("cluster.node.gpus_per_node")
    cluster = known_cluster(problem.cluster, more, shared, gpus_known(known, more))
    partial = changed(
        problem,
        job=without(problem.job, [one for one in job if not known(f"job.{one}")]),
        cluster=cluster,
    )
    if more.model is None:
        partial = changed(partial, model=_known_model(problem, known))
    return partial


def _known_model(problem: Problem, known: Known) -> Any:
    model = problem.model
    plain = ("layers", "hidden", "vocab", "mtp_layers")
    hidden = [one for one in plain if not known(f"model.{one}")]
    if not known("model.ffn") and not known("model.hidden"):
        hidden.append("ffn")
    if not known("model.heads"):
        hidden.append("attention")
    else:
        model = changed(model, attention=without(model.attention, _unsaid_of_heads(known)))
    if not known("model.position.max_positions"):
        hidden.append("position")
    if model.experts is not None:
        unsaid = [one for one in ("top_k", "size") if not known(f"model.experts.{one}")]
        model = changed(model, experts=without(model.experts, unsaid))
    elif not known("model.experts.count"):
        hidden.append("experts")
    return without(model, hidden)


def _unsaid_of_heads(known: Known) -> list[str]:
    """Fields of attention that nobody said; the width of a head follows from the hidden one."""
    unsaid = [one for one in ("kv_heads", "latent") if not known(f"model.{one}")]
    width = known("model.head_dim") and known("model.hidden")
    return unsaid if width else [*unsaid, "head_dim"]


def _layouts(problem: Problem, partial: Problem, known: Known) -> tuple[Layout, Layout]:
    """The layout with stand-ins, and the one that is known."""
    pins = problem.pins
    sizes = {name: getattr(pins, name) or default for name, default in DEFAULTS.items()}
    tp, cp, pp, vpp = (sizes[name] for name in ("tp", "cp", "pp", "vpp"))
    gpus = problem.cluster.gpus
    dp = max(gpus // (tp * cp * pp), 1)
    replicas = dp if sizes["zero_stage"] == 0 else 1
    split = _split(problem, pp, vpp)
    whole = Layout(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        ep=sizes["ep"],
        zero_stage=sizes["zero_stage"],
        dp_replicate=replicas,
        dp_shard=dp // replicas,
        etp=pins.etp or tp,
        micro_batch=pins.micro_batch or 1,
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=bool(pins.sequence_parallel),
        recompute=pins.recompute or BACKEND.recomputes(problem)[0],
        split=split,
        order=pins.order or ORDERS[0],
        cp_comm=pins.cp_comm or "p2p",
        cp_a2a=pins.cp_a2a or 1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
    )
    hidden = [name for name in _fields() if not _said(name, known)]
    tiled = all(_said(name, known) for name in ("tp", "cp", "pp"))
    if not tiled or "racks" not in _present(partial):
        hidden += ["dp_replicate", "dp_shard"]
    if "layers" not in _present_model(partial):
        hidden.append("split")
    return whole, without(whole, set(hidden))


def _fields() -> tuple[str, ...]:
    return (*DEFAULTS, "etp", "micro_batch", "sequence_parallel", "order", *FIELDS)


def _said(name: str, known: Known) -> bool:
    if name == "etp":
        return known("layout.etp") and known("layout.tp")
    return all(known(f"layout.{pin}") for pin in FIELDS.get(name, (name,)))


def _present(problem: Problem) -> set[str]:
    """Fields of the cluster that are there."""
    return {name for name in ("racks", "gpu") if hasattr(problem.cluster, name)}


def _present_model(problem: Problem) -> set[str]:
    model = getattr(problem, "model", None)
    return {name for name in ("layers", "experts") if hasattr(model, name)}


def _split(problem: Problem, pp: int, vpp: int) -> Split:
    """How the flags cut the model: without one of them Megatron's own way, which is even."""
    found = BACKEND.splits(problem, pp, vpp)
    pins = problem.pins
    said = pins.count_embedding or pins.count_loss or any(getattr(pins, one) for one in SPLITTING)
    if found is None or (not said and found.form != "even"):
        return floor_split(problem.model.layers, pp, vpp)
    return found
