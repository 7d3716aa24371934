"""Emission of a plan: the files of all targets, and their verification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from parc.backends.registry import backend, serving_backend
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, ServingPlan
from parc.compiler.ir.finding import Diagnostic
from parc.compiler.plugin_errors import plugins_among

Watch = Callable[[str], None]
"""Function that is called with the name of each pass when the pass ends."""


def emit_and_verify(
    plan: AnyPlan, sink: Sink, after: Watch, *, report: bool, verify: bool
) -> tuple[Artifact, ...]:
    """Return all files of ``plan``; see ``emit_plan``.

    Raises:
        PluginError: a target is a plugin with a defect.
    """
    if isinstance(plan, ServingPlan) and plan.pair is not None:
        from parc.compiler.emit_pools import emit_pools

        artifacts = emit_pools(plan, lambda pool: _emit_files(pool, after, report=report))
    else:
        artifacts = _emit_files(plan, after, report=report)
    plugins = plugins_among(plan.problem.emit)
    if plugins:
        from parc.compiler.check_plugin_plan import check_plugin_files

        check_plugin_files(plan, artifacts, sink)
    if verify:
        from parc.compiler.verify.verify_pools import verify_output

        found = Sink(sink.positions)
        verify_output({artifact.path: artifact.text for artifact in artifacts}, found)
        sink.extend(found, change=partial(_with_plugins, plugins))
        after("verify_plan")
    return tuple(sorted(artifacts, key=lambda artifact: artifact.path))


def _with_plugins(plugins: tuple[str, ...], diagnostic: Diagnostic) -> Diagnostic:
    """Return an error of new files with the advice to repair the plugins that wrote them.

    Without plugins, the error is a bug in PARC, and stays as it is.
    """
    if not plugins or diagnostic.severity != "error":
        return diagnostic
    names = " or ".join(plugins)
    text = f"the files and the verifier of {names} contradict each other: repair the plugin"
    return replace(diagnostic, finding=replace(diagnostic.finding, help=text, fix=""))


def _emit_files(plan: AnyPlan, after: Watch, *, report: bool) -> tuple[Artifact, ...]:
    """Return the files of a plan with one output folder."""
    from parc.compiler.report.json.plan_json import lock_artifact, plan_artifact

    artifacts = [plan_artifact(plan)]
    if report:
        from parc.compiler.report.page.report_page import report_artifact

        artifacts.append(report_artifact(plan))
    after("report")
    for name in plan.problem.emit:
        if isinstance(plan, ServingPlan):
            artifacts += serving_backend(name).emit_serving(plan)
        else:
            artifacts += backend(name).emit(plan)
        after(f"emit {name}")
    # Last, because the lock file contains a digest of every other file.
    artifacts.append(lock_artifact(plan, artifacts))
    after("lock")
    return tuple(artifacts)
