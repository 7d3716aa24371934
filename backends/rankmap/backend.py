"""The rank map as files: one truth in three forms."""

from __future__ import annotations

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Artifact, Plan, ServingPlan


class Rankmap:
    """Backend ``rankmap``: at the top level of the output, for it concerns every other target."""

    name = "rankmap"
    versions = ("1",)
    """The ``format`` of rankmap.json; a change of columns or keys raises it."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Nothing: every placement can be written down."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """rankmap.csv, rankmap.json and rankmap.md."""
        from parc.backends.rankmap.training_page import training_page

        return (*_tables(plan), Artifact("rankmap.md", training_page(plan)))

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Nothing: every placement can be written down."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """The same three files; ``replica`` is the engine that a rank belongs to."""
        from parc.backends.rankmap.serving_page import serving_page

        return (*_tables(plan), Artifact("rankmap.md", serving_page(plan)))


def _tables(plan: AnyPlan) -> tuple[Artifact, ...]:
    """What programs read. A check emits nothing, so what writes is loaded on first use."""
    from parc.backends.rankmap.rankmap_csv import rankmap_csv
    from parc.backends.rankmap.rankmap_json import rankmap_json

    return (
        Artifact("rankmap.csv", rankmap_csv(plan)),
        Artifact("rankmap.json", rankmap_json(plan)),
    )


BACKEND = Rankmap()
