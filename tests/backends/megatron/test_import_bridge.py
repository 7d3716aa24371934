"""``parc import megatron-bridge-yaml``: PARC's own files, and overrides of a recipe."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.megatron.bridge.import_config import read_bridge_yaml
from parc.backends.megatron.bridge.verify import CONFIG
from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.compiled import emitted, example, example_files

EXAMPLE = "qwen3-30b-a3b-megatron-bridge"
OVERRIDES = """\
model:
  tensor_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: null
  sequence_parallel: true
  recompute_granularity: full
  num_layers: 4
train:
  train_iters: 20
  exit_interval: 5
mixed_precision: bf16-with-fp8-delayed-scaling-mixed
checkpoint:
  save: /runs
  load: /runs
dataset:
  data_path: 0.3 /data/a 0.7 /data/b
ddp:
  use_distributed_optimizer: maybe
"""


def read(text: str) -> tuple[dict[str, Any], list[str]]:
    sink = Sink()
    fragment = read_bridge_yaml(text, "config.yaml", sink)
    assert fragment is not None
    found = [f"{one.span.line} {one.finding.message}" for one in sink.diagnostics if one.span]
    return dict(fragment.spec), found


def test_overrides_of_a_recipe_give_only_the_fields_that_they_set() -> None:
    spec, left = read(OVERRIDES)
    assert spec == {
        "layout": {"tp": 4, "sequence_parallel": True, "recompute": "full"},
        "job": {
            "steps": 20,
            "precision": "fp8",
            "fp8_recipe": "delayed",
            "checkpoint_dir": "/runs",
            "data": ["0.3", "/data/a", "0.7", "/data/b"],
        },
    }
    assert left == [
        "6 not carried over: model.num_layers: 4",
        "9 not carried over: train.exit_interval: 5",
        "17 not carried over: ddp.use_distributed_optimizer: maybe",
    ]


def test_a_file_of_parc_compiles_to_the_same_file() -> None:
    config = example_files(EXAMPLE)[CONFIG]
    fragment, left = read(config)
    assert left == []
    assert fragment.pop("model") == "Qwen/Qwen3-30B-A3B"
    spec = json.loads(example(EXAMPLE).problem.spec_json) | fragment
    sink = Sink()
    again = plan_spec(SpecSource("again.yaml", json.dumps(spec), None), (), sink)
    assert again is not None
    assert emitted(again)[CONFIG] == config


def test_a_file_without_a_known_field_is_refused() -> None:
    sink = Sink()
    assert read_bridge_yaml("logger:\n  log_interval: 1\n", "config.yaml", sink) is None
    assert [one.code for one in sink.diagnostics if one.severity == "error"] == ["PARC-I02"]
