"""Numbers outside their ranges, numbers that do not divide others, and Megatron's torch FSDP2."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Diagnostic
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import DEEPSPEED, EXPERTS, MEGATRON, VLLM, edited
from tests.search.serving_specs import planned, spec

RPC = "--data-parallel-rpc-port"
VLLM_SERVE = "vllm serve org/model --tensor-parallel-size 8 "
SGLANG = "python3 -m sglang.launch_server --model-path org/model "
TRTLLM = "trtllm-serve org/model --tp_size 8 "
PRETRAIN = MEGATRON.removesuffix("\n") + " "
TORCH_FSDP = (
    PRETRAIN.replace("--use-distributed-optimizer", "--use-torch-fsdp2")
    .replace("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 1")
    .replace("--bf16", "--bf16 --no-gradient-accumulation-fusion --ckpt-format torch_dist")
)


def findings(text: str) -> list[Diagnostic]:
    return list(lint_text(text + "\n", "run.sh", LintOptions())[0].diagnostics)


def check_only_finding(script: str, code: str, message: str) -> None:
    """Assert that the only finding has ``code`` and starts with ``message``; none if it is "".

    The scripts of Megatron cause advice on bubbles (P16) and errors of context parallelism (S07)
    that the tests do not concern; both are left out.
    """
    found = [
        (one.code.removeprefix("PARC-"), one.finding.message[: len(message)])
        for one in findings(script)
        if one.code not in ("PARC-P16", "PARC-S07")
    ]
    assert found == ([(code, message)] if code else [])


@pytest.mark.parametrize(
    ("script", "words", "valid", "fix"),
    [
        (
            VLLM_SERVE,
            "--gpu-memory-utilization 95",
            "above 0 and at most 1",
            "--gpu-memory-utilization 0.95",
        ),
        (VLLM_SERVE, "--gpu-memory-utilization 0", "above 0 and at most 1", ""),
        (VLLM_SERVE, "--pipeline-parallel-size -1", "at least 1", "--pipeline-parallel-size 1"),
        (VLLM_SERVE, "--data-parallel-rpc-port 70000", "from 1 to 65535", f"{RPC} 7000"),
        (VLLM_SERVE, "--max-num-seqs 0", "at least 1", "--max-num-seqs 1"),
        (VLLM_SERVE, "--port 80000", "from 0 to 65535", "--port 8000"),
        (VLLM_SERVE, "--port 9999999", "from 0 to 65535", ""),
        (SGLANG, "--mem-fraction-static 1.2", "above 0 and at most 1", ""),
        (SGLANG, "--mem-fraction-static 88", "above 0 and at most 1", "--mem-fraction-static 0.88"),
        (SGLANG, "--base-gpu-id -1", "at least 0", "--base-gpu-id 0"),
        (SGLANG, "--tp 0", "at least 1", "--tp-size 1"),
        (TRTLLM, "--kv_cache_free_gpu_memory_fraction 1.5", "from 0 to 1", ""),
        (TRTLLM, "--pp_size 0", "at least 1", "--pp_size 1"),
        (PRETRAIN, "--hidden-dropout 1.5", "from 0 to 1", ""),
        (PRETRAIN, "--lr-warmup-fraction 1", "below 1", ""),
        (PRETRAIN, "--weight-decay -0.1", "at least 0", "--weight-decay 0"),
        (PRETRAIN, "--context-parallel-size 0", "at least 1", "--context-parallel-size 1"),
        (PRETRAIN, "--adam-beta2 nan", "at least 0 and below 1", ""),
    ],
)
def test_a_number_outside_its_range_is_reported_with_the_range(
    script: str, words: str, valid: str, fix: str
) -> None:
    found = [one for one in findings(script + words) if one.code == "PARC-F03"]
    assert len(found) == 1
    assert found[0].finding.label == f"the value must be {valid}"
    assert found[0].finding.fix == fix
    assert words.split()[1] in found[0].finding.message
    line = (script + words).splitlines()[found[0].span.line - 1]  # type: ignore[union-attr]
    assert line[found[0].span.column - 1 :].startswith(words.split()[0])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (VLLM_SERVE, "--gpu-memory-utilization 1"),
        (VLLM_SERVE, "--max-model-len -1"),
        (VLLM_SERVE, "--max-model-len 32k"),
        (VLLM_SERVE, "--gpu-memory-utilization $SHARE"),
        (SGLANG, "--chunked-prefill-size -1"),
        (TRTLLM, "--kv_cache_free_gpu_memory_fraction 0"),
        (PRETRAIN, "--lr-warmup-fraction 0.5"),
        (PRETRAIN, "--moe-expert-capacity-factor -1"),
    ],
)
def test_a_number_at_the_end_of_its_range_is_valid(script: str, words: str) -> None:
    assert [one.code for one in findings(script + words) if one.code == "PARC-F03"] == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (SGLANG + "--tp 16 --nnodes 3", "16 ranks are not divisible by --nnodes 3"),
        (SGLANG + "--tp 8 --pp-size 2 --nnodes 2 --node-rank 1", ""),
        (SGLANG + "--tp 8 --nnodes 2 --node-rank 2", "--node-rank 2 does not exist among 2 hosts"),
        (VLLM_SERVE + "--nnodes 3 --node-rank 0", "8 ranks are not divisible by --nnodes 3"),
        (VLLM_SERVE + "--nnodes 3 --node-rank 0 $MORE", ""),
        (VLLM_SERVE + "--nnodes 2 --node-rank 7", "--node-rank 7 does not exist among 2 hosts"),
    ],
)
def test_hosts_divide_the_ranks_of_an_engine(script: str, message: str) -> None:
    found = [
        one.finding.message for one in findings(script) if one.code in ("PARC-V05", "PARC-F03")
    ]
    assert found == ([message] if message else [])


EXPERT_SERVE = "vllm serve org/model -tp 4 --data-parallel-size 2 --enable-expert-parallel "


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "--eplb-config.num_redundant_experts 8",
            "M10",
            "--eplb-config.num-redundant-experts needs",
        ),
        ("--enable-elastic-ep", "F08", "--enable-elastic-ep needs --enable-eplb"),
        ("--numa-bind-nodes 0 1 0 1", "F08", "--numa-bind-nodes needs --numa-bind"),
        ("--numa-bind --numa-bind-nodes 0 1 0 1", "", ""),
        (
            "--nnodes 2 --distributed-executor-backend ray",
            "F08",
            "--distributed-executor-backend ray needs --nnodes 1, not 2",
        ),
        ("--data-parallel-size-local 3", "F03", "--data-parallel-size-local 3 exceeds what"),
        ("--data-parallel-size-local 1 --headless --data-parallel-start-rank 1", "", ""),
        ("--data-parallel-start-rank 2 --headless", "F03", "--data-parallel-start-rank 2 exceeds"),
        ("--enable-eplb 1", "F03", "--enable-eplb takes no value, but '1' follows"),
    ],
)
def test_related_flags_of_vllm_are_checked(words: str, code: str, message: str) -> None:
    check_only_finding(EXPERT_SERVE + words, code, message)


def test_a_part_of_the_optimizer_is_offloaded_only_at_stage_3() -> None:
    zero = '"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}'
    text = DEEPSPEED.replace('"stage": 3, "offload_param": {"device": "cpu"}', zero)
    assert [one.code for one in findings(text)] == ["PARC-R14"]
    assert findings(text.replace('"stage": 2', '"stage": 3')) == []


@pytest.mark.parametrize(("name", "expected"), [("fp16", ["PARC-R04"]), ("torch.bfloat16", [])])
def test_the_format_of_parameters_agrees_with_the_enabled_format(
    name: str, expected: list[str]
) -> None:
    text = DEEPSPEED.replace(
        '"gradient_clipping"', f'"data_types": {{"param_dtype": "{name}"}}, "x"'
    )
    assert [one.code for one in findings(text) if one.code == "PARC-R04"] == expected


def test_a_correct_script_with_torch_fsdp2_has_no_findings() -> None:
    assert [one.finding.message for one in findings(TORCH_FSDP)] == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("--bf16", "--fp16", "--use-torch-fsdp2 and --fp16 exclude each other"),
        (
            "--use-torch-fsdp2",
            "--use-torch-fsdp2 --use-distributed-optimizer",
            "--use-torch-fsdp2 and --use-distributed-optimizer exclude each other",
        ),
        (
            "    --untie-embeddings-and-output-weights\n",
            "",
            "--use-torch-fsdp2 needs --untie-embeddings-and-output-weights",
        ),
        (
            "--no-gradient-accumulation-fusion",
            "",
            "--use-torch-fsdp2 needs --no-gradient-accumulation-fusion",
        ),
        (
            "torch_dist",
            "torch",
            "--use-torch-fsdp2 needs --ckpt-format torch_dist or torch_dcp, not torch",
        ),
        (
            "--pipeline-model-parallel-size 1",
            "--pipeline-model-parallel-size 2",
            "--use-torch-fsdp2 needs --pipeline-model-parallel-size 1, not 2",
        ),
        (
            "torch_dist",
            "torch_dcp",
            "--ckpt-format torch_dcp needs --tensor-model-parallel-size 1, not 4",
        ),
    ],
)
def test_megatron_rejects_settings_with_torch_fsdp2(old: str, new: str, message: str) -> None:
    found = findings(TORCH_FSDP.replace(old, new))
    assert [one.finding.message for one in found if one.code == "PARC-R22"] == [message]


EXPERT_SCRIPT = edited(PRETRAIN, (EXPERTS,))
CONTEXT = PRETRAIN.replace("--pipeline-model-parallel-size 2", "--context-parallel-size 4")
VIRTUAL = "--num-layers-per-virtual-pipeline-stage "


@pytest.mark.parametrize(
    ("script", "words", "code", "message"),
    [
        (PRETRAIN, VIRTUAL + "3", "P02", "16 layers per stage are not divisible into virtual"),
        (PRETRAIN, VIRTUAL + "4", "", ""),
        (PRETRAIN, VIRTUAL + "4 --no-overlap-p2p-communication", "P06", "two interleaved pipeline"),
        (
            PRETRAIN,
            VIRTUAL + "4 --microbatch-group-size-per-virtual-pipeline-stage 1",
            "P07",
            "groups of 1 micro-batch do not fit pp 2 and 32 micro-batches",
        ),
        (PRETRAIN, VIRTUAL + "4 --microbatch-group-size-per-virtual-pipeline-stage 6", "", ""),
        (
            EXPERT_SCRIPT,
            "--overlap-moe-expert-parallel-comm",
            "P15",
            "--overlap-moe-expert-parallel-comm needs virtual pipeline stages at pp 2",
        ),
        (
            CONTEXT,
            "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4",
            "S06",
            "the levels 2 x 4 = 8 do not multiply to context parallel size 4",
        ),
        (CONTEXT, "--cp-comm-type a2a p2p a2a", "F03", "--cp-comm-type has 3 values for 32 layers"),
        (PRETRAIN, "--eval-global-batch-size 6", "B01", "evaluation batch 6 is not divisible by"),
        (PRETRAIN, "--eval-global-batch-size 64", "", ""),
        (PRETRAIN, "--rampup-batch-size 16 6 1000", "B01", "batch 22 of the ramp is not divisible"),
        (PRETRAIN, "--rampup-batch-size 16 16 1000", "", ""),
        (PRETRAIN, "--optimizer-cpu-offload", "F08", "--optimizer-cpu-offload needs --use-precis"),
        (PRETRAIN, "--optimizer-cpu-offload $MORE", "", ""),
        (PRETRAIN, "--exp-avg-dtype bf16", "F08", "--exp-avg-dtype bf16 needs --use-precision-aw"),
        (PRETRAIN, "--exp-avg-dtype fp32", "", ""),
        (
            EXPERT_SCRIPT,
            "--moe-enable-deepep --moe-token-dispatcher-type alltoall",
            "F08",
            "--moe-enable-deepep needs --moe-token-dispatcher-type flex, not alltoall",
        ),
    ],
)
def test_related_flags_of_megatron_are_checked(
    script: str, words: str, code: str, message: str
) -> None:
    check_only_finding(f"{script} {words}", code, message)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("Et*7|t*8|t*8|t*9,L", ""),
        ("Et*7|t*8|t*8|t*8,L", "the layout has 31 decoder layers, --num-layers is 32"),
        ("Et*8|t*8|t*16,L", "the layout has 3 stages, which pp 2 does not divide"),
        ("t*16|t*16,L", "the first stage must start with the embedding, E"),
    ],
)
def test_a_layout_string_is_checked_in_a_file_with_arguments_only(
    layout: str, message: str
) -> None:
    sizes = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32"
    text = (
        f"A=({sizes} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '{layout}')"
    )
    check_only_finding(text, "P19" if message else "", message)


def test_a_skipped_rule_does_not_ask_for_an_option_that_is_given() -> None:
    text = "A=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32)\n"
    given = LintOptions(gpus=32, cluster="dgx-h100", model="llama-3-8b")
    for options, asked in ((LintOptions(), {"", "--gpus", "--model", "--cluster"}), (given, {""})):
        _, skipped = lint_text(text, "run.sh", options)
        assert {one.option for one in skipped} == asked


@pytest.mark.parametrize(("copies", "expected"), [(3, ["PARC-D15"]), (2, []), (8, ["PARC-D15"])])
def test_optimizer_copies_divide_the_data_parallel_ranks(copies: int, expected: list[str]) -> None:
    # 32 GPUs, tp 4 and pp 2 give 4 data-parallel ranks
    script = f"{PRETRAIN} --num-distributed-optimizer-instances {copies}"
    assert [one.code for one in findings(script)] == expected


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", ["--cpu-offload-gb", "-4"]),
        ("vllm", ["--stream-interval=0"]),
        ("sglang", ["--schedule-conservativeness", "-1"]),
    ],
)
def test_launch_arguments_of_a_spec_are_checked_too(engine: str, args: list[str]) -> None:
    tree = spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8})
    _, sink = planned(tree | {"launch": {"args": args}, "emit": [engine]})
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-F03"]
    assert found.path == "launch.args[0]"
    assert "outside the valid range" in found.finding.message


@pytest.mark.parametrize(
    ("zero", "message"),
    [
        ('"reduce_bucket_size": 0', "reduce_bucket_size 0 is outside the valid range"),
        ('"sub_group_size": -1', "sub_group_size -1 is outside the valid range"),
        ('"offload_param": {"device": "cpu", "buffer_count": -2}', "buffer_count -2 is outside"),
        ('"sub_group_size": 0, "reduce_bucket_size": "auto"', ""),
    ],
)
def test_numbers_of_a_deepspeed_config_are_checked(zero: str, message: str) -> None:
    text = DEEPSPEED.replace('"offload_param": {"device": "cpu"}', zero)
    found = [one for one in findings(text) if one.code == "PARC-F03"]
    assert [one.finding.message[: len(message)] for one in found] == ([message] if message else [])


@pytest.mark.parametrize(
    ("emit", "args", "message"),
    [
        ("megatron", ["--optimizer-cpu-offload"], "--optimizer-cpu-offload needs --use-precision"),
        ("megatron", ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"], ""),
        ("vllm", ["--numa-bind-nodes", "0", "1"], "--numa-bind-nodes needs --numa-bind"),
        ("vllm", ["--numa-bind", "--numa-bind-nodes", "0", "1"], ""),
    ],
)
def test_related_launch_arguments_of_a_spec_are_checked(
    emit: str, args: list[str], message: str
) -> None:
    tree = spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8})
    if emit == "megatron":
        job = {"sequence_length": 4096, "global_batch": 64}
        tree = {"parc": 1, "name": "run", "model": "llama-3-8b", "job": job}
        tree["cluster"] = {"node": "dgx-h100", "nodes": 1}
    _, sink = planned(tree | {"launch": {"args": args}, "emit": [emit]})
    found = [one for one in sink.diagnostics if one.code in ("PARC-F08", "PARC-F01")]
    assert [one.finding.message[: len(message)] for one in found] == ([message] if message else [])
    assert all(one.path == "launch.args[0]" for one in found)


def test_vllm_example_is_valid() -> None:
    assert findings(VLLM) == []
