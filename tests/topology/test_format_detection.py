"""Formats are detected by keys that only their tool has."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files

BRIDGE = (
    "model:\n  tensor_model_parallel_size: 4\n  num_layers: 8\ntrain:\n  global_batch_size: 8\n"
)
NEMO = "trainer:\n  devices: 8\nexp_manager:\n  name: gpt\n" + BRIDGE
FLAGSCALE = "system:\n  tensor_model_parallel_size: 8\nmodel:\n  num_layers: 64\n"
DEEPSPEED = '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}\n'
NEOX = '{"pipe_parallel_size": 1, "num_attention_heads": 8, "train_micro_batch_size_per_gpu": 4}\n'
JUBE = "name: benchmark\nparameterset:\n  - name: runs\n    - {_: --tensor-model-parallel-size 4}\n"


def kind(text: str, name: str) -> str:
    """Return the detected format; the message of the finding if none is detected."""
    sink = Sink()
    found = import_files("auto", [(text, name)], sink)
    if found is not None:
        return found.kinds
    (one,) = (one for one in sink.diagnostics if one.code == "PARC-I05")
    assert "valid values" in one.finding.help or "PARC can import" in one.finding.help
    return one.finding.message


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (BRIDGE, "run.yaml", "megatron-bridge-yaml"),
        (f"_target_: ConfigContainer\n{BRIDGE}", "run.yaml", "megatron-bridge-yaml"),
        (DEEPSPEED, "ds.json", "deepspeed-json"),
        ("[parallelism]\ntensor_parallel_degree = 8\n", "job.toml", "torchtitan-toml"),
        ("[ training ] # sizes\ndata_parallel_shard_degree = -1\n", "job.toml", "torchtitan-toml"),
        ("[training]\ntensor_parallel_degree = 8\n", "job.toml", "torchtitan-toml"),
    ],
)
def test_the_format_is_detected(text: str, name: str, expected: str) -> None:
    assert kind(text, name) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (NEMO, "nemo.yaml"),
        (FLAGSCALE, "train.yaml"),
        (NEOX, "neox.yml"),
        (NEOX.replace("_", "-").replace("train-micro-batch-size-per-gpu", "train_batch_size"), "a"),
        ("[model.parallelism]\ndata_parallel_shard_degree = -1\n", "cosmos.toml"),
    ],
)
def test_formats_of_other_tools_are_refused(text: str, name: str) -> None:
    assert kind(text, name) == f"cannot detect the format of {name}"


def test_a_benchmark_of_jube_is_refused() -> None:
    assert kind(JUBE, "jube.yaml") == "cannot detect the format of jube.yaml"
