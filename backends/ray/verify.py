"""Verifier of the plan inside ``ray/serve.py``, which it reads without executing the program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from parc.backends.verifier import FileDependencies, JobShape, Verifier
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import Malformed, read_json

PROGRAM = "ray/serve.py"


class RayVerifier(Verifier):
    """Compares the hosts, and the node rank of every rank, with the rank map."""

    files = FileDependencies(always_serving=(PROGRAM,))

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report hosts (A02) and pinned node ranks (A07) that differ from the rank map."""
        if PROGRAM not in artifacts:
            return
        plan = read_plan(artifacts[PROGRAM])
        span, hosts = Span(PROGRAM, 1, 1), plan.get("hosts")
        if hosts and hosts != job.hosts:
            message = f"the hosts of {PROGRAM} differ from those of the rank map"
            sink.report("A02", message, span=span)
        if plan.get("nodes") != len(job.hosts):
            message = f"{PROGRAM} has nodes {plan.get('nodes')!r:.40}, "
            sink.report("A07", f"{message}the rank map has {len(job.hosts)} hosts", span=span)
        pinned = [node for ranks in _node_ranks_per_engine(plan) for node in ranks]
        # Ranks fill hosts in order, engine after engine, so the concatenated lists must count up.
        expected = [node for node in range(len(job.hosts)) for _ in range(job.ranks_per_node)]
        if pinned != expected:
            message = f"{PROGRAM} pins {len(pinned)} ranks to other nodes than the rank map"
            sink.report("A07", message, span=span)


def read_plan(text: str) -> dict[str, Any]:
    """Return the plan: the JSON document that the program assigns to ``PLAN``.

    Raises:
        Malformed: the program has no assignment ``PLAN = json.loads(...)`` of a literal text, or
            that text is not JSON.
    """
    try:
        assigned = [one for one in ast.parse(text).body if isinstance(one, ast.Assign)]
        named = [one.value for one in assigned if getattr(one.targets[0], "id", "") == "PLAN"]
        literal = ast.literal_eval(named[0].args[0]) if isinstance(named[0], ast.Call) else ""
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        literal = ""
    if not isinstance(literal, str) or not literal:
        raise Malformed(PROGRAM, 1, "it has no PLAN = json.loads('...')")
    return read_json(PROGRAM, literal)


def _node_ranks_per_engine(plan: dict[str, Any]) -> list[list[Any]]:
    """Return the node rank of every rank, as one list per engine.

    Raises:
        Malformed: the plan contains no list of such lists.
    """
    engines = plan.get("engines")
    if not isinstance(engines, list) or not all(isinstance(one, list) for one in engines):
        raise Malformed(PROGRAM, 1, "engines is not a list of lists of node ranks")
    return engines


VERIFIER = RayVerifier()
