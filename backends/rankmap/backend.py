"""The backend ``rankmap``, which writes the rank map in three formats."""

from __future__ import annotations

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, Plan, ServingPlan


class Rankmap:
    """The backend ``rankmap``.

    Its files are at the top level of the output, because they describe all targets.
    """

    name = "rankmap"
    versions = ("1",)
    """Value of ``format`` in rankmap.json; a change of columns or keys increments it."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report nothing, because every placement can be written as a rank map."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``rankmap.csv``, ``rankmap.json`` and ``rankmap.md`` of a training job."""
        from parc.backends.rankmap.training_page import render_training_page

        return (*_csv_and_json_files(plan), Artifact("rankmap.md", render_training_page(plan)))

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report nothing, because every placement can be written as a rank map."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return the three files of a serving job; their column ``replica`` numbers the engines."""
        from parc.backends.rankmap.serving_page import render_serving_page

        return (*_csv_and_json_files(plan), Artifact("rankmap.md", render_serving_page(plan)))


def _csv_and_json_files(plan: AnyPlan) -> tuple[Artifact, ...]:
    """Return ``rankmap.csv`` and ``rankmap.json``, the files that programs read."""
    # Imported here because ``parc check`` evaluates rules but writes no rank map.
    from parc.backends.rankmap.rankmap_csv import rankmap_csv
    from parc.backends.rankmap.rankmap_json import rankmap_json

    return (
        Artifact("rankmap.csv", rankmap_csv(plan)),
        Artifact("rankmap.json", rankmap_json(plan)),
    )


BACKEND = Rankmap()
