"""Several servers in one script: they share GPUs (V03) or a port (L10) only if both run at once."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import codes

FIRST, SECOND = "vllm serve a/b", "vllm serve a/c --port 8001"
ALLOWED = LintOptions(allow_unknown=True)


def _found(script: str) -> list[str]:
    return [code for code in codes(script, ALLOWED) if code in ("V03", "L10")]


@pytest.mark.parametrize(
    "script",
    [
        f"{FIRST} &\n{SECOND} &\n",
        f"nohup {FIRST} > log 2>&1 &\nsleep 60\n{SECOND}\n",
        f"CUDA_VISIBLE_DEVICES=0,1 {FIRST} -tp 2 &\nCUDA_VISIBLE_DEVICES=1 {SECOND}\n",
        f"{FIRST} --gpu-memory-utilization 0.6 &\n{SECOND} --gpu-memory-utilization 0.5\n",
        "python3 -m vllm.entrypoints.openai.api_server --model a/b &\n" + SECOND,
    ],
)
def test_two_servers_that_need_more_than_a_gpu_are_reported(script: str) -> None:
    assert _found(script) == ["V03"]


@pytest.mark.parametrize(
    "script",
    [
        f"{FIRST}\n{SECOND}\n",
        f"{FIRST} &\nkill $!\n{SECOND}\n",
        f"{FIRST} &\nwait\n{SECOND}\n",
        f"CUDA_VISIBLE_DEVICES=0,1 {FIRST} -tp 2 &\nCUDA_VISIBLE_DEVICES=2,3 {SECOND} -tp 2\n",
        f"CUDA_VISIBLE_DEVICES=0,1 {FIRST} &\nCUDA_VISIBLE_DEVICES=1 {SECOND}\n",
        f"CUDA_VISIBLE_DEVICES=$A {FIRST} &\nCUDA_VISIBLE_DEVICES=$B {SECOND}\n",
        f"export CUDA_VISIBLE_DEVICES=0\n{FIRST} &\nexport CUDA_VISIBLE_DEVICES=1\n{SECOND}\n",
        f"{FIRST} --gpu-memory-utilization 0.5 &\n{SECOND} --gpu-memory-utilization 0.5\n",
        f"{FIRST} --gpu-memory-utilization $U &\n{SECOND}\n",
        f"ssh host1 {FIRST} &\nssh host2 {SECOND}\n",
        f"srun -w host1 {FIRST} &\nsrun -w host2 {SECOND}\n",
        f"if [ $1 = a ]; then\n  {FIRST} &\nelse\n  {SECOND} &\nfi\n",
        f"{FIRST} -dp 2 --headless --data-parallel-start-rank 1 &\n{FIRST} -dp 2\n",
    ],
)
def test_servers_that_share_no_gpu_or_may_not_run_at_once_are_not_reported(script: str) -> None:
    assert _found(script) == []


def test_two_servers_on_one_port_are_reported() -> None:
    apart = "CUDA_VISIBLE_DEVICES=0 {a} &\nCUDA_VISIBLE_DEVICES=1 {b}\n"
    assert _found(apart.format(a=FIRST, b="vllm serve a/c")) == ["L10"]
    assert _found(apart.format(a=FIRST, b=SECOND)) == []
