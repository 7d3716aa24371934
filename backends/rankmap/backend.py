"""Backend of the rank map: one placement in three formats."""

from __future__ import annotations

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, Plan, ServingPlan


class Rankmap:
    """Backend ``rankmap``. Its files are at the top level, because they describe all targets."""

    name = "rankmap"
    versions = ("1",)
    """Value of ``format`` in rankmap.json; a change of columns or keys increments it."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report nothing, because any placement can be written as a rank map."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return rankmap.csv, rankmap.json and rankmap.md."""
        from parc.backends.rankmap.training_page import training_page

        return (*_tables(plan), Artifact("rankmap.md", training_page(plan)))

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report nothing, because any placement can be written as a rank map."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return the three files of a service; the column ``replica`` is the engine of a rank."""
        from parc.backends.rankmap.serving_page import serving_page

        return (*_tables(plan), Artifact("rankmap.md", serving_page(plan)))


def _tables(plan: AnyPlan) -> tuple[Artifact, ...]:
    """Return the files for programs.

    The writers are imported here, because ``parc check`` does not need them.
    """
    from parc.backends.rankmap.rankmap_csv import rankmap_csv
    from parc.backends.rankmap.rankmap_json import rankmap_json

    return (
        Artifact("rankmap.csv", rankmap_csv(plan)),
        Artifact("rankmap.json", rankmap_json(plan)),
    )


BACKEND = Rankmap()
