"""A server whose API and whose rendezvous use the same port of one host (L10)."""

from __future__ import annotations

import pytest

from tests.lint.scripts import codes

SGLANG = "python3 -m sglang.launch_server --model-path org/model --tp 16 --nnodes 2 --node-rank {} "
VLLM = "vllm serve org/model --tensor-parallel-size 16 --nnodes 2 --node-rank 0 "


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SGLANG + "--dist-init-addr 10.0.0.1:5000 --port 5000", ["L10"]),
        (SGLANG + "--dist-init-addr=10.0.0.1:5000 --port=5000", ["L10"]),
        (SGLANG + "--dist-init-addr $HEAD:5000 --port 5000", ["L10"]),
        (SGLANG + "--dist-init-addr $HEAD:30000", ["L10"]),
        (SGLANG + "--dist-init-addr $HEAD:30000 $MORE", []),
        (SGLANG + "--dist-init-addr $HEAD:20000 --port 30000", []),
        (SGLANG + "--dist-init-addr $HEAD:$PORT --port 30000", []),
        (SGLANG + "--dist-init-addr $HEAD:29999 --port 30000", []),
        (SGLANG + "--dist-init-addr $HEAD:29999 --port 30000 --attn-dp-size 4", ["L10"]),
        (SGLANG + "--dist-init-addr $HEAD:29993 --port 30000 --attn-dp-size 4", []),
        (VLLM + "--master-addr h --master-port 8000 --port 8000", ["L10"]),
        (VLLM + "--master-addr h --master-port 8000", ["L10"]),
        (VLLM + "--master-addr h --master-port 29501 --port 8000", []),
        (VLLM + "--data-parallel-rpc-port 8000 --port 8000 --data-parallel-size 2", ["L10"]),
    ],
)
def test_the_rendezvous_needs_another_port_than_the_server(
    command: str, expected: list[str]
) -> None:
    text = command.format(0) + "\n"
    assert codes(text) == expected


def test_two_commands_with_other_ports_cause_no_finding() -> None:
    first = SGLANG.format(0) + "--dist-init-addr h:5000 --port 5001 &\n"
    second = SGLANG.format(1) + "--dist-init-addr h:5000\n"
    assert codes(first + second) == []
    assert codes(first.replace("5001", "5000") + second) == ["L10"]
