"""Plans as ``parc.compile`` returns them: shown in a notebook, and converted to tables."""

from __future__ import annotations

import csv
from dataclasses import fields
from html import escape
from typing import Any, cast

from parc.compiler.ir import AnyPlan, Plan, ServingPlan

TABLES = ("candidates", "memory", "ranks", "time")
"""Names of the tables of a plan."""


class PlanView:
    """Methods that ``parc.compile`` adds to a plan."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return one line with the layout, the time and the memory of the plan."""
        from parc.compiler.report.formatting import format_gib, format_seconds
        from parc.compiler.report.text.layout_text import format_layout, format_serving_layout

        plan = cast(AnyPlan, self)
        head = f"{type(self).__name__} {plan.problem.name}"
        if isinstance(plan, ServingPlan):
            times = f"TTFT {format_seconds(plan.ttft_seconds)}"
            times += f", TPOT {format_seconds(plan.tpot_seconds)}"
            layouts = " + ".join(format_serving_layout(one.layout) for one in plan.pools)
            return f"<{head}: {layouts}; {times}>"
        step = format_seconds(plan.estimate.time.total_seconds)
        peak = format_gib(plan.estimate.peak.total_bytes)
        return f"<{head}: {format_layout(plan.layout)}; {step} per step, {peak} per GPU>"

    def _repr_html_(self) -> str:
        """Return the report of the plan for a notebook.

        It is the page ``report.html`` in a frame, one per pool, so that the styles of the page and
        those of the notebook do not affect each other. Viewers that remove frames show the line of
        ``repr``.
        """
        from parc.compiler.report.page.report_page import report_artifact

        plan = cast(AnyPlan, self)
        frames = (
            f'<iframe title="{escape(one.problem.name)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 40em; border: 0" '
            f'srcdoc="{escape(report_artifact(one).text)}"></iframe>'
            for one in (plan.pools if isinstance(plan, ServingPlan) else (plan,))
        )
        return f"<p>{escape(repr(self))}</p>\n" + "\n".join(frames)

    def to_records(self, table: str = "candidates") -> list[dict[str, Any]]:
        """Return a table of the plan as a list with one dict per row.

        The tables are the best layouts of the search (``candidates``), the memory per pipeline
        stage in bytes (``memory``), the rank map (``ranks``), and the terms of the step time, or of
        a decode step, in seconds (``time``).

        Raises:
            ValueError: there is no table with this name.

        >>> plan = parc.compile(spec)
        >>> plan.to_records("ranks")[1]["local_rank"]
        1
        >>> [row["rank"] for row in plan.to_records()][:3]
        [1, 2, 3]
        """
        if table not in TABLES:
            raise ValueError(f"no table {table!r}; valid values: {', '.join(TABLES)}")
        return _records_of_table(cast(AnyPlan, self), table)

    def to_pandas(self, table: str = "candidates") -> Any:
        """Return a table of the plan as a pandas ``DataFrame``; see ``to_records``.

        Raises:
            ImportError: pandas is not installed.

        >>> times = parc.compile(spec).to_pandas("time")
        >>> list(times.columns)
        ['term', 'seconds']
        """
        from pandas import DataFrame

        return DataFrame(self.to_records(table))


class TrainingPlan(PlanView, Plan):
    """Plan of a training job that shows itself in a notebook."""

    __slots__ = ()


class ServicePlan(PlanView, ServingPlan):
    """Plan of a serving job that shows itself in a notebook."""

    __slots__ = ()


def plan_view(plan: AnyPlan) -> TrainingPlan | ServicePlan:
    """Return ``plan`` with the methods of ``PlanView``."""
    parts = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return ServicePlan(**parts) if isinstance(plan, ServingPlan) else TrainingPlan(**parts)


def _records_of_table(plan: AnyPlan, table: str) -> list[dict[str, Any]]:
    from parc.compiler.report.text.estimate_tables import estimate_document
    from parc.compiler.report.text.search_table import search_document

    if isinstance(plan, ServingPlan) and plan.pair is not None:
        return [
            {"pool": one.problem.service.setup.pool, **row}
            for one in plan.pools
            for row in _records_of_table(one, table)
        ]
    serves = isinstance(plan, ServingPlan)
    if table == "candidates":
        return list(search_document(plan, len(plan.search.ranked))["candidates"])
    if table == "ranks":
        return _rank_records(plan)
    document = estimate_document(plan)
    if table == "memory":
        return list(document["stages" if serves else "memory"])
    # A prefill pool has no decode step.
    terms = document["decode" if serves else "time"] or {}
    # Without the total, so that the sum of the rows is the time.
    return [
        {"term": name.removesuffix("_seconds"), "seconds": value}
        for name, value in terms.items()
        if not name.startswith("total")
    ]


def _rank_records(plan: AnyPlan) -> list[dict[str, Any]]:
    """Return the rows of ``rankmap.csv``, with numbers where the file has digits."""
    from parc.backends.registry import backend, serving_backend

    emitted = (
        serving_backend("rankmap").emit_serving(plan)
        if isinstance(plan, ServingPlan)
        else backend("rankmap").emit(plan)
    )
    (text,) = (artifact.text for artifact in emitted if artifact.path == "rankmap.csv")
    names = ("host", "rack", "nvlink_domain")  # which can consist of digits
    return [
        {
            key: int(value) if key not in names and value.isdigit() else value
            for key, value in row.items()
        }
        for row in csv.DictReader(text.splitlines())
    ]
