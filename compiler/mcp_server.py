"""Server for the Model Context Protocol: check, estimate, search, explain and diff as tools.

The tools only read files below one folder (and configs in the cache of Hugging Face, which a spec
names by hub ids), write nothing, and use no network. The SDK ``mcp`` is an optional dependency;
only ``serve`` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.render.json_document import diagnostics_document
from parc.compiler.ir import AnyPlan
from parc.compiler.ir.finding import Cause, Severity, Span
from parc.compiler.pipeline import check_spec, emit_plan, plan_spec
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES, SpecSource

INSTRUCTIONS = """\
PARC compiles a YAML spec (model, cluster, job, goals) into a parallel layout and launch files.
Call `check` after each edit of a spec and apply the `fix` of each diagnostic, `search` to compare
layouts, `estimate` for memory and time, `diff` before a change is submitted, and `explain` for a
diagnostic code, a spec field or a term of an estimate."""

SpecOrText = Annotated[
    str, Field(description="Path of a spec below the root, or the YAML text of a spec.")
]
Overrides = Annotated[
    list[str] | None,
    Field(description="Edits of the spec, such as layout.tp=4, or ~layout.tp to remove a field."),
]
SpecOrDirectory = Annotated[
    str,
    Field(
        description="Path of a spec or of an output folder of `parc compile` below the root, "
        "or the YAML text of a spec."
    ),
]


class ToolInputError(ValueError):
    """Error in the arguments of a tool; the message is for the client."""


class Result(BaseModel):
    """Base of the results, whose docstrings become descriptions in their JSON Schemas."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class DiagnosticRecord(Result):
    """Diagnostic with the position of its cause and the edit that fixes it."""

    file: str
    code: str
    severity: Severity
    path: str
    """Spec path, such as ``layout.tp``."""
    span: Span | None
    message: str
    label: str
    help: str
    fix: str
    """Edit of the spec that was tried and solves the problem; empty if there is none."""
    causes: list[Cause]
    targets: list[str]


class CheckResult(Result):
    """Diagnostics of one or two specs."""

    ok: bool
    """False if a diagnostic is an error."""
    diagnostics: list[DiagnosticRecord]


class EstimateResult(CheckResult):
    """Memory, time and traffic of the layout that PARC chooses."""

    estimate: dict[str, Any] | None = None
    """Document of ``parc estimate --format json``; null if the spec has errors."""


class RejectedLayouts(Result):
    """Number of layouts that one rule rejected."""

    code: str
    title: str
    count: int


class SearchResult(CheckResult):
    """Best layouts of a spec; empty if the spec has errors."""

    enumerated: int = 0
    """Number of layouts that the search generated."""
    dropped: list[RejectedLayouts] = []
    candidates: list[dict[str, Any]] = []
    """Rows of ``parc search --format json``, best first; PARC chooses the first. Of a service with
    two pools, the rows of the prefill pool, then those of the decode pool, with a key ``pool``."""


class ExplainResult(Result):
    """Explanation of a topic."""

    topic: str
    text: str


class DiffResult(CheckResult):
    """Differences between two plans. ``changed`` and ``changes`` are null if a spec has errors."""

    changed: bool | None = None
    changes: dict[str, Any] | None = None
    """Document of ``parc diff --format json``."""
    markdown: str = ""
    """Differences as a text for a code review."""


