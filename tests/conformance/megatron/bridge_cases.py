"""Plans as cases for the real ConfigContainer of Megatron-Bridge."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from parc.backends.megatron.capabilities import BRIDGE, CORE_OF_BRIDGE
from parc.backends.registry import framework
from parc.compiler.ir import Plan, Problem
from tests.conformance.checker_processes import run_cases
from tests.conformance.megatron.cases import Case, Verdict, case_of

CHECKER = Path(__file__).with_name("bridge_checker.py")


def bridge_verdicts(cases: list[Case]) -> dict[str, Verdict]:
    """Return the verdict by name of the case, with the paths that tests/conformance/run sets."""
    names = ("PYTHON", "MEGATRON", "BRIDGE")
    python, megatron, bridge = (os.environ[f"PARC_CONFORMANCE_{name}"] for name in names)
    command = [python, str(CHECKER), megatron, bridge]
    return {verdict["name"]: verdict for verdict in run_cases(command, cases)}


def bridge_case(name: str, plan: Plan, overrides: tuple[str, ...] = ()) -> Case:
    """Return the emitted files, and the flags with which Megatron-LM would train the same plan."""
    files = {one.path: one.text for one in framework(BRIDGE).emit(plan)}
    case: dict[str, Any] = case_of(name, as_megatron(plan.problem), plan.layout, plan.layout.world)
    return case | {
        "config": files[f"{BRIDGE}/config.yaml"],
        "program": files[f"{BRIDGE}/pretrain.py"],
        "overrides": overrides,
    }


def as_megatron(problem: Problem) -> Problem:
    """Return the problem for Megatron-LM with the same Megatron-Core."""
    core = CORE_OF_BRIDGE[problem.version(BRIDGE)]
    return replace(problem, framework="megatron", versions=(("megatron", core),))
