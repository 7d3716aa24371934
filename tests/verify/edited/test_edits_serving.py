"""Random edits of the files of serving jobs: those that change behavior are named."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from typing import Any

import pytest

from tests import compiled
from tests.compiled import Files
from tests.search.serving_specs import plan_of, spec
from tests.verify.edits import (
    EDITS,
    NAMED,
    false_alarms,
    findings,
    json_behavior,
    measure_edits,
    python_behavior,
    shell_behavior,
    shell_neutral,
)

pytestmark = pytest.mark.usefixtures("few_requests")

V3 = {"precision": "fp8", "max_model_len": 4096}
NAMED_HOSTS = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-4]"}]}
HOSTS = {"node": "hgx-h200", "nodes": 4}
SCRIPT = "vllm/serve.sh"
LAYOUTS: dict[str, dict[str, Any]] = {
    "wide": {"layout": {"dp": 32, "tp": 1, "ep": "on", "replicas": 1, "redundant_experts": 32}},
    "deep": {"layout": {"tp": 8, "pp": 2, "ep": "off", "replicas": 2}, "cluster": HOSTS},
    "long": {"layout": {"tp": 8, "pp": 2, "dp": 2, "ep": "on", "replicas": 1}},
    "external": {
        "layout": {"dp": 16, "tp": 1, "ep": "on", "replicas": 2},
        "launch": {
            "load_balancer": "external",
            "network_interface": "eth0",
            "port": 9000,
            "args": ["--seed", "3", "--enforce-eager"],
            "env": {"VLLM_LOGGING_LEVEL": "DEBUG", "NCCL_IB_TIMEOUT": "20"},
        },
    },
    "stages": {
        "layout": {"tp": 8, "pp": 2, "replicas": 1, "stage_layers": [30, 31]},
        "cluster": {"node": "hgx-h200", "nodes": 2},
    },
    "single": {"layout": {"tp": 8, "replicas": 1}, "cluster": {"node": "hgx-h200", "nodes": 1}},
}


EACH = -(-EDITS // len(LAYOUTS))
"""Edits per layout, so that ``PARC_EDITS`` is the number of edits per target."""


@cache
def files_of(name: str, *targets: str) -> Files:
    """Return the files of DeepSeek-V3 with one of the layouts."""
    tree = spec("deepseek-v3", "hgx-h200", job=V3) | {"cluster": NAMED_HOSTS} | LAYOUTS[name]
    return compiled.emitted(plan_of(tree | {"emit": ["rankmap", *targets]}))


DEFAULTS = (
    ["--pipeline-parallel-size", "1"],
    ["--tensor-parallel-size", "1"],
    ["--gpu-memory-utilization", "0.92"],
    ["--kv-cache-dtype", "auto"],
    ["--block-size", "16"],
)
"""Flags that change nothing, because vLLM 0.33 has the same defaults (its parser, --help=all)."""


def serve_behavior(text: str) -> object:
    """Return the commands of serve.sh; the order of the flags in the array ``common`` is free."""
    found = re.search(r"^common=\(\n(.*?)^\)$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return shell_behavior(text)
    try:
        words = shlex.split(found[1], comments=True)
    except ValueError:
        return shell_behavior(text)
    flags: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not flags:
            flags.append([])
        flags[-1].append(word)
    rest = text[: found.start()] + text[found.end() :]
    # The last value of a repeated flag counts; flags of launch.args are compared as a list.
    extra = [flag for flag in flags if flag[0] in ("--seed", "--enforce-eager")]
    last = {flag[0]: flag for flag in flags if flag not in extra}
    own = sorted(flag for flag in last.values() if flag not in DEFAULTS)
    return (own, extra, shell_behavior(rest))


@pytest.mark.parametrize("name", LAYOUTS)
def test_edits_of_serve_sh_that_change_behavior_are_named(name: str) -> None:
    score = measure_edits(files_of(name, "vllm"), SCRIPT, serve_behavior, EACH)
    assert score.named >= NAMED, score.missed
    assert not score.alarms


@pytest.mark.parametrize("name", LAYOUTS)
def test_neutral_edits_of_serve_sh_are_accepted(name: str) -> None:
    files = files_of(name, "vllm")
    assert findings(files) == []
    assert not false_alarms(files, SCRIPT, shell_neutral(files[SCRIPT], 1), EACH)


PROGRAM = "ray/serve.py"
RAY: dict[str, dict[str, Any]] = {
    "deep": {},
    "named": {"cluster": NAMED_HOSTS, "launch": {"env": {"A": "1"}, "args": ["--seed", "3"]}},
}


@cache
def ray_files(name: str) -> Files:
    """Return the files of DeepSeek-V3 under Ray."""
    tree = spec("deepseek-v3", "hgx-h200", job=V3) | LAYOUTS["deep"] | RAY[name]
    return compiled.emitted(plan_of(tree | {"emit": ["rankmap", "ray"]}))


def program_behavior(text: str) -> object:
    """Return the code of serve.py, with the plan as values instead of as text."""
    found = re.search(r"PLAN = json\.loads\(\s*'''(.*?)'''\s*\)", text, re.DOTALL)
    if found is None:
        return python_behavior(text)
    plan = found[1].replace("\\\\", "\\")
    try:
        tree = ast.parse(text.replace(found[0], "PLAN = 0"))
    except (SyntaxError, ValueError):
        return ("not Python", text)
    # A string as a statement, such as a docstring, has no effect.
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_string(one)]  # type: ignore[attr-defined]
    return (json_behavior(plan), ast.dump(tree))


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("name", RAY)
def test_edits_of_the_ray_program_that_change_behavior_are_named(name: str) -> None:
    score = measure_edits(ray_files(name), PROGRAM, program_behavior, -(-EDITS // 2))
    assert score.named >= NAMED, score.missed
    assert not score.alarms, score.alarms
