"""The rank map as files: one truth in three forms."""

from __future__ import annotations

from parc.backends.rankmap.document import document
from parc.backends.rankmap.page import page
from parc.backends.rankmap.table import table
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Plan


class Rankmap:
    """Backend ``rankmap``: at the top level of the output, for it concerns every other target."""

    name = "rankmap"
    versions = ("1",)
    """The ``format`` of rankmap.json; a change of columns or keys raises it."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Nothing: every placement can be written down."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """rankmap.csv, rankmap.json and rankmap.md."""
        return (
            Artifact("rankmap.csv", table(plan)),
            Artifact("rankmap.json", document(plan)),
            Artifact("rankmap.md", page(plan)),
        )


BACKEND = Rankmap()
