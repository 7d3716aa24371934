"""PARC's table has the flags of each version of Megatron-Core, and each version accepts PARC's
arguments. test_accepts.py and test_hybrids.py check more specs with the default version.
"""

from __future__ import annotations

import pytest

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags
from parc.backends.megatron.capabilities import DEFAULT_VERSION, VERSIONS
from parc.backends.shared.extra_arguments import rows_of_known_flags, rows_of_parser
from parc.backends.shared.versions import is_in_range
from parc.backends.value_range import BOUNDS
from parc.compiler.ir import Plan
from tests.compiled import examples, planned
from tests.conformance.megatron.cases import case_of, megatron_verdicts, parsed_flags
from tests.conformance.megatron.hybrid_specs import hybrid_spec
from tests.conformance.megatron.specs import valid_spec
from tests.conformance.megatron.test_accepts import plan_differences
from tests.conformance.shared.flag_bounds import measure_bounds

pytestmark = pytest.mark.conformance
OTHERS = [version for version in VERSIONS if version != DEFAULT_VERSION]
SPECS, HYBRIDS = 12, 18
"""Numbers of random specs per version. Version 0.17 supports at least five of these hybrids."""


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Return each version; all tests of one follow each other and share the checking program."""
    return str(request.param)


def test_the_known_flags_equal_those_of_the_parser(version: str) -> None:
    known = rows_of_known_flags(PACKAGE)
    own = {flag: known[flag].get("takes", 1) for flag in flags_of(version)}
    rows = parsed_flags(version)
    assert own == {flag: row["takes"] for flag, row in rows.items() if flag.startswith("--")}


def test_every_bound_of_a_flag_is_enforced_by_megatron() -> None:
    plan = examples("megatron")["gpt2-small"]
    rows = [row for row in rows_of_parser(PACKAGE).values() if row.keys() & {*BOUNDS}]
    rows = [row for row in rows if is_in_range(DEFAULT_VERSION, row.get("since"), None)]
    base = case_of("base", plan.problem, plan.layout, plan.layout.world)

    def accepts(changes: list[list[str]]) -> list[bool]:
        cases = [
            {**base, "name": words[0], "argv": [*base["argv"], *words], "any_exception": True}
            for words in changes
        ]
        verdicts = megatron_verdicts(cases)
        return [verdicts[words[0]]["accepted"] for words in changes]

    own = {row["flag"]: {key: row[key] for key in BOUNDS if key in row} for row in rows}
    assert own
    assert measure_bounds(rows, accepts) == own


@pytest.mark.parametrize("version", OTHERS, indirect=True, scope="module")
def test_random_valid_specs_are_accepted_with_the_same_sizes_layers_and_groups(
    version: str,
) -> None:
    chosen = {"versions": {"megatron": version}}
    specs = {f"valid {seed}": valid_spec(seed) for seed in range(1000, 1000 + SPECS)}
    specs |= {f"hybrid {seed}": hybrid_spec(seed) for seed in range(HYBRIDS)}
    found = {name: planned(spec | chosen)[0] for name, spec in specs.items()}
    plans = {name: plan for name, plan in found.items() if isinstance(plan, Plan)}
    assert len([name for name in plans if name.startswith("valid")]) == SPECS
    assert len(plans) >= SPECS + 5
    assert plan_differences(plans, version) == {}


def test_the_real_parser_rejects_removed_flags() -> None:
    plan, real = examples("megatron")["gpt2-small"], parsed_flags()
    sound = case_of("sound", plan.problem, plan.layout, plan.layout.world)
    still = [flag for flag in removed_flags() if flag in real]
    cases = [
        {**sound, "name": flag, "argv": [*sound["argv"], flag, *["1"] * int(real[flag]["takes"])]}
        for flag in still
    ]
    verdicts = megatron_verdicts([sound, *cases])
    assert verdicts["sound"]["accepted"], verdicts["sound"]
    assert {flag: verdicts[flag]["stage"] for flag in still} == dict.fromkeys(still, "validate")
