"""Scripts as people publish them: correct ones have no findings, each for a reason given here."""

from __future__ import annotations

import pytest

from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments
from parc.compiler.tools.importers.shell_words import shell_words
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import DEEPSPEED, MEGATRON, SBATCH, codes

EXPERTS = "--expert-model-parallel-size 8 --tensor-model-parallel-size 2 --sequence-parallel"
POD = """\
containers:
- name: server
  command: ["python3", "-m", "sglang.launch_server"]
  args:
    - --model-path
    - meta-llama/Llama-3.1-8B-Instruct  # the smallest one
    {extra}- --tp
    - "{tp}"
    - --port={port}
"""
SERVER = "sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp-size 2"


def _more(flags: str, program: str = "pretrain_gpt.py") -> str:
    return MEGATRON.replace("    --bf16\n", f"    --bf16 {flags}\n").replace(
        "pretrain_gpt.py", program
    )


CORRECT = {
    "model arguments of another file": f"PERF=({EXPERTS})\nsource model.sh\n"
    "python3 train.py --update-size $((1024 * 2)) ${MODEL_ARGS[@]} ${PERF[@]}\n",
    "flags of a public copy of Megatron": _more("--use-mpi --data-impl mmap"),
    "two flags that only a copy can define": _more("--fused-a --fused-b --data-impl mmap"),
    "a layout that a flag of a copy changes": _more("--noop-layers 1 --fused-b").replace(
        "--num-layers 32", "--num-layers 33"
    ),
    "flags of NVIDIA's modelopt": _more("--export-te-mcore-model"),
    "values that a checkpoint replaces": _more("", "evaluate.py").replace(
        "--num-layers 32", "--num-layers -1"
    ),
    "numbers of experts per layer": _more('--deepspeed --num-experts "64 64 128"'),
    "an optional value": _more("--lr-decay-iters ${DECAY:-} --zero-stage 1"),
    "experts that are run and not trained": _more(
        "--num-experts 8 --moe-router-topk 2", "text_generation_ptq.py"
    ).replace("    --sequence-parallel \\\n", ""),
    "an option of srun": 'RESUME=""\n[ -d /opt/x ] && RESUME="--auto-resume=1"\n'
    + MEGATRON.replace("torchrun", "srun ${RESUME} torchrun --rdzv-backend c10d"),
    "an abbreviation that argparse accepts": "vllm serve org/model --max-num-seq 8 -tp 2\n",
    "flags of srun before a server": f"srun --nodes=2 --ntasks=2 python3 -m {SERVER}\n",
    "flags of conda before a second server": "vllm serve a/b -tp 2 &\n"
    "conda run --no-capture-output -n x vllm serve a/b -tp 2\n",
    "flags of another command": "register_pool A --replicas 2 --tensor-parallel-size 4\n"
    "vllm serve a/b -tp 2\n",
    "a command of vLLM-Omni": "vllm serve a/b --omni --ulysses-degree 2\n",
    "flags of curl on a line of their own": "vllm serve a/b -tp 2\n\n-X POST -F model=b\n",
    "flags of optional features": 'a:\n  args:\n  - "--decode-context-parallel-size"\n  - "8"\n'
    "b:\n  args:\n  - --language-model-only\nguide: vllm serve a/b\n",
    "a placeholder for a time": SBATCH.replace("--nodes=4", "--nodes=4 --time=your_time"),
    "a template that adds a flag": "vllm serve a/b -tp 2 --trust-remote-code{{- if .x }} \\\n"
    "  {{ .extra }}\n",
    "a list of arguments": POD.format(extra="", tp=2, port="$(PORT)"),
    "a list with a condition": POD.format(
        extra="{{- if .x }}\n    - --of-vllm\n    {{- end }}\n    ", tp=2, port="{{ .port }}"
    ),
    "a config of GPT-NeoX": '{"pipe-parallel-size": 1, "num-layers": 12,'
    ' "fp16": {"fp16": true}, "zero_optimization": {"stage": 1}}',
    "a remark in a config": DEEPSPEED.replace("{\n", '{\n  "comment": "ours",\n', 1),
    "a stage that the autotuner selects": DEEPSPEED.replace(
        '"stage": 3, "offload_param": {"device": "cpu"}', '"stage": [0, 1, 2, 3]'
    ).replace("{\n", '{\n  "autotuning": {"enabled": true},\n', 1),
    "a node rank that is ignored": SBATCH.replace(
        "srun bash -c 'torchrun",
        'L="torchrun --rdzv-backend=c10d --node-rank $SLURM_PROCID"\nsrun bash -c \'torchrun',
    ),
    "a node rank on one host": SBATCH.replace("--nodes=4", "--nodes=1")
    .replace("--nnodes 4", "--nnodes 1")
    .replace("'", '"')
    .replace('"$SLURM_NODEID"', "$SLURM_NODEID"),
    "an interface for programs without Gloo": "#SBATCH --nodes=2\n"
    "export NCCL_SOCKET_IFNAME=eth0\nmpirun -N 8 ./build/all_reduce_perf -b 8\n",
}

