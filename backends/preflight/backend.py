"""The backend ``preflight``: a program that compares ranks and process groups with the plan."""

from __future__ import annotations

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Plan

PROGRAM = "preflight/check_ranks.py"
EXPECTED = "preflight/expected.json"


class Preflight:
    """The backend ``preflight``.

    If a spec emits it, the launch scripts run ``check_ranks.py`` before the training program.
    """

    name = "preflight"
    versions = ("1",)
    """Value of ``format`` in expected.json."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report nothing, because the emitted program can check every placement."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``check_ranks.py``, and ``expected.json`` with the planned placement."""
        # Imported here, because checks emit no file.
        from parc.backends.preflight.expected import expected_placement_json
        from parc.backends.shared.render import render

        return (
            Artifact(PROGRAM, render("preflight", "check_ranks.py.j2", {}), True),
            Artifact(EXPECTED, expected_placement_json(plan)),
        )


BACKEND = Preflight()
