"""Megatron-Core accepts the good spec of each boundary, and handles the bad one as listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.ir import Recompute
from tests.backends.megatron.boundaries import BOUNDARIES
from tests.compiled import resolved
from tests.conformance.megatron.cases import case_as_pinned, layout_as_pinned, megatron_verdicts

pytestmark = pytest.mark.conformance


def test_megatron_handles_both_specs_of_each_boundary_as_listed() -> None:
    cases, expected = [], {}
    for k, boundary in enumerate(BOUNDARIES):
        for kind, spec in (("bad", boundary.bad), ("good", boundary.good)):
            problem, sink = resolved(spec)
            if problem is None:  # rejected while the model is read, for example D17
                assert f"PARC-{boundary.code}" in {found.code for found in sink.diagnostics}
                continue
            layout = layout_as_pinned(problem)
            assert layout is not None, (boundary.code, kind)
            written = spec["layout"].get("recompute")
            if isinstance(written, dict):  # contradictory fields are not pins (R08)
                recompute = Recompute(
                    written["granularity"],
                    tuple(written.get("modules", ())),
                    written.get("method"),
                    written.get("layers"),
                )
                layout = replace(layout, recompute=recompute)
            name = f"{k} {boundary.code} {kind}"
            world = min(layout.world, problem.cluster.gpus) if kind == "good" else 24
            cases.append(case_as_pinned(name, problem, layout, world))
            expected[name] = boundary.taken if kind == "bad" else ""
    verdicts = megatron_verdicts(cases)
    assert {name: verdict["stage"] for name, verdict in verdicts.items()} == expected
