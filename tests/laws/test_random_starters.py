"""``parc init`` with random options gives a spec that compiles as it is, or states why not.

PARC_FUZZ=300 sets the number of combinations. A test of the conformance suite tries more of them.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable

import pytest

from parc.compiler.catalog.library import Library
from tests.cli.specs import parc

pytestmark = pytest.mark.usefixtures("few_requests")

COUNT = int(os.environ.get("PARC_FUZZ", "8"))
MORE = 44
"""Number of further combinations in the conformance suite."""
GROUPS = 4
"""Number of tests that share the combinations, so that workers can run them in parallel."""
NO_MEMORY = {"PARC-R17", "PARC-V02"}
NO_PROGRAM = {"PARC-V31", "PARC-R03"}
"""No engine has a class for the model, or the GPU supports no format of its checkpoints."""


def random_options(dice: random.Random) -> list[str]:
    """Return options that name a model, and mostly a GPU type, a number of GPUs or a site."""
    catalog = Library()
    words = ["--model", dice.choice(catalog.names("models"))]
    words += ["--kind", dice.choice(["train", "finetune", "serve"])]
    hardware = dice.choice(["--gpu", "--gpu", "--preset", ""])
    if hardware:
        words += [hardware, dice.choice(catalog.names("sites" if "set" in hardware else "gpus"))]
    if dice.random() < 0.5:
        words += ["--gpus", str(dice.choice([1, 16, 64, 144, 576]))]
    return words


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_options_give_a_spec_that_compiles_or_a_reason(group: int) -> None:
    start_and_check(range(group, COUNT, GROUPS))


@pytest.mark.conformance
@pytest.mark.parametrize("group", range(GROUPS))
def test_more_random_options_give_a_spec_that_compiles_or_a_reason(group: int) -> None:
    start_and_check(range(COUNT + group, COUNT + MORE, GROUPS))


def start_and_check(numbers: Iterable[int]) -> None:
    """Compile the spec of each combination of options, or find the reason why there is none."""
    for number in numbers:
        words = random_options(random.Random(number))
        started = parc("init", *words)
        shown = f"parc init {' '.join(words)}\n{started.output}"
        if started.exit_code == 0:
            checked = parc("check", "-", given=started.stdout)
            assert checked.exit_code == 0, f"{shown}\n{checked.output}"
            continue
        codes = set(re.findall(r"^error\[(PARC-[A-Z]\d+)\]", started.stderr, re.MULTILINE))
        assert started.exit_code == 1, shown
        assert codes, shown
        # If PARC chooses the number of hosts, it chooses enough of them.
        accepted = NO_PROGRAM | NO_MEMORY if "--gpus" in words else NO_PROGRAM
        assert codes & accepted, shown
