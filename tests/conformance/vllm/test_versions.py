"""PARC's table has the flags of each version of vLLM, and each version accepts PARC's commands."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.shared.extra_arguments import rows_of_parser
from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.backend import DEFAULT_VERSION, VERSIONS
from tests.conformance.tool_checkers import vllm_verdicts
from tests.conformance.vllm.specs import valid_service
from tests.conformance.vllm.test_accepts import plan_differences
from tests.search.serving_specs import planned

pytestmark = pytest.mark.conformance
SPECS = 34
"""Number of random specs per version, of which at least 30 compile."""


def sources_of(version: str) -> str:
    """Return ``version`` as an argument of vllm_verdicts; empty for the installed version."""
    return "" if version == DEFAULT_VERSION else version


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Return each version; all tests of one follow each other and share the checking program."""
    return str(request.param)


def test_the_known_flags_equal_those_of_the_parser(version: str) -> None:
    (verdict,) = vllm_verdicts([{"flags": True}], sources_of(version))
    assert rows(rows_of_parser(PACKAGE, version).values()) == rows(verdict["flags"])


def rows(found: Any) -> dict[str, dict[str, Any]]:
    """Return rows by flag, without their ranges of versions."""
    ranges = ("since", "until")
    return {
        row["flag"]: {key: value for key, value in row.items() if key not in ranges}
        for row in found
    }


@pytest.mark.parametrize("version", VERSIONS[:-1], indirect=True, scope="module")
def test_random_valid_specs_are_accepted_with_the_same_sizes_and_groups(version: str) -> None:
    plans = []
    for seed in range(1000, 1000 + SPECS):
        plan, _ = planned(valid_service(seed) | {"versions": {"vllm": version}})
        plans += [plan] if plan is not None else []
    assert len(plans) >= 30
    assert plan_differences(plans, sources_of(version)) == {}
