"""Lint of YAML files that start servers without Kubernetes: Compose, dstack, values of Helm."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import codes

MODEL = "--model meta-llama/Llama-3.1-8B-Instruct"
COMPOSE = """\
services:
  proxy: {{image: nginx}}
  chat:
    image: vllm/vllm-openai:v0.30.0
    command: {model} --tensor-parallel-size {size}
    environment: [{variable}]
  code:
    image: lmsysorg/sglang:latest
    command: >
      python3 -m sglang.launch_server
      --model-path meta-llama/Llama-3.1-8B-Instruct
      --tp 1
    deploy:
      resources: {{reservations: {{devices: [{{count: 1, capabilities: [gpu]}}]}}}}
"""
DSTACK = """\
type: service
name: chat
env: [MODEL=meta-llama/Llama-3.1-8B-Instruct]
commands:
  - vllm serve $MODEL --tensor-parallel-size {size}
resources: {{gpu: "H100:2"}}
"""
HELM = """\
vllm:
  image: {{repository: vllm/vllm-openai, tag: v0.30.0}}
  model: meta-llama/Llama-3.1-8B-Instruct
  extraArgs: [--tensor-parallel-size, "{size}"]
  resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""


def compose(size: int, variable: str = "A=b") -> str:
    return COMPOSE.format(model=MODEL, size=size, variable=variable)


def test_sizes_of_each_service_of_a_compose_file_are_checked() -> None:
    assert codes(compose(2)) == []
    assert "D01" in codes(compose(3))
    assert "D01" in codes(compose(2).replace("--tp 1", "--tp 3"))


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("CUDA_VISIBLE_DEVICES=0", ["L34"]),
        ("HIP_VISIBLE_DEVICES=0", ["L34"]),
        ('"CUDA_VISIBLE_DEVICES=0,1"', []),
        ("CUDA_VISIBLE_DEVICES", []),
        ("CUDA_VISIBLE_DEVICES=$GPUS", []),
        ("GPUS=0", []),
    ],
)
def test_the_environment_of_a_container_limits_its_gpus(variable: str, expected: list[str]) -> None:
    assert codes(compose(2, variable)) == expected


def test_the_devices_of_a_service_limit_only_its_own_gpus() -> None:
    assert codes(compose(2).replace("--tp 1", "--tp 2")) == ["L34"]
    assert codes(compose(2).replace("--tp 1", "--tp 2").replace("count: 1", "count: 2")) == []


@pytest.mark.parametrize(("size", "expected"), [(2, []), (4, ["L34"])])
def test_the_gpus_of_a_dstack_service_are_checked(size: int, expected: list[str]) -> None:
    assert codes(DSTACK.format(size=size)) == expected


def test_flags_in_the_values_of_a_chart_are_checked() -> None:
    # The templates of the chart can add flags, so that only the given ones are checked.
    assert codes(HELM.format(size=4), LintOptions(allow_unknown=True)) == []
    assert codes(HELM.format(size=4).replace("parallel", "paralel")) == ["F01"]
