"""Main pipeline, the file to read first: spec -> problem -> layouts -> plan -> files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parc.backends.base import ConfigPrograms
from parc.backends.registry import backend, framework_of_problem
from parc.compiler.catalog.library import Library
from parc.compiler.checks.advise_batch import advise_batch
from parc.compiler.checks.advise_faster_layout import (
    advise_dispatch_library,
    advise_lower_precision,
    advise_riskier_layout,
)
from parc.compiler.checks.check_declared_fields import has_declared_fields
from parc.compiler.checks.check_group_sizes import check_group_sizes
from parc.compiler.checks.check_memory import check_host_memory, check_memory
from parc.compiler.checks.check_placement import check_placement
from parc.compiler.checks.check_profile import check_profile
from parc.compiler.checks.check_rank_order import has_valid_rank_order
from parc.compiler.checks.check_tensor_parallel_settings import check_tensor_parallel_settings
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.emit_files import emit_and_verify
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.estimate_run import complete_plan
from parc.compiler.ir import (
    AnyPlan,
    AnyProblem,
    Artifact,
    LockedPlan,
    Plan,
    Problem,
    ServingProblem,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.find_vacancies import restore_cluster
from parc.compiler.placement.fixed_hosts import keep_hosts
from parc.compiler.placement.place_ranks import place_ranks
from parc.compiler.placement.try_other_rank_order import (
    search_with_chosen_first,
    try_other_rank_order,
)
from parc.compiler.plugin_errors import (
    ReportPluginErrors,
    has_plugin,
    plugins_among,
    targets_of,
    targets_of_tree,
)
from parc.compiler.resolve.check_dependent_settings import check_dependent_settings
from parc.compiler.resolve.resolve_calibration import resolve_calibration
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.resolve.resolve_model import resolve_model_of_job
from parc.compiler.resolve.resolve_problem import resolve_problem
from parc.compiler.resolve.resolve_targets import resolve_targets
from parc.compiler.search.search_idle_hosts import search_with_idle_hosts
from parc.compiler.spec.fixes import withdraw_failed_fixes
from parc.compiler.spec.load import read_spec_tree, validate_spec_tree
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.spec import Spec

if TYPE_CHECKING:
    from parc.compiler.choose_cluster import PlannedJob

Watch = Callable[[str], None]
"""Function that is called with the name of a pass when the pass ends, for ``--timings``."""


MAX_TRIED_TEXT = 65_536
"""Maximum length in characters of a spec whose fixes are tried, because each trial reads it."""


MAX_TRIED_GPUS = 1_024
"""Maximum number of GPUs for which fixes are tried by planning, because a search takes time."""


@frozen
class ResolvedSpec:
    """Problem of a spec, and its plan if the choice of a cluster from a list has made it."""

    problem: AnyProblem
    planned: PlannedJob | None


def ignore_pass_end(_: str) -> None:
    """Do nothing. This is the default of ``after``, a function that is called after each pass."""


def resolve_spec(
    source: SpecSource, overrides: Sequence[str], sink: Sink, after: Watch = ignore_pass_end
) -> AnyProblem | None:
    """Return the problem that a spec describes, with names, units and defaults resolved.

    Returns None after reporting errors. The fix of each error is tried and removed if it does not
    work.
    """
    found = resolve_for_plan(source, overrides, sink, after)
    return None if found is None else found.problem


def resolve_for_plan(
    source: SpecSource, overrides: Sequence[str], sink: Sink, after: Watch = ignore_pass_end
) -> ResolvedSpec | None:
    """Return what ``plan_resolved`` needs; otherwise like ``resolve_spec``."""

    def findings_after(edits: Sequence[str]) -> Sink:
        tried = Sink()
        _resolve(source, (*overrides, *edits), tried, ignore_pass_end)
        return tried

    found = _resolve(source, overrides, sink, after)
    if sink.failed() and len(source.text) <= MAX_TRIED_TEXT:
        withdraw_failed_fixes(sink, findings_after)
    return found


def _resolve(
    source: SpecSource, overrides: Sequence[str], sink: Sink, after: Watch
) -> ResolvedSpec | None:
    """Return the problem of a spec; None after reporting errors.

    If the spec as a whole is invalid, the sections ``model`` and ``cluster`` are still checked, so
    that one run reports all mistakes.
    """
    tree = read_spec_tree(source, overrides, sink)
    if tree is not None and "site" in tree:
        from parc.compiler.resolve.apply_site import apply_site

        tree = apply_site(tree, _library_of(source), sink)
        after("apply_site")
    planned = None
    if tree is not None and isinstance(tree.get("cluster"), list):
        from parc.compiler.choose_cluster import choose_cluster

        tree, planned = choose_cluster(tree, sink, partial(_plan_tree, source)) or (None, None)
        after("choose_cluster")
    problem = None if tree is None else _resolve_tree(tree, source, sink, after)
    return None if problem is None else ResolvedSpec(problem, planned)


def _library_of(source: SpecSource) -> Library:
    """Return the catalog, with the files of the user that the spec may read."""
    return Library(source.folder, source.root or source.folder or Path())


def _plan_tree(source: SpecSource, tree: dict[str, Any], sink: Sink) -> PlannedJob | None:
    """Return the plan of the spec in ``tree``; None after reporting errors."""
    from parc.compiler.choose_cluster import PlannedJob

    problem = _resolve_tree(tree, source, sink, ignore_pass_end)
    if problem is None:
        return None
    findings = Sink(sink.positions)
    plan = plan_job(problem, findings)
    sink.extend(findings)
    return None if plan is None else PlannedJob(plan, findings)


def _needs_all_fields(problem: Problem) -> bool:
    """Return True if the job trains only those parts of a model that the spec can express."""
    target = framework_of_problem(problem)
    return not (isinstance(target, ConfigPrograms) and target.builds_model_from_config(problem))


def _resolve_tree(
    tree: dict[str, Any], source: SpecSource, sink: Sink, after: Watch
) -> AnyProblem | None:
    """Return the problem of the spec in ``tree``; None after reporting errors."""
    targets = targets_of_tree(tree)
    with ReportPluginErrors(sink, targets):
        is_valid = True
        if plugins_among(targets):
            from parc.compiler.check_plugins import check_plugins

            is_valid = check_plugins(targets, sink)
        problem = _resolve_sections(tree, source, sink, after)
        return problem if is_valid else None
    return None


def _resolve_sections(
    tree: dict[str, Any], source: SpecSource, sink: Sink, after: Watch
) -> AnyProblem | None:
    """Return the problem of the spec in ``tree``; None after reporting errors.

    Raises:
        PluginError: a target is a plugin with a defect.
    """
    spec = validate_spec_tree(tree, sink)
    after("load_spec")
    library = _library_of(source)
    if spec is None:
        from parc.compiler.check_invalid_spec import check_invalid_spec

        check_invalid_spec(tree, library, sink)
        return None
    model, left_out = resolve_model_of_job(spec, library, sink)
    after("resolve_model")
    if model is not None:
        check_dependent_settings(spec, model, sink)
    cluster = resolve_cluster(spec.cluster, library, sink)
    after("resolve_cluster")
    if model is None or cluster is None:
        resolve_targets(spec, sink)  # one run reports all mistakes
    if isinstance(spec, Spec):
        problem = None
        if model is not None and cluster is not None:
            calibration = resolve_calibration(spec.cluster, cluster, library, sink)
            problem = resolve_problem(spec, model, cluster, sink, calibration)
            after("resolve_problem")
        needs_all = problem is None or _needs_all_fields(problem)
        if needs_all:
            sink.extend(left_out)
        if problem is None or not has_declared_fields(spec, problem, sink, needs_all=needs_all):
            return None
        return problem if has_valid_rank_order(problem, sink) else None
    # An engine reads the config.json of the model itself, so it leaves nothing out.
    if model is None or cluster is None:
        return None
    from parc.compiler.serving_pipeline import resolve_serving

    service = resolve_serving(spec, model, cluster, library, sink)
    after("resolve_service")
    return service if has_declared_fields(spec, service, sink) else None


def plan_problem(
    problem: Problem, sink: Sink, after: Watch = ignore_pass_end, locked: LockedPlan | None = None
) -> Plan | None:
    """Return the best valid plan that fits into memory; None after reporting errors.

    If the lock file ``locked`` contains the layout of this plan, ranks stay on the hosts in the
    lock file.
    """
    target = framework_of_problem(problem)
    cost_model = cost_model_for(problem, target)
    search = search_with_idle_hosts(cost_model, sink)
    after("search_layouts")
    if search is None:
        return None
    layout = search.ranked[0].layout
    placed = keep_hosts(cost_model, layout, locked)
    after("keep_hosts")
    if placed is None:
        estimate = estimate_layout(cost_model, layout)
        after("estimate_layout")
        placement = place_ranks(problem, target, layout, estimate)
        after("place_ranks")
        placed = try_other_rank_order(cost_model, layout, estimate, placement)
        after("try_other_rank_order")
    search = search_with_chosen_first(search, placed)
    plan = complete_plan(cost_model, placed.layout, placed.estimate, placed.placement, search)
    check_plan(cost_model, plan, sink)
    after("check")
    return None if sink.failed() else plan


def check_plan(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report warnings and advice on a finished plan, and settings its backends cannot express."""
    check_memory(cost_model, plan, sink)
    check_host_memory(cost_model, plan, sink)
    check_placement(plan, sink)
    check_profile(plan, sink)
    check_group_sizes(plan, sink)
    check_tensor_parallel_settings(plan, sink)
    advise_dispatch_library(cost_model, plan, sink)
    advise_riskier_layout(cost_model, plan, sink)
    # A set, because the framework is usually one of the targets as well.
    for name in sorted({plan.problem.framework, *plan.problem.emit}):
        backend(name).check(plan, sink)
    if not sink.failed():
        advise_lower_precision(cost_model, plan, sink)
        advise_batch(cost_model, plan, sink)


