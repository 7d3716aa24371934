"""GPUs of a server: too few visible ones (L34), too few of the job (V05), and correct commands."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import codes

FOUR = "CUDA_VISIBLE_DEVICES=0,1,2,3"
VLLM = "vllm serve org/model -tp 8"
SGLANG = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 8"
TRTLLM = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 8"
JOB = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=4\n"

MISTAKES = {
    "vllm": ("L34", f"{FOUR} {VLLM}\n", "-tp 4"),
    "vllm after an export": ("L34", f"export {FOUR}\n{VLLM}\n", "-tp 4"),
    "vllm with pipeline stages": ("L34", f"{FOUR} {VLLM} -pp 2\n".replace("-tp 8", "-tp 4"), ""),
    "vllm with replicas": ("L34", f"{FOUR} {VLLM} -dp 2\n".replace("-tp 8", "-tp 4"), ""),
    "vllm with local replicas": (
        "L34",
        f"{FOUR} {VLLM} -dp 4 --data-parallel-size-local 2\n".replace("-tp 8", "-tp 4"),
        "",
    ),
    "vllm with 6 of 8 GPUs": ("L34", f"{FOUR},4,5 {VLLM}\n", "-tp 4"),
    "sglang": ("L34", f"{FOUR} {SGLANG}\n", "--tp 4"),
    "sglang after an export": ("L34", f"export {FOUR}\n{SGLANG}\n", "--tp 4"),
    "tensorrt-llm": ("L34", f"{FOUR} {TRTLLM}\n", "--tp_size 4"),
    "vllm in a job": ("V05", f"{JOB}srun {VLLM}\n", ""),
    "sglang in a job": ("V05", f"{JOB}srun {SGLANG}\n", ""),
    "tensorrt-llm in a job": ("V05", f"{JOB}{TRTLLM}\n", ""),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_server_with_too_few_gpus_is_reported_once(name: str) -> None:
    code, script, fix = MISTAKES[name]
    sink, _ = lint_text(script, "run.sh", LintOptions())
    assert [one.code for one in sink.diagnostics] == [f"PARC-{code}"]
    assert sink.diagnostics[0].finding.fix == fix
    if fix:
        flag = fix.split()[0]
        fixed = script.replace(f"{flag} 8", fix)
        assert codes(fixed) == []


CORRECT = {
    "as many GPUs": f"{FOUR},4,5,6,7 {VLLM}\n",
    "more GPUs": f"{FOUR},4,5,6,7,8 {SGLANG}\n",
    "two servers on other GPUs": f"{FOUR} {VLLM} --port 1234 &\n"
    "CUDA_VISIBLE_DEVICES=4,5 vllm serve a/b -tp 2\n".replace("-tp 8", "-tp 4"),
    "GPUs of the user": f"CUDA_VISIBLE_DEVICES=$GPUS {VLLM}\n",
    "ranks of Ray": f"{FOUR} {VLLM} --distributed-executor-backend ray\n",
    "a cluster of Ray": f"ray start --head\n{FOUR} {VLLM}\n",
    "ranks on two hosts": f"{FOUR} {VLLM} --nnodes 2 --node-rank $RANK --master-addr a\n",
    "SGLang on two hosts": f"{FOUR} {SGLANG} --nnodes 2 --node-rank $RANK --dist-init-addr a:1\n",
    "a rank of the replicas": f"{FOUR} {VLLM} -dp 2 --data-parallel-rank 0\n".replace("8", "4"),
    "local replicas": f"{FOUR} {VLLM} -dp 2 --data-parallel-size-local 1\n".replace(
        "-tp 8", "-tp 4"
    ),
    "GPUs of another command": f"{FOUR} python prepare.py\n{VLLM}\n",
    "GPUs that Slurm sets": f"export {FOUR}\nsrun {VLLM}\n",
    "a size of the user": f"N=${{TP_SIZE:-8}}\n{FOUR} {VLLM}\n".replace("-tp 8", "-tp $N"),
    "ranks of MPI": f"{FOUR} mpirun -n 8 trtllm-llmapi-launch {TRTLLM}\n",
    "the GPUs of the job": JOB.replace("=4", "=8") + f"srun {VLLM}\n",
}


@pytest.mark.parametrize("name", CORRECT)
def test_the_nearest_correct_command_has_no_findings(name: str) -> None:
    assert codes(CORRECT[name]) == []


@pytest.mark.parametrize("gpus", [4, 8, 12])
def test_a_given_number_of_gpus_below_the_ranks_is_reported(gpus: int) -> None:
    assert codes(f"{VLLM} -pp 2\n", LintOptions(gpus=gpus)) == ["V05"]
    assert codes(f"{VLLM} -pp 2\n", LintOptions(gpus=16)) == []