COPIES = ("two flags that only a copy can define", "a layout that a flag of a copy changes")
"""Scripts whose program may be a copy of Megatron, but has the name of Megatron's own."""


@pytest.mark.parametrize("name", CORRECT)
def test_correct_public_scripts_have_no_findings(name: str) -> None:
    found = codes(CORRECT[name], LintOptions(allow_unknown=True))
    # F07 is advice, and right if the user does not run a copy of Megatron.
    advised = {"I05", "F07"} if name in COPIES else {"I05"}
    assert [code for code in found if code not in advised] == []


def test_flags_that_only_a_copy_can_define_get_one_advice() -> None:
    for name in COPIES:
        assert codes(CORRECT[name], LintOptions(allow_unknown=True)).count("F07") == 1


INCORRECT = [
    ("M01", f"PERF=({EXPERTS})\npython3 train.py ${{PERF[@]}}\n"),
    ("F07", _more("--use-mpy")),
    ("F01", _more("--data-impl mmap")),
    ("F03", _more("").replace("--num-layers 32", "--num-layers -1")),
    ("S03", CORRECT["experts that are run and not trained"].replace("text_generation_ptq", "t")),
    ("F01", "vllm serve org/model --max-num 8 -tp 2\n"),
    ("F03", POD.format(extra="", tp="two", port=1)),
    ("F01", POD.format(extra="- --of-vllm\n    ", tp=2, port=1)),
    ("F01", '- args:\n  - --model\n  - a/b\n  - --api-kye=x\n  command: ["vllm", "serve"]\n'),
    ("F01", 'args:\n- --model\n- a/b\n- --tensor-paralel-size=2\ncommand: ["vllm", "serve"]\n'),
    ("X01", DEEPSPEED.replace("{\n", '{\n  "zero_optimizatoin": {},\n', 1)),
    ("I02", CORRECT["a stage that the autotuner selects"].replace("true}", "false}", 1)),
    ("L08", CORRECT["a node rank that is ignored"].replace("c10d", "static")),
    ("L08", CORRECT["a node rank on one host"].replace("nodes=1", "nodes=2").replace("s 1", "s 2")),
    ("N02", CORRECT["an interface for programs without Gloo"].replace("all_reduce_perf", "x")),
]


@pytest.mark.parametrize(("code", "script"), INCORRECT)
def test_the_same_scripts_with_a_mistake_have_findings(code: str, script: str) -> None:
    assert code in codes(script, LintOptions(allow_unknown=True))


@pytest.mark.parametrize(
    ("value", "fix"),
    [("eth0", "export GLOO_SOCKET_IFNAME=eth0"), ("=ib0", "export GLOO_SOCKET_IFNAME=ib0")]
    + [(value, "") for value in ("^docker,lo", "eth", "ens", "eth0,ib0")],
)
def test_the_interface_of_gloo_is_a_full_name(value: str, fix: str) -> None:
    script = SBATCH.replace("NCCL_SOCKET_IFNAME=eth0", f"NCCL_SOCKET_IFNAME={value}").replace(
        "export GLOO_SOCKET_IFNAME=eth0\n", ""
    )
    sink, _ = lint_text(script, "run.sh", LintOptions(allow_unknown=True))
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-N02"]
    assert found.finding.fix == fix
    assert bool(found.finding.help) is not bool(fix)


def test_an_address_of_the_own_host_is_reported_once() -> None:
    script = "#SBATCH --nodes=2\nMASTER_ADDR=localhost\ntorchrun --master_addr $MASTER_ADDR a.py\n"
    assert codes(script, LintOptions(allow_unknown=True)).count("L09") == 1


def test_lists_of_a_manifest_become_words_at_their_places() -> None:
    text = POD.format(extra="", tp=2, port="$(PORT)")
    words = shell_words(text, "pod.yaml")
    (server,) = [word for word in words if word.text == "sglang.launch_server"]
    lines = text.splitlines()
    for word in (word for word in words if word.statement == server.statement):
        assert (
            lines[word.span.line - 1][word.span.column - 1 :]
            .lstrip('"')
            .startswith(word.text.replace("${PORT}", "$(PORT)"))
        )
    assert [word.text for word in words if word.statement == server.statement][-4:] == [
        *("meta-llama/Llama-3.1-8B-Instruct", "--tp", "2", "--port=${PORT}")
    ]


@pytest.mark.parametrize("text", ["args: x\n- a\n", "command:\n  - |\n    vllm serve\n", MEGATRON])
def test_texts_without_lists_of_arguments_stay_as_they_are(text: str) -> None:
    assert join_manifest_arguments(text) == text
