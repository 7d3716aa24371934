"""The commands and files that PARC emits agree with TensorRT-LLM's options, keys and groups."""

from __future__ import annotations

import pytest

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.tensorrt_llm.arguments import PACKAGE
from parc.backends.tensorrt_llm.backend import VERSIONS
from tests.conformance.tensorrt_llm.cases import differences, valid_tensorrt_llm_service
from tests.conformance.tensorrt_llm.schema import options_of
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
SPECS = 230


@pytest.mark.parametrize("version", VERSIONS)
def test_the_known_flags_are_the_options(version: str) -> None:
    options = options_of(version)
    takes = {name: int(row[1] is not bool) for row in options.values() for name in row[0]}
    rows = rows_of_known_flags(PACKAGE, version)
    assert {name: row["takes"] for name, row in rows.items()} == takes
    means = {name: last for last, row in options.items() for name in row[0]}
    assert {name: row.get("means", name) for name, row in rows.items()} == means


def test_random_valid_specs_are_accepted_with_the_same_sizes_and_groups() -> None:
    plans = []
    for seed in range(SPECS):
        plan, sink = planned(valid_tensorrt_llm_service(seed))
        assert plan is not None or sink.failed()
        plans += [plan] if plan is not None else []
    assert len(plans) >= 200
    assert sum(plan.layout.dp > 1 for plan in plans) >= 20
    assert sum(plan.layout.pp > 1 for plan in plans) >= 20
    wrong = {plan.problem.name: found for plan in plans if (found := differences(plan))}
    assert wrong == {}
