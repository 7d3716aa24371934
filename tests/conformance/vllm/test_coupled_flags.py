"""vLLM rejects the combinations and values of flags that ``parc lint`` reports."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.conformance.good_inputs import QWEN_MOE
from tests.conformance.tool_checkers import vllm_verdicts

pytestmark = pytest.mark.conformance
EXPERTS = "-tp 4 -dp 2 --enable-expert-parallel "
REJECTED = (
    EXPERTS + "--eplb-config.num_redundant_experts 8",
    EXPERTS + "--enable-elastic-ep",
    "-tp 2 -pp 2 -dp 2 --enable-expert-parallel --enable-eplb --enable-elastic-ep",
    EXPERTS + "--data-parallel-size-local 3",
    EXPERTS + "--data-parallel-size-local 1 --data-parallel-start-rank 2 --headless",
    EXPERTS + "--data-parallel-rank 2",
    "-tp 4 --enable-expert-parallel 4",
    "-tp 4 --numa-bind-nodes 0 1 0 1",
    "-tp 16 --nnodes 2 --node-rank 0 --distributed-executor-backend ray",
    "-tp 8 --nnodes 3 --node-rank 0",
    "-tp 8 --nnodes 2 --node-rank 7 --master-addr 10.0.0.1",
    "-tp 8 --gpu-memory-utilization 95",
    "-tp -1",
    "-tp 8 --data-parallel-rpc-port 70000",
    "-tp 8 --cpu-offload-gb -4",
    "-tp 8 --stream-interval 0",
    "-tp 8 --max-num-seqs 0",
)
ACCEPTED = (
    EXPERTS + "--enable-eplb --eplb-config.num_redundant_experts 8",
    EXPERTS + "--data-parallel-size-local 2",
    "-tp 4 --gpu-memory-utilization 1",
)


@pytest.mark.parametrize("words", [REJECTED, ACCEPTED], ids=["rejected", "accepted"])
def test_vllm_and_parc_agree(words: tuple[str, ...]) -> None:
    cases = [{"argv": ["model", *one.split()], "config": QWEN_MOE} for one in words]
    theirs = [verdict["accepted"] for verdict in vllm_verdicts(cases)]
    own = []
    for one in words:
        sink, _ = lint_text(f"vllm serve org/model {one}\n", "run.sh", LintOptions())
        own.append(not sink.failed())
    assert own == theirs == [words is ACCEPTED] * len(words)
