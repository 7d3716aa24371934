"""``parc import accelerate-yaml``: configs that PARC writes; tests/topology has others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.accelerate.import_config import read_accelerate_yaml
from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.compiled import emitted, example


def read(text: str) -> tuple[dict[str, Any], Sink]:
    sink = Sink()
    fragment = read_accelerate_yaml(text, "accelerate.yaml", sink)
    assert fragment is not None
    return dict(fragment.spec), sink


@pytest.mark.parametrize("name", ["llama-3-8b-accelerate", "llama-3-70b-accelerate-zero3"])
def test_a_config_of_parc_gives_the_fields_of_its_plan(name: str) -> None:
    plan = example(name)
    spec, sink = read(emitted(plan)["accelerate/config.yaml"])
    problem, layout = plan.problem, plan.layout
    cluster = spec["cluster"]
    assert cluster["nodes"] * cluster["node"]["gpus_per_node"] == layout.world
    left = [one.finding.message for one in sink.diagnostics]
    if name == "llama-3-8b-accelerate":
        assert spec["job"]["precision"] == problem.job.precision
        sizes = {key: getattr(layout, key) for key in ("tp", "cp", "dp_shard", "zero_stage")}
        assert sizes.items() <= spec["layout"].items()
        assert spec["layout"]["dp"] == layout.dp
        assert left == []
    else:
        assert len(left) == 1
        assert "deepspeed_config_file: deepspeed/ds_config.json" in left[0]


@pytest.mark.parametrize("name", ["llama-3-8b-accelerate", "llama-3-70b-accelerate-zero3"])
def test_an_imported_config_compiles_to_the_same_config(name: str) -> None:
    plan, sink = example(name), Sink()
    config = emitted(plan)["accelerate/config.yaml"]
    fragment, _ = read(config)
    spec = json.loads(plan.problem.spec_json)
    spec["job"] |= fragment.get("job", {})
    spec["cluster"] = {"node": spec["cluster"]["node"], "nodes": fragment["cluster"]["nodes"]}
    if "layout" in fragment:
        spec["layout"] = fragment["layout"]
    again = plan_spec(SpecSource("again.yaml", json.dumps(spec), None), (), sink)
    assert again is not None
    assert emitted(again)["accelerate/config.yaml"] == config