def plan_job(
    problem: AnyProblem,
    sink: Sink,
    after: Watch = ignore_pass_end,
    locked: LockedPlan | None = None,
) -> AnyPlan | None:
    """Return the plan of a training or serving problem; None after reporting errors.

    The lock file ``locked`` is used only if the cluster still has all of its hosts. In that case,
    spare hosts that the lock file uses remain in use, and hosts that it lists as drained remain
    unused.
    """
    cluster = restore_cluster(problem.cluster, locked)
    if cluster is None:
        locked = None
    else:
        problem = replace(problem, cluster=cluster)
    plan: AnyPlan | None
    with ReportPluginErrors(sink, targets_of(problem)):
        if isinstance(problem, ServingProblem):
            from parc.compiler.serving_pipeline import plan_service

            plan = plan_service(problem, sink, after, locked)
        else:
            plan = plan_problem(problem, sink, after, locked)
        if plugins_among(targets_of(problem)):
            from parc.compiler.check_plugin_plan import check_plugin_plan

            check_plugin_plan(problem, plan, sink)
        assert plan is not None or sink.failed(), "there is neither a plan nor an error"
        return None if sink.failed() else plan
    return None


def plan_resolved(
    resolved: ResolvedSpec,
    sink: Sink,
    after: Watch = ignore_pass_end,
    locked: LockedPlan | None = None,
) -> AnyPlan | None:
    """Return the plan of a resolved spec; None after reporting errors.

    Without a lock file, the plan that the choice of a cluster made is not made again.
    """
    if resolved.planned is None or locked is not None:
        return plan_job(resolved.problem, sink, after, locked)
    sink.extend(resolved.planned.findings)
    return resolved.planned.plan