class Tools:
    """Tools of the server. All files that they read are below ``root``."""

    def __init__(self, root: Path) -> None:
        """Set the folder that relative paths start from. Symbolic links are resolved."""
        self._root = Path(os.path.realpath(root))

    def check(self, spec: SpecOrText, overrides: Overrides = None) -> CheckResult:
        """Report all errors, warnings and advice for a spec, as `parc check`."""
        sink = Sink()
        check_spec(self._read_spec(spec), overrides or (), sink)
        return CheckResult(**_diagnostic_fields(sink))

    def estimate(self, spec: SpecOrText, overrides: Overrides = None) -> EstimateResult:
        """Estimate memory, step time, traffic and cost of the layout that PARC chooses."""
        from parc.compiler.report.text.estimate_tables import estimate_document

        plan, sink = self._plan(spec, overrides)
        document = None if plan is None else estimate_document(plan)
        return EstimateResult(**_diagnostic_fields(sink), estimate=document)

    def search(
        self,
        spec: SpecOrText,
        overrides: Overrides = None,
        top: Annotated[int, Field(ge=1, le=100, description="Number of candidates.")] = 10,
    ) -> SearchResult:
        """Rank the layouts that fit a spec, best first, and count the rejected layouts."""
        from parc.compiler.report.text.pools_text import merged_search
        from parc.compiler.report.text.search_table import search_document

        plan, sink = self._plan(spec, overrides)
        document = {} if plan is None else merged_search(search_document(plan, top))
        rows = {name: document[name] for name in SearchResult.__annotations__ if name in document}
        return SearchResult(**_diagnostic_fields(sink), **rows)

    def explain(
        self,
        topic: Annotated[
            str,
            Field(
                description="Diagnostic code, spec field or term of an estimate, such as PARC-D01, "
                "layout.tp or activations_bytes."
            ),
        ],
    ) -> ExplainResult:
        """Explain a diagnostic code, a spec field, or a term of an estimate."""
        from parc.compiler.report.text.explain import UnknownTopic, explain_topic

        try:
            return ExplainResult(topic=topic, text=explain_topic(topic))
        except UnknownTopic as error:
            raise ToolInputError(str(error)) from None

    def diff(self, old: SpecOrDirectory, new: SpecOrDirectory) -> DiffResult:
        """Compare two plans: fields, layout, moved ranks, process groups, memory, time, flags."""
        from parc.compiler.report.diff.diff_pools import diff_plans
        from parc.compiler.report.diff.read_side import NotAnOutputDirectory

        sinks = Sink(), Sink()
        files = [
            self._files_of_side(name, sink) for name, sink in zip((old, new), sinks, strict=True)
        ]
        found = _diagnostic_fields(*sinks)
        if not found["ok"]:
            return DiffResult(**found)
        names = [name if "\n" not in name else "<text>" for name in (old, new)]
        try:
            result = diff_plans((names[0], files[0]), (names[1], files[1]))
        except NotAnOutputDirectory as error:
            raise ToolInputError(str(error)) from None
        document = result.to_json()
        markdown = result.markdown()
        return DiffResult(**found, changed=result.has_changes, changes=document, markdown=markdown)

    def _plan(self, spec: str, overrides: list[str] | None) -> tuple[AnyPlan | None, Sink]:
        """Return (plan, sink with the findings). The plan is None if there are errors."""
        sink = Sink()
        plan = plan_spec(self._read_spec(spec), overrides or (), sink)
        return (None if sink.failed() else plan), sink

    def _read_spec(self, spec: str) -> SpecSource:
        """Return the source of a spec. An argument with a line break is the text of the spec."""
        if "\n" in spec:
            return SpecSource("<text>", spec, self._root, self._root)
        path = self._root / spec
        try:
            text = Library(root=self._root).text(str(path), MAX_TEXT_BYTES)
        except OSError as error:
            raise ToolInputError(f"cannot read {spec!r}: {error.strerror}") from None
        return SpecSource(spec, text, path.parent, self._root)

    def _files_of_side(self, name: str, sink: Sink) -> dict[str, str]:
        """Return path -> text of each output file: those in a directory, or those of a spec."""
        from parc.compiler.report.json.output_directory import read_output_texts

        directory = self._root / name
        if "\n" in name or not self._is_inside(directory) or not directory.is_dir():
            plan = plan_spec(self._read_spec(name), (), sink)
            artifacts = () if plan is None or sink.failed() else emit_plan(plan, sink)
            return {artifact.path: artifact.text for artifact in artifacts}
        try:
            texts = read_output_texts(directory)
        except OSError as error:
            raise ToolInputError(f"cannot read {name!r}: {error.strerror}") from None
        # A folder inside the directory can be a symbolic link.
        for path in texts:
            if not self._is_inside(directory / path):
                raise ToolInputError(f"cannot read '{name}/{path}': it is outside {self._root}")
        return texts

    def _is_inside(self, path: Path) -> bool:
        """Return True if the target of ``path`` is below the root."""
        try:
            return Path(os.path.realpath(path)).is_relative_to(self._root)
        except ValueError:  # a NUL in the path
            return False


def _diagnostic_fields(*sinks: Sink) -> dict[str, Any]:
    """Return the fields of CheckResult."""
    records = diagnostics_document(sinks)["diagnostics"]
    return {"ok": not any(sink.failed() for sink in sinks), "diagnostics": records}


def serve(root: Path) -> None:
    """Answer requests on standard input until it is closed.

    Raises:
        ImportError: the SDK, version 2 of the package ``mcp``, is not installed.
    """
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    from parc import __version__

    lock = Lock()

    def one_at_a_time(tool: Callable[..., Result]) -> Callable[..., Result]:
        # The SDK calls tools in threads. They compute all the time, so threads gain nothing.
        @wraps(tool)
        def call(*args: Any, **given: Any) -> Result:
            with lock:
                try:
                    return tool(*args, **given)
                except ToolInputError as error:
                    raise ToolError(str(error)) from None

        return call

    server = MCPServer("parc", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    tools = Tools(root)
    reads_only = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (tools.check, tools.estimate, tools.search, tools.explain, tools.diff):
        server.add_tool(one_at_a_time(tool), annotations=reads_only)
    server.run("stdio")
