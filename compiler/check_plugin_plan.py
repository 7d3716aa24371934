"""Checks of a plan whose framework or engine is a plugin, before PARC shows it.

Built-in backends are tested, and their rules report what they cannot express. The rules of a plugin
may be incomplete, so the plan is compared with the spec here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from math import isfinite
from typing import Any

from parc.backends.plugin_error import CODE, REPAIR, PluginProblem
from parc.backends.plugin_members import mesh_defect
from parc.backends.plugins import plugin_owner
from parc.backends.registry import engine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import AnyPlan, AnyProblem, Artifact, Plan, Problem, ServingPlan
from parc.compiler.ir.serving import POOLS
from parc.compiler.plugin_errors import plugins_among, report_problem, targets_of
from parc.compiler.report.formatting import format_percent

NO_REASON = (
    "leaves no layout, and no error states why: a rule may list too few fields in reads, or a "
    "value in the memory model or in the stack may be wrong"
)
_MEMBERS = {
    "recompute": "recompute_settings",
    **dict.fromkeys(("first_stage_layers", "last_stage_layers", "pipeline_layout"), "find_split"),
    **dict.fromkeys(("count_embedding", "count_loss"), "find_split"),
}
"""Field of section ``layout`` -> member of a framework that determines the value in a plan; all
other values are determined by ``layout_variants``."""
_SERVING_SIZES = ("tp", "pp", "dp", "ep", "pcp", "dcp", "replicas")


def check_plugin_plan(problem: AnyProblem, plan: AnyPlan | None, sink: Sink) -> None:
    """Report defects of the plugins of ``problem`` that show in its plan.

    If there is neither a plan nor an error, that is reported too: only rules and cost traits of a
    plugin can remove all layouts without a reason.
    """
    plugins = plugins_among(targets_of(problem))
    if plan is None:
        if not sink.failed():
            name = problem.framework if problem.framework in plugins else plugins[0]
            _report(name, NO_REASON, problem, sink)
    elif problem.framework in plugins:
        _report_plan(plan, problem, sink)


def _report_plan(plan: AnyPlan, problem: AnyProblem, sink: Sink) -> None:
    """Report the defects of a plan whose framework or engine is a plugin."""
    name = problem.framework
    if isinstance(plan, Plan):
        assert isinstance(problem, Problem)
        ignored = [*_ignored_values(plan)]
        expert = plan.placement.expert if problem.model.experts is not None else None
        mesh = mesh_defect(plan.layout, plan.placement.dense, expert)
        if mesh and not ignored:
            _report(name, f"gives this layout wrong meshes: {mesh}", problem, sink)
        numbers = [*_training_numbers(plan)]
    else:
        ignored = [found for one in plan.pools for found in _ignored_sizes(one)]
        numbers = [found for one in plan.pools for found in _serving_numbers(one)]
    for path, defect in ignored:
        hint = f"if {name} does not support {path}, remove it, or list another target in emit"
        found = PluginProblem(name, f"{plugin_owner(name).distribution} {defect}", REPAIR, hint)
        sink.report(CODE, found.finding(), at=path)
    for text in numbers:
        _report(name, f"leads to an impossible plan: {text}", problem, sink)


def _report(name: str, defect: str, problem: AnyProblem, sink: Sink) -> None:
    message = f"{plugin_owner(name).distribution} {defect}"
    report_problem(PluginProblem(name, message, REPAIR), targets_of(problem), sink)


def _ignored_values(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (spec path, defect) of each value that the spec fixes and the plan does not have."""
    pins = plan.problem.pins
    for one in fields(pins):
        wanted = getattr(pins, one.name)
        if wanted is None or one.name == "placement":
            continue
        found = _planned_value(plan, one.name)
        # Sequence parallelism and the exchange of context parallelism need several ranks.
        alone = {
            "sequence_parallel": plan.layout.tp,
            "cp_comm": plan.layout.cp,
            "cp_a2a": plan.layout.cp,
        }
        if found != wanted and alone.get(one.name) != 1:
            member = _MEMBERS.get(one.name, "layout_variants")
            yield f"layout.{one.name}", f"ignores the value in {member}(){_values(wanted, found)}"


def _planned_value(plan: Plan, name: str) -> Any:
    """Return the value in ``plan`` of the field ``name`` of ``Pins``."""
    layout, split = plan.layout, plan.layout.split
    if name in ("first_stage_layers", "last_stage_layers"):
        return split.stage_layers(0 if name.startswith("first") else layout.pp - 1)
    if name == "pipeline_layout":
        return split.text
    return getattr(split if name.startswith("count_") else layout, name)


def _values(wanted: object, found: object) -> str:
    """Return the values of a setting in the spec and in the plan as the end of a sentence."""
    texts = [
        f"{one or 'none'}" if isinstance(one, str) else f"{one!r:.100}" for one in (wanted, found)
    ]
    return f": the spec has {texts[0]}, the plan {texts[1]}"


def _ignored_sizes(plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """Yield (spec path, defect) of each size that the spec fixes and the plan does not have."""
    for name in _SERVING_SIZES:
        wanted, found = getattr(plan.problem.pins, name), getattr(plan.layout, name)
        if isinstance(wanted, int) and wanted != found:
            yield f"layout.{name}", f"ignores the value{_values(wanted, found)}"


def _training_numbers(plan: Plan) -> Iterator[str]:
    """Yield the first estimated number that no job can have."""
    estimate = plan.estimate
    figures = {
        "the step takes": estimate.time.total_seconds,
        "the low end of the step time is": estimate.step_low_seconds,
        "tokens per second:": estimate.tokens_per_second,
        "bytes of the fullest stage:": estimate.peak.total_bytes,
    }
    yield from _invalid(figures)
    if estimate.mfu > 1:
        yield (
            f"its MFU is {format_percent(estimate.mfu)}, must be at most 100 %; "
            "the factors in stack or the layers in find_split() are wrong"
        )


def _serving_numbers(plan: ServingPlan) -> Iterator[str]:
    """Yield the first estimated number that no service can have."""
    estimate = plan.estimate
    yield from _invalid(
        {
            "the time to the first token is": estimate.ttft_seconds,
            "the time per output token is": estimate.tpot_seconds,
            "output tokens per second:": estimate.tokens_per_second,
        }
    )


def _invalid(figures: dict[str, float]) -> Iterator[str]:
    found = ((name, value) for name, value in figures.items() if not isfinite(value) or value <= 0)
    for name, value in found:
        yield f"{name} {value:.3g}, must be above 0"
        return


def check_plugin_files(plan: AnyPlan, artifacts: Iterable[Artifact], sink: Sink) -> None:
    """Report plugins that emit no file (A13), and engines that do not emit their script (X23)."""
    plugins = plugins_among(plan.problem.emit)
    parts = [one.path.split("/") for one in artifacts]
    paths = {"/".join(one[1:] if one[0] in POOLS else one) for one in parts}
    owners = {path.partition("/")[0].partition(".")[0] for path in paths}
    for name in plugins:
        if name not in owners:
            finding = Finding(f"{name} emits no file for this job", fix="remove it from emit")
            sink.report("A13", finding, at="emit")
        elif isinstance(plan, ServingPlan) and name == plan.problem.framework:
            script = engine(name).host_script
            if script not in paths:
                defect = f"does not emit {script}, which its member host_script names"
                _report(name, defect, plan.problem, sink)
