"""Lint of commands that start the pools of a disaggregated service."""

from __future__ import annotations

import pytest

from tests.lint.scripts import codes

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PREFILL = """--kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'"""
ALLOCATOR = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"vllm serve {MODEL} --tensor-parallel-size 2 {PREFILL}", []),
        (f"vllm serve {MODEL} --pipeline-parallel-size 2", []),
        (f"vllm serve {MODEL} --pipeline-parallel-size 2 {PREFILL}", ["V45"]),
        (f"vllm serve org/model --pipeline-parallel-size 2 {PREFILL}", ["V45"]),
        (f"{ALLOCATOR}vllm serve {MODEL} {PREFILL}", ["V45"]),
        (f"{ALLOCATOR}vllm serve {MODEL}", []),
    ],
)
def test_vllm_commands_of_a_pool_are_checked(text: str, expected: list[str]) -> None:
    assert codes(text + "\n") == expected


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize(("size", "expected"), [(1, []), (2, ["V45"])])
def test_sglang_commands_of_a_pool_are_checked(mode: str, size: int, expected: list[str]) -> None:
    start = f"python3 -m sglang.launch_server --model-path {MODEL} --tp 2"
    assert codes(f"{start} --pp-size {size} --disaggregation-mode {mode}\n") == expected
