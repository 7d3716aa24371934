"""PARC's list of Megatron's flags equals the list of the real parser."""

from __future__ import annotations

import json
import subprocess

import pytest

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags
from parc.backends.shared.extra_arguments import rows_of_known_flags
from tests.compiled import examples
from tests.conformance.megatron.cases import case_of, checker_command, megatron_verdicts

pytestmark = pytest.mark.conformance


def value_counts() -> dict[str, int | str]:
    """Return the number of values of every spelling of the real parser."""
    done = subprocess.run(
        [*checker_command(), "--flags"], capture_output=True, text=True, check=True
    )
    rows = json.loads(done.stdout)
    return {row["flag"]: row["takes"] for row in rows if row["flag"].startswith("--")}


def test_the_flags_of_0_19_equal_those_of_the_real_parser() -> None:
    own = {flag: rows_of_known_flags(PACKAGE)[flag].get("takes", 1) for flag in flags_of("0.19")}
    assert own == value_counts()


def test_the_real_parser_rejects_removed_flags() -> None:
    plan, real = examples("megatron")["gpt2-small"], value_counts()
    sound = case_of("sound", plan.problem, plan.layout, plan.layout.world)
    still = [flag for flag in removed_flags() if flag in real]
    cases = [
        {**sound, "name": flag, "argv": [*sound["argv"], flag, *["1"] * int(real[flag])]}
        for flag in still
    ]
    verdicts = megatron_verdicts([sound, *cases])
    assert verdicts["sound"]["accepted"], verdicts["sound"]
    assert {flag: verdicts[flag]["stage"] for flag in still} == dict.fromkeys(still, "validate")
