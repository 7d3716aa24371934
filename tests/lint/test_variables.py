"""Variables and positions in linted scripts: which values are certain, which words are marked."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import CASES, EXPERTS, MEGATRON, SBATCH, Case, codes, edited

TP = "--tensor-model-parallel-size"
FIRST = "#!/bin/bash\n"
VARIABLE_TP = edited(MEGATRON, ((f"{TP} 4", f"{TP} $TP"),))
"""Script whose tensor parallel size is the variable TP; 3 does not divide the attention heads."""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("TP=3\n", True),
        ("TP=3\nTP=3\n", True),
        ("TP=4\nTP=3\n", False),
        ("TP=3\nTP=4\n", False),
        ("if [ $1 ]; then\n  TP=3\nfi\n", False),
        ("TP=3\nif [ $1 ]; then\n  TP=4\nfi\n", False),
        ("if true; then\n  TP=3\nfi\n", True),
        ("TP=3\nif false; then\n  TP=4\nfi\n", True),
        ("", False),
    ],
)
def test_a_variable_is_expanded_only_if_all_its_assignments_agree(
    lines: str, expected: bool
) -> None:
    script = edited(VARIABLE_TP, ((FIRST, FIRST + lines),))
    assert ("D01" in codes(script)) is expected


UNSHARDED = (EXPERTS, ("    --sequence-parallel \\\n", ""))
"""Edits after which a flag is missing, which is reported only if no variable may contain it."""


@pytest.mark.parametrize(
    ("flags", "closed"),
    [
        ("--bf16", True),
        ("--bf16 --lr $LR", True),
        ("--bf16 --lr=$LR", True),
        ("--bf16 --lr $LR $MORE", False),
        ('--bf16 "$@"', False),
        ('--bf16 "${MODEL_ARGS[@]}"', True),
    ],
)
def test_only_a_variable_that_is_no_value_may_contain_flags(flags: str, closed: bool) -> None:
    script = edited(MEGATRON, (*UNSHARDED, ("    --bf16\n", f"    {flags}\n")))
    assert ("S03" in codes(script)) is closed


@pytest.mark.parametrize(
    ("variable", "code", "cluster"),
    [
        ("NCCL_IB_DISABLE=1", "N04", "dgx-h100"),
        ("NCCL_NET=Socket", "N04", "dgx-h100"),
        ("CUDA_DEVICE_MAX_CONNECTIONS=8", "N08", "dgx-h100"),
    ],
)
def test_an_environment_variable_is_reported_where_the_script_sets_it(
    variable: str, code: str, cluster: str
) -> None:
    script = edited(MEGATRON, ((FIRST, f"{FIRST}\nexport {variable}\n"),))
    sink, _ = lint_text(script, "run.sh", LintOptions(cluster=cluster))
    (found,) = [one for one in sink.diagnostics if one.code == f"PARC-{code}"]
    assert found.span is not None
    assert (found.span.line, found.span.column, found.span.length) == (3, 8, len(variable))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[1] == SBATCH and case[3].startswith("--")], ids=str
)
def test_a_directive_is_marked_at_its_column(case: Case) -> None:
    code, script, edits, word = case
    text = edited(script, edits)
    sink, _ = lint_text(text, "run.sh", LintOptions())
    (span,) = [one.span for one in sink.diagnostics if one.code == f"PARC-{code}"]
    assert span is not None
    line = text.splitlines()[span.line - 1]
    marked = line[span.column - 1 :][: span.length]
    assert marked.startswith(word)
    assert marked in line.split()


@pytest.mark.parametrize(
    ("cluster", "limited"),
    [("deepseek-h800", True), ("hgx-h800", False)],
    ids=["a cluster has a number of hosts", "a host type has none"],
)
def test_only_a_cluster_of_the_catalog_limits_the_gpus(cluster: str, limited: bool) -> None:
    command = "vllm serve meta-llama/Llama-3.1-70B -tp 32 -pp {pp} --max-model-len 8192\n"
    options = LintOptions(cluster=cluster)
    assert "V05" not in codes(command.format(pp=2048 // 32), options)
    assert ("V05" in codes(command.format(pp=2048 // 32 + 1), options)) is limited


@pytest.mark.parametrize(
    ("directives", "expected"),
    [("--nodes=2 --gpus-per-node=8", []), ("--nodes=1 --gpus-per-node=8", ["V05"])],
)
def test_the_gpus_of_a_server_are_those_that_its_job_requests(
    directives: str, expected: list[str]
) -> None:
    command = "vllm serve meta-llama/Llama-3.1-70B -tp 8 -pp 2 --max-model-len 8192"
    script = f"#!/bin/bash\n#SBATCH {directives}\n{command}\n"
    found = codes(script, LintOptions(cluster="dgx-h100"))
    assert [code for code in found if code == "V05"] == expected


@pytest.mark.parametrize("flag", ["--gpu-memory-utilization", "--kv-cache-dtype", "--dtype"])
def test_a_flag_without_its_value_is_reported_and_nothing_else_fails(flag: str) -> None:
    command = f"vllm serve meta-llama/Llama-3.1-70B -tp 8 --max-model-len 8192 {flag}\n"
    assert codes(command, LintOptions(cluster="dgx-h100", gpus=8)) == ["F03"]


@pytest.mark.parametrize(
    ("step", "tasks", "gpus", "expected"),
    [
        ("srun python train.py", 1, 8, ["L02"]),
        ("srun /opt/bin/python3.11 a/pretrain_gpt.py", 1, 8, ["L02"]),
        ("srun python finetune.py", 1, 8, ["L02"]),
        ("srun python preprocess.py", 1, 8, []),
        ("srun bash train.sh", 1, 8, []),
        ("python train.py", 1, 8, []),
        ("srun python train.py", 8, 8, []),
        ("srun python train.py", 1, 1, []),
        ("srun --ntasks-per-node=8 python train.py", 1, 8, []),
        ("srun torchrun --nproc-per-node 8 train.py", 8, 8, ["L01"]),
        ('srun -l bash -c "cd run; torchrun --nproc-per-node 8 train.py"', 8, 8, ["L01"]),
        ("srun bash -c '\nexport A=1\ntorchrun --nproc-per-node 8 train.py\n'", 8, 8, ["L01"]),
        ('srun bash -c "cd run; torchrun --nproc-per-node 8 train.py"', 1, 8, []),
        ('srun bash -c "cd run"\ntorchrun --nproc-per-node 8 train.py', 8, 8, []),
        ("srun torchrun --nproc-per-node 8 train.py", 1, 8, []),
    ],
)
def test_a_training_script_needs_one_process_per_gpu_or_one_launcher_per_host(
    step: str, tasks: int, gpus: int, expected: list[str]
) -> None:
    script = f"#SBATCH --nodes=2 --ntasks-per-node={tasks} --gpus-per-node={gpus}\n{step}\n"
    found = codes(f"#!/bin/bash\n{script}", LintOptions(allow_unknown=True))
    assert [code for code in found if code in ("L01", "L02")] == expected


@pytest.mark.parametrize(
    ("cluster", "pp", "expected"),
    [
        ("deepseek-h800", 2, "2032 of 2048 GPUs get no rank"),
        ("deepseek-h800", 256, None),
        ("hgx-h800", 2, None),
    ],
    ids=["too large", "used up", "a host type has no number of hosts"],
)
def test_a_cluster_of_the_catalog_has_hosts_that_can_be_idle(
    cluster: str, pp: int, expected: str | None
) -> None:
    command = f"vllm serve meta-llama/Llama-3.1-70B -tp 8 -pp {pp} --max-model-len 8192\n"
    sink, skipped = lint_text(command, "run.sh", LintOptions(cluster=cluster))
    messages = [one.finding.message for one in sink.diagnostics if one.code == "PARC-T15"]
    assert messages == ([expected] if expected else [])
    assert ("the number of GPUs" in {one.fact for one in skipped}) is (cluster == "hgx-h800")


@pytest.mark.parametrize("level", ["-O3", "-O 3", "-O=2", "-O"])
def test_the_optimization_level_of_vllm_has_a_short_form(level: str) -> None:
    command = f"vllm serve meta-llama/Llama-3.1-70B -tp 8 --max-model-len 8192 {level}\n"
    assert codes(command, LintOptions(cluster="dgx-h100", gpus=8)) == []


@pytest.mark.parametrize("on", ["--recompute-granularity selective", "--recompute-activations"])
@pytest.mark.parametrize("flag", ["--recompute-method uniform", "--recompute-num-layers 2"])
def test_selective_recomputation_has_no_method_and_no_layers(on: str, flag: str) -> None:
    options = LintOptions(framework="megatron")
    script = f"torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 {on} {flag}\n"
    assert "R08" in codes(script, options)
    assert "R08" not in codes(script.replace(flag, ""), options)
