"""Tests of ``ray/serve.py``: bundles of the ranks in the map, and the command of the engine."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from parc.backends.registry import serving_backend
from parc.backends.vllm.backend import Vllm
from tests.search.serving_specs import codes, plan_of, planned, spec

pytestmark = pytest.mark.usefixtures("few_requests")

HOSTS = {"node": "hgx-h100", "racks": [{"name": "a", "nodes": "h[1-4]"}]}


def loaded(tmp_path: Path, **parts: Any) -> dict[str, Any]:
    """Return the names that the emitted program defines; it can be loaded without Ray."""
    tree = spec("llama-3.1-405b", "hgx-h100", layout={"tp": 8, "pp": 2, "replicas": 2})
    plan = plan_of(tree | {"cluster": HOSTS, "emit": ["ray", "rankmap"]} | parts)
    (artifact,) = serving_backend("ray").emit_serving(plan)
    ast.parse(artifact.text)
    path = tmp_path / "serve.py"
    path.write_text(artifact.text, encoding="utf-8")
    return {**runpy.run_path(str(path)), "plan": plan}


def test_every_rank_is_bound_to_the_host_of_the_rank_map(tmp_path: Path) -> None:
    names = loaded(tmp_path)
    plan, document = names["plan"], names["PLAN"]
    ranks = [node for engine in document["engines"] for node in engine]
    hosts = [document["hosts"][node] for node in ranks]
    assert hosts == [plan.placement.host_of(rank).name for rank in range(plan.layout.gpus)]


def test_each_bundle_requests_one_gpu_on_its_node(tmp_path: Path) -> None:
    bundles = loaded(tmp_path)["bundles"]([1, 1, 0], ["10.0.0.1", "10.0.0.2"])
    assert [bundle["GPU"] for bundle in bundles] == [1, 1, 1]
    assert [key for bundle in bundles for key in bundle if key.startswith("node:")] == [
        "node:10.0.0.2",
        "node:10.0.0.2",
        "node:10.0.0.1",
    ]


def test_a_host_is_found_by_its_full_or_its_short_name_and_only_once(tmp_path: Path) -> None:
    addresses = loaded(tmp_path)["addresses"]
    nodes = [
        {"NodeManagerHostname": "h1.rack", "NodeManagerAddress": "10.0.0.1"},
        {"NodeManagerHostname": "h2", "NodeManagerAddress": "10.0.0.2"},
    ]
    assert addresses(["h2", "h1"], nodes) == ["10.0.0.2", "10.0.0.1"]
    with pytest.raises(SystemExit, match="0 live nodes"):
        addresses(["h3"], nodes)
    with pytest.raises(SystemExit, match="2 live nodes"):
        addresses(["h2"], [*nodes, nodes[1]])


def test_arguments_of_the_user_are_unchanged_in_python(tmp_path: Path) -> None:
    words = ["--chat-template", "a'''b\\n\"c\" {{ d }} \u00e9"]
    document = loaded(tmp_path, launch={"args": words})["PLAN"]
    assert document["command"][-2:] == words
    assert document["command"][0] == "serve"
    index = document["command"].index("--distributed-executor-backend")
    assert document["command"][index + 1] == "ray"
    assert json.dumps(document)


def test_an_engine_without_a_ray_entry_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Vllm, "ray_entry", None)
    tree = spec("llama-3.1-8b", "dgx-h100") | {"emit": ["ray", "rankmap"]}
    (found,) = planned(tree)[1].diagnostics
    assert (found.code, found.finding.label) == (
        "PARC-V15",
        "PARC has no Ray program for vllm",
    )


def test_data_parallel_ranks_are_rejected() -> None:
    layout = {"tp": 1, "dp": 8, "ep": "on"}
    tree = spec("qwen3-30b-a3b", "dgx-h100", layout=layout) | {"emit": ["ray", "rankmap"]}
    assert codes(tree) == ["V15"]


def test_the_search_finds_a_layout_without_data_parallel_ranks() -> None:
    tree = spec("qwen3-30b-a3b", "dgx-h100") | {"emit": ["rankmap", "vllm"]}
    tree["job"]["traffic"] = {"input_tokens": 1000, "output_tokens": 500, "concurrency": 2000}
    plan, sink = planned(tree)
    assert plan is not None
    assert plan.layout.dp > 1
    plan, sink = planned(tree | {"emit": ["ray", "rankmap"]})
    assert plan is not None
    assert plan.layout.dp == 1
    assert sink.diagnostics == ()