def plan_spec(
    source: SpecSource, overrides: Sequence[str], sink: Sink, after: Watch = ignore_pass_end
) -> AnyPlan | None:
    """Return the plan of the spec in ``source``; None after reporting errors."""
    found = resolve_for_plan(source, overrides, sink, after)
    if found is None:
        return None
    plan = plan_resolved(found, sink, after)
    if plan is None:
        try_fixes_of_plan(source, overrides, found.problem, sink)
    return plan


def try_fixes_of_plan(
    source: SpecSource, overrides: Sequence[str], problem: AnyProblem, sink: Sink
) -> None:
    """Try the fixes of the errors in ``sink``, and remove the fixes that do not work.

    The errors explain why ``problem`` has no plan. Fixes that edit ``layout`` or ``job`` are
    skipped, because they were tried when the errors were created.
    """

    def findings_after(edits: Sequence[str]) -> Sink:
        tried = Sink()
        changed = _resolve(source, (*overrides, *edits), tried, ignore_pass_end)
        if changed is not None:
            plan_resolved(changed, tried)
        return tried

    if problem.cluster.gpus <= MAX_TRIED_GPUS and len(source.text) <= MAX_TRIED_TEXT:
        withdraw_failed_fixes(sink, findings_after, tried=("layout", "job"))


def check_spec(source: SpecSource, overrides: Sequence[str], sink: Sink) -> None:
    """Report all findings of the spec in ``source`` that ``parc compile`` would report.

    Files are emitted only if they must be verified although they are not written.
    """
    plan = plan_spec(source, overrides, sink)
    if plan is not None and not sink.failed() and has_plugin(plan):
        emit_plan(plan, sink, report=False)


def emit_plan(
    plan: AnyPlan,
    sink: Sink,
    after: Watch = ignore_pass_end,
    *,
    report: bool = True,
    verify: bool = True,
) -> tuple[Artifact, ...]:
    """Return all files of ``plan``, sorted by path; without ``report.html`` if ``report`` is False.

    The files are then verified by code that does not share code with the emitters. Contradictions
    are reported to ``sink``. If ``verify`` is False, the files are not verified and must not be
    written. After a defect of a plugin, which is reported too, the result is empty.
    """
    with ReportPluginErrors(sink, plan.problem.emit):
        return emit_and_verify(plan, sink, after, report=report, verify=verify)
    return ()
