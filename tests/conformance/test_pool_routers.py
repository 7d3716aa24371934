"""The parsers of both routers accept the commands in router.sh, and find every engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import compiled
from tests.conformance.tool_checkers import tool_verdicts
from tests.search.serving_specs import Tree, plan_of, spec

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("few_requests")]
LOAD = {"input_tokens": 500, "output_tokens": 20, "request_rate": 1}
PACKAGES = {"vllm": "vllm_router", "sglang": "sglang_router"}
SIZES: dict[str, tuple[str, Tree, Tree]] = {
    "one": ("llama-3.1-8b", {"tp": 1, "replicas": 1}, {"tp": 1, "replicas": 1}),
    "many": ("llama-3.1-8b", {"tp": 2, "replicas": 8}, {"tp": 1, "replicas": 4}),
    "wide": ("deepseek-v3", {"tp": 8}, {"tp": 1, "dp": 16, "ep": "on", "replicas": 1}),
    "over hosts": ("deepseek-v3", {"tp": 16}, {"tp": 16}),
}


def commands_of(script: str, folder: Path) -> list[str]:
    """Return the words with which ``script`` starts the router, as a stand-in prints them."""
    for name in ("vllm-router", "python3"):
        program = folder / name
        program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
    path = folder / "router.sh"
    path.write_text(script)
    found = subprocess.run(
        ["bash", path],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = found.stdout.splitlines()
    return words[2:] if words[0] == "-m" else words


@pytest.mark.parametrize("engine", PACKAGES)
def test_the_routers_accept_the_emitted_commands(engine: str, tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = []
    plans = []
    for number, (model, prefill, decode) in enumerate(SIZES.values()):
        section = {"prefill": {"layout": prefill}, "decode": {"layout": decode}}
        job = {"disaggregate": section, "traffic": LOAD, "precision": "fp8"}
        tree = spec(model, "hgx-h200", job=job) | {"emit": [engine]}
        tree["cluster"] = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-8]"}]}
        plan = plan_of(tree | {"launch": {"router_port": 9000 + number}})
        folder = tmp_path / str(number)
        folder.mkdir()
        words = commands_of(compiled.emitted(plan)["router.sh"], folder)
        cases.append({"module": PACKAGES[engine], "words": words})
        plans.append(plan)
    verdicts = tool_verdicts("sglang", "shared/router_checker.py", cases)
    for number, (plan, verdict) in enumerate(zip(plans, verdicts, strict=True)):
        assert verdict["accepted"], verdict["error"]
        assert verdict["pools"] is True
        assert verdict["port"] == 9000 + number
        names = [[host.name for host in pool.placement.hosts] for pool in plan.pools]
        urls = [[url for url, _ in verdict["prefill"]], verdict["decode"]]
        for pool, hosts, found in zip(plan.pools, names, urls, strict=True):
            assert len(found) == len(set(found)) == pool.layout.replicas
            assert {url.split("//")[1].split(":")[0] for url in found} <= set(hosts)
        ports = {port for _, port in verdict["prefill"]}
        assert ports == {None} if engine == "vllm" else min(ports) == 8998
