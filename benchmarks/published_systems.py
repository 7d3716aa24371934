"""Verdict per system of the literature: predicted against published step time, and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.predict import with_features
from benchmarks.accuracy.problems import MEGATRON
from benchmarks.published_reasons import format_layout
from benchmarks.published_rows import PublishedLayout, cluster_gpu, plan_row
from parc.compiler.cost.counts.flops import layer_flops, model_flops
from parc.compiler.cost.memory.peak import peak_stage
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.ir import Layout, Model, StageMemory, StepTime
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import recompute_levels

SYSTEMS = Path(__file__).with_name("published_systems.yaml")
TOLERANCE = 0.15
"""Difference from which a cause must be named."""
CONVENTIONS = {
    "": "step time or throughput, no FLOPs",
    "causal": "model FLOPs, causal attention counted as half",
    "full": "model FLOPs, full attention",
    "hardware": "full attention, and the recomputed forward pass of all layers",
}
"""How a source counts FLOPs -> words for the table."""


@dataclass(frozen=True, slots=True)
class System:
    """A system of the literature; see the head of ``published_systems.yaml``."""

    id: str
    system: str
    figure: str = ""
    flops: str = ""
    stack: str = ""
    zero: int | None = None
    features: str = ""
    reading: str = ""
    gap: str = ""
    check: Mapping[str, Any] = field(default_factory=dict)
    """Changes that test ``gap``: ``pins``, ``dispatch``, ``overrides`` and ``global_batch`` of the
    row, and ``attention_of``, a class whose attention kernels are used."""


@dataclass(frozen=True)
class Verdict:
    """Published and predicted step time and memory of a system."""

    system: System
    row: PublishedLayout
    layout: Layout
    published_seconds: float
    time: StepTime
    peak: StageMemory
    device_bytes: float
    checked: Verdict | None = None
    """The same with the changes of ``system.check``."""

    @property
    def difference(self) -> float:
        """Predicted step time over the published one, minus one."""
        return self.time.total_seconds / self.published_seconds - 1

    @cached_property
    def missing_bytes(self) -> float:
        """Low end of the memory interval minus the device memory, in bytes; 0 if the layout fits.

        The run needed no headroom, so the limit is the whole device memory.
        """
        return max(0.0, self.peak.low_bytes - self.device_bytes)


def read_systems(path: Path = SYSTEMS) -> tuple[tuple[System, ...], Mapping[str, str]]:
    """Return the systems, and those that cannot be evaluated with the reason."""
    tree: dict[str, Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    excluded = tree.pop("not_evaluated")
    return tuple(System(id=name, **facts) for name, facts in tree.items()), excluded


def evaluate(system: System, row: PublishedLayout) -> Verdict:
    """Return the verdict on a system, and on its variant that tests the cause of a difference."""
    found = _predict_system(system, row)
    if not system.check:
        return found
    changes = dict(system.check)
    attention_of = changes.pop("attention_of", "")
    for name in ("pins", "dispatch"):
        changes[name] = {**getattr(row, name), **changes.get(name, {})}
    changes["overrides"] = (*row.overrides, *changes.get("overrides", ()))
    return replace(found, checked=_predict_system(system, replace(row, **changes), attention_of))


def _predict_system(system: System, row: PublishedLayout, attention_of: str = "") -> Verdict:
    """Predict the published layout with the software stack of the run.

    Raises:
        ValueError: a rule rejects the layout.
    """
    gpu = cluster_gpu(row)
    # memory is compared below, so the layout is planned on a device that is large enough
    plan, errors = plan_row(row, row.pins)
    if plan is None:
        plan, errors = plan_row(row, row.pins, gpu.name)
    if plan is None:
        raise ValueError(f"{row.id}: {'; '.join(errors)}")
    stack = class_row(f"{gpu.generation}/{system.stack}") if system.stack else None
    cost_model = cost_model_for(plan.problem, MEGATRON, stack)
    cost_model.efficiency = with_features(cost_model.efficiency, system.features)
    if attention_of:
        other = class_row(f"{gpu.generation}/{attention_of}")
        cost_model.efficiency = replace(
            cost_model.efficiency,
            attention=other.attention,
            flash_attention_2=other.flash_attention_2,
        )
    zero = plan.layout.zero_stage if system.zero is None else system.zero
    layout = replace(plan.layout, zero_stage=zero)
    if "recompute" not in row.pins:
        layout = _with_cheapest_recompute(cost_model, layout, gpu.memory_bytes)
    # With a pipeline, FSDP gathers and reduces once per step: torch's pipeline stages reshard after
    # the last micro-batch (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
    timed = replace(layout, zero_stage=min(zero, 1)) if layout.pp > 1 else layout
    return Verdict(
        system,
        row,
        layout,
        published_seconds(system, row, cost_model),
        step_time(cost_model, timed),
        peak_stage(cost_model, layout),
        gpu.memory_bytes,
    )


def _with_cheapest_recompute(cost_model: CostModel, layout: Layout, limit_bytes: float) -> Layout:
    """Return ``layout`` with the cheapest recompute level that fits at the low end of its interval.

    This is the rule of ``benchmarks/accuracy`` for runs that do not state it.
    """
    for level in recompute_levels(cost_model.problem, MEGATRON):
        candidate = replace(layout, recompute=level)
        if peak_stage(cost_model, candidate).low_bytes <= limit_bytes:
            return candidate
    return layout


def published_seconds(system: System, row: PublishedLayout, cost_model: CostModel) -> float:
    """Return the step time that the source states or implies.

    TFLOP/s are converted by the FLOPs per step in the convention of the source.
    """
    if not system.figure:
        if row.measured_seconds is None:
            raise ValueError(f"{row.id} states neither a step time nor a throughput")
        return row.measured_seconds
    number, unit = system.figure.split()
    tokens = row.global_batch * row.sequence
    if unit == "tokens/s":
        return tokens / (float(number) * row.gpus)
    flops = counted_flops(cost_model.problem.model, tokens, row.sequence, system.flops)
    return flops / (float(number) * 1e12 * row.gpus)


def counted_flops(model: Model, tokens: float, sequence: int, convention: str) -> float:
    """Return the FLOPs per step over ``tokens`` tokens as ``convention`` counts them.

    The output projection is never recomputed, as in Megatron's formula 96 B s l h^2 (1 + s / (6 h)
    + V / (16 l h)) of arXiv:2104.04473, section 5.1.
    """
    causal = model_flops(model, tokens, sequence)
    kinds = Counter(model.layer_kinds)
    layers = [(kinds[kind], layer_flops(model, kind, tokens, sequence)) for kind in model.kinds]
    core = sum(count * flops.attention_core for count, flops in layers)
    if convention == "causal":
        return causal
    if convention == "full":
        return causal + 3 * core
    if convention == "hardware":
        return causal + 4 * core + sum(count * flops.total for count, flops in layers)
    raise ValueError(f"unknown FLOP convention {convention!r}")


def systems_page(verdicts: Sequence[Verdict], excluded: Mapping[str, str]) -> str:
    """Return the section of the page: table, causes of large differences, and readings."""
    close = sum(abs(found.difference) <= TOLERANCE for found in verdicts)
    fits = sum(not found.missing_bytes for found in verdicts)
    lines = [
        "## Systems of the literature",
        "",
        f"{close} of {len(verdicts)} published step times are predicted within 15 %, and {fits} of",
        f"the {len(verdicts)} layouts, all of which ran, are predicted to fit. The prediction uses",
        "the hardware class of the run's own software, for example kernels without FlashAttention",
        "for 2021 and 2022. Values that a source does not state were read by the rules below, with",
        "the measured step time known, so this table is not a blind test. TFLOP/s are converted to",
        "seconds by PARC's FLOP counter in the convention of the source:",
        "",
        *(f"- *{word}*: {meaning}." for word, meaning in CONVENTIONS.items() if word),
        "",
        "A layout *fits* if the low end of its memory interval is below the memory of the device,",
        "without headroom. Recomputation that the source does not state is the cheapest that fits;",
        "other values are those of the fastest layout, unless the list below has another one.",
        "",
        "| system | layout | GPUs | published | FLOPs | published, s | predicted, s | difference "
        "| fits | source |",
        "|---|---|---:|---:|---|---:|---:|---:|---|---|",
        *(_system_row(found) for found in verdicts),
        *(f"| {name} | - | - | - | - | - | - | - | - | {why} |" for name, why in excluded.items()),
        "",
    ]
    far = [found for found in verdicts if abs(found.difference) > TOLERANCE]
    lines += ["Differences beyond 15 %:", ""] if far else []
    for found in sorted(far, key=lambda item: -abs(item.difference)):
        cause = found.system.gap or "cause unknown."
        lines.append(
            f"- `{found.row.id}`, {100 * found.difference:+.1f} %: {cause}{_check_words(found)} "
            f"Predicted step: {_largest_terms(found)}."
        )
    lines += [""] if far else []
    lines += ["How the sources were read:", ""]
    lines += [
        f"- `{found.row.id}`: {found.system.reading}" for found in verdicts if found.system.reading
    ]
    return "\n".join([*lines, ""])


def _system_row(found: Verdict) -> str:
    row, system = found.row, found.system
    missing = (
        f"no, {found.missing_bytes / 2**30:.1f} GiB too many" if found.missing_bytes else "yes"
    )
    cells = [
        f"{system.system} (`{row.id}`)",
        format_layout(found.layout) + (f" zero{system.zero}" if system.zero else ""),
        f"{row.gpus:,}",
        system.figure or f"{found.published_seconds:.3g} s",
        system.flops or "-",
        f"{found.published_seconds:.3g}",
        f"{found.time.total_seconds:.3g}",
        f"{100 * found.difference:+.1f} %",
        missing,
        row.source,
    ]
    return f"| {' | '.join(cells)} |"


def _check_words(found: Verdict) -> str:
    """Return the difference that is left with the tested changes."""
    if found.checked is None:
        return ""
    return f" With it, the difference is {100 * found.checked.difference:+.1f} %."


def _largest_terms(found: Verdict) -> str:
    """Return the largest terms of the predicted step as shares of it."""
    names = ("compute", "recompute", "tp", "cp", "ep", "pp", "bubble", "dp", "optimizer")
    terms = {name: getattr(found.time, f"{name}_seconds") for name in names}
    largest = sorted(terms.items(), key=lambda item: -item[1])[:4]
    total = found.time.total_seconds
    return ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in largest)
