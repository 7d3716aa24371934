"""Several servers in one script: they share GPUs (V03) or a port (L10) only if both run at once."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.laws.test_mutated_specs import time_limit
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


VLLM = "vllm serve Qwen/Qwen3-8B"
SGLANG = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B"
TRTLLM = "trtllm-serve Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("first", "second", "flag"),
    [
        (VLLM, VLLM, "--tensor-parallel-size"),
        (VLLM, SGLANG, "--tp-size"),
        (SGLANG, VLLM, "--tensor-parallel-size"),
        (SGLANG, TRTLLM, "--tp_size"),
        (TRTLLM, TRTLLM, "--tp_size"),
    ],
)
@pytest.mark.parametrize("script", ["{a} &\n{b}\n", "case $1 in\n a) {a} ;;\n b) {b} ;;\nesac\n"])
def test_each_server_is_checked_with_its_own_flags(
    first: str, second: str, flag: str, script: str
) -> None:
    own = {VLLM: "--tensor-parallel-size", SGLANG: "--tp-size", TRTLLM: "--tp_size"}[first]
    good = f"CUDA_VISIBLE_DEVICES=0,1 {first} {own} 2 --port 1234"
    other = f"CUDA_VISIBLE_DEVICES=2,3,4 {second} {flag} "
    assert codes(script.format(a=good, b=other + "1"), ALLOWED) == []
    # 32 heads are not divisible by 3.
    assert "D01" in codes(script.format(a=good, b=other + "3"), ALLOWED)
    assert "D01" in codes(script.format(a=other + "3", b=good), ALLOWED)


def test_a_flag_of_one_server_does_not_restrict_another() -> None:
    first, second = "--pipeline-parallel-size 2", "--tensor-parallel-size 2 --port 8001"
    both = f"CUDA_VISIBLE_DEVICES=0,1 {VLLM} {first} &\nCUDA_VISIBLE_DEVICES=2,3 {VLLM} {second}\n"
    sink, skipped = lint_text(both, "run.sh", ALLOWED)
    assert not sink.diagnostics
    assert "D01" in sink.checked
    assert "D01" not in {one.code for one in skipped}


def test_many_servers_are_checked_as_one_script_in_seconds() -> None:
    lines = [f"{VLLM} --tensor-parallel-size {2 + number % 2}\n" for number in range(2000)]
    with time_limit(10):
        assert "D01" not in codes("".join(lines), ALLOWED)
