"""The list of known flags is the list of the real parser."""

from __future__ import annotations

import json
import subprocess

import pytest

from parc.backends.extra_arguments import known_flags
from parc.backends.megatron.arguments import PACKAGE
from parc.backends.megatron.extra_arguments import flags_of
from tests.conformance.megatron_cases import judge_command

pytestmark = pytest.mark.conformance


def test_the_known_flags_of_0_19_are_those_of_the_real_parser() -> None:
    done = subprocess.run([*judge_command(), "--flags"], capture_output=True, text=True, check=True)
    real = {row["flag"]: row["takes"] for row in json.loads(done.stdout)}
    own = {flag: known_flags(PACKAGE)[flag].get("takes", 1) for flag in flags_of("0.19")}
    assert own == {flag: takes for flag, takes in real.items() if flag.startswith("--")}
