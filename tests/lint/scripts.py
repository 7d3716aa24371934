"""A correct script of each kind, and common mistakes in it."""

from __future__ import annotations

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions

MEGATRON = """\
#!/bin/bash
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 4096
    --swiglu
    --disable-bias-linear
    --position-embedding-type rope
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
)
torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py "${MODEL_ARGS[@]}" \\
    --tensor-model-parallel-size 4 \\
    --pipeline-model-parallel-size 2 \\
    --sequence-parallel \\
    --micro-batch-size 1 \\
    --global-batch-size 128 \\
    --use-distributed-optimizer \\
    --bf16
"""
EXPERTS = (
    "    --swiglu\n",
    "    --swiglu\n    --num-experts 64\n    --moe-router-topk 8\n    --moe-ffn-hidden-size 1536\n",
)
"""Edit that adds routed experts to the model."""
LINEAR = (
    "    --swiglu\n",
    "    --swiglu\n    --experimental-attention-variant gated_delta_net\n"
    "    --linear-attention-freq 4\n"
    "    --linear-num-key-heads 12\n    --linear-num-value-heads 24\n",
)
"""Edit that gives three of four layers linear attention."""
PATTERN = (
    "    --num-layers 32\n",
    '    --hybrid-layer-pattern "M-M*M-M*M-M*M-M*|M-M*M-M*M-M*M-M*"\n    --mamba-num-groups 8\n',
)
"""Edit that replaces the layers by a layer pattern."""
HYBRID = ("pretrain_gpt.py", "pretrain_hybrid.py")
"""Edit that starts the program for layer patterns."""
SBATCH = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
srun bash -c 'torchrun --nproc-per-node 8 --nnodes 4 --node-rank "$SLURM_NODEID" train.py'
"""
DEEPSPEED = """\
{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "fp16": {"enabled": false},
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}
}
"""
VLLM = """\
#!/bin/bash
vllm serve meta-llama/Llama-3.1-70B-Instruct \\
    --tensor-parallel-size 8 \\
    --pipeline-parallel-size 2 \\
    --max-model-len 32768 \\
    --max-num-batched-tokens 8192 \\
    --gpu-memory-utilization 0.92
"""
VLLM_EXPERTS = ("meta-llama/Llama-3.1-70B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1")

Edit = tuple[str, str]
Case = tuple[str, str, tuple[Edit, ...], str]
"""Expected code, correct script, edits, and a word of the line where the finding is reported."""

_END = "    --bf16\n"


def _more(flags: str) -> Edit:
    """Return the edit that appends flags to the command."""
    return (_END, f"    --bf16 {flags}\n")


def _size(flag: str, old: int, new: int) -> Edit:
    return (f"{flag} {old}", f"{flag} {new}")


HEAD_DIM = ("    --swiglu\n", "    --swiglu\n    --kv-channels 128\n")
TP, PP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
CASES: tuple[Case, ...] = (
    (
        "D01",
        MEGATRON,
        (HEAD_DIM, _size("attention-heads", 32, 36), _size("groups", 8, 12), _size(TP, 4, 8)),
        TP,
    ),
    (
        "D02",
        MEGATRON,
        (HEAD_DIM, _size("attention-heads", 32, 48), _size("query-groups", 8, 6)),
        TP,
    ),
    ("D18", MEGATRON, (LINEAR, _size(TP, 4, 8)), TP),
    ("E10", MEGATRON, (PATTERN,), "pretrain_gpt.py"),
    ("E10", MEGATRON, (HYBRID,), "pretrain_hybrid.py"),
    ("D18", MEGATRON, (PATTERN, HYBRID, _size("--mamba-num-groups", 8, 2)), TP),
    ("K03", MEGATRON, (PATTERN, _size("--mamba-num-groups", 8, 6)), "--mamba-num-groups"),
    ("K03", MEGATRON, (_size("query-groups", 8, 6),), "--num-query-groups"),
    ("D06", MEGATRON, (_size("--ffn-hidden-size", 14336, 14338),), TP),
    ("D07", MEGATRON, (_size("attention-heads", 32, 36),), "--hidden-size"),
    ("D08", MEGATRON, (EXPERTS, _more("--expert-model-parallel-size 6")), "--expert-model"),
    ("D09", MEGATRON, (_size(PP, 2, 3), _size("--num-layers", 32, 33)), PP),
    (
        "D10",
        MEGATRON,
        (EXPERTS, _more("--expert-model-parallel-size 32 --expert-tensor-parallel-size 1")),
        "--expert-model",
    ),
    (
        "D14",
        MEGATRON,
        (
            EXPERTS,
            _more(
                "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
                "--use-tp-pp-dp-mapping"
            ),
        ),
        "--use-tp-pp-dp-mapping",
    ),
    (
        "D17",
        MEGATRON,
        (EXPERTS, _more("--moe-router-num-groups 6 --moe-router-group-topk 2")),
        "--moe-router-num-groups",
    ),
    ("S01", MEGATRON, (_size(TP, 4, 1),), "--sequence-parallel"),
    ("S02", MEGATRON, (_size("--seq-length", 4096, 4094),), TP),
    ("S03", MEGATRON, (EXPERTS, ("    --sequence-parallel \\\n", "")), TP),
    (
        "S04",
        MEGATRON,
        (_size("--seq-length", 4096, 4084), _more("--context-parallel-size 8")),
        "--context",
    ),
    (
        "D25",
        MEGATRON,
        (_more("--ddp-average-in-collective --tensor-parallel-num-weight-shards 8"),),
        "--tensor-parallel-num-weight-shards",
    ),
    ("S14", MEGATRON, (("--sequence-parallel", "--tp-comm-overlap"),), "--tp-comm-overlap"),
    ("P01", MEGATRON, (_size("--num-layers", 32, 31),), PP),
    ("P01", MEGATRON, (_more("--num-virtual-stages-per-pipeline-rank 3"),), PP),
    (
        "P04",
        MEGATRON,
        (_size(PP, 2, 4), _more("--decoder-first-pipeline-num-layers 3")),
        "--decoder-first",
    ),
    (
        "P05",
        MEGATRON,
        (
            _more(
                "--num-layers-per-virtual-pipeline-stage 4 --num-virtual-stages-per-pipeline-rank 4"
            ),
        ),
        "--num-layers-per",
    ),
    (
        "P06",
        MEGATRON,
        (_size(PP, 2, 1), _more("--num-virtual-stages-per-pipeline-rank 2")),
        "--num-virtual",
    ),
    (
        "P07",
        MEGATRON,
        (_size("--global-batch-size", 128, 12), _more("--num-virtual-stages-per-pipeline-rank 2")),
        "--num-virtual",
    ),
    ("P08", MEGATRON, (_size(PP, 2, 8), _size("--global-batch-size", 128, 4)), PP),
    ("P16", MEGATRON, (_size("--global-batch-size", 128, 16),), PP),
    ("M01", MEGATRON, (_more("--expert-model-parallel-size 2"),), "--expert-model"),
    ("M02", MEGATRON, (EXPERTS, ("    --disable-bias-linear\n", "")), "--num-layers"),
    (
        "M06",
        MEGATRON,
        (EXPERTS, ("--moe-router-topk 8", "--moe-router-topk 1")),
        "--num-layers",
    ),
    (
        "M11",
        MEGATRON,
        (_more("--recompute-granularity selective --recompute-modules moe"),),
        "--recompute",
    ),
    ("B01", MEGATRON, (_size("--global-batch-size", 128, 130),), "--global-batch-size"),
    ("R04", MEGATRON, (_more("--fp16"),), "--bf16"),
    ("R06", MEGATRON, (("--use-distributed-optimizer", "--fp8-param-gather"),), "--fp8-param"),
    ("R06", MEGATRON, (_more("--fp4-param-gather"),), "--fp4-param-gather"),
    ("R06", MEGATRON, (_more("--reuse-grad-buf-for-mxfp8-param-ag"),), "--reuse-grad-buf"),
    ("R08", MEGATRON, (_more("--recompute-granularity full"),), "--recompute"),
    ("R08", MEGATRON, (_more("--recompute-method uniform"),), "--recompute-method"),
    (
        "R12",
        MEGATRON,
        (_more("--recompute-granularity selective --recompute-modules core_atn"),),
        "--recompute",
    ),
    ("R13", MEGATRON, (_more("--overlap-param-gather"),), "--overlap-param-gather"),
    ("R21", MEGATRON, (_more("--cuda-graph-impl full_iteration"),), "--cuda-graph-impl"),
    ("L28", SBATCH, (("--nodes=4", "--nodes=4 --segment=3"),), "--segment"),
    ("L17", SBATCH, (("--nodes=4", "--nodes=4 --time=24h"),), "--time"),
    ("L17", SBATCH, (("--nodes=4", "--nodes=4 -t 1-0-0"),), "-t"),
    (
        "L34",
        SBATCH,
        (("--gpus-per-node=8", "--gpus-per-node=8 --gpu-bind=single:1"),),
        "--gpu-bind",
    ),
    ("L34", SBATCH, (("srun bash", "srun --gpu-bind=per_task:1 bash"),), "--gpu-bind"),
    ("L34", SBATCH, (("srun bash", "srun --gpus-per-task 1 bash"),), "--gpus-per-task"),
    ("L34", SBATCH, (("--nproc-per-node 8", "--nproc-per-node 16"),), "--gpus-per-node"),
    ("P12", MEGATRON, (_more("--deepspeed --zero-stage 2"),), "--zero-stage"),
    ("L34", SBATCH, (("--gpus-per-node=8", "--gpus-per-task=1"),), "--gpus-per-task"),
    ("L35", SBATCH, (("--nnodes 4", "--nnodes 8"),), "--nnodes"),
    ("L08", SBATCH, (('"$SLURM_NODEID"', "3"),), "--node-rank"),
    ("L09", SBATCH, (("--nnodes 4", "--nnodes 4 --standalone"),), "--standalone"),
    ("F08", MEGATRON, (_more("--optimizer-cpu-offload"),), "--optimizer-cpu-offload"),
    ("F07", MEGATRON, (_more("--order tp-cp-ep-dp-pp"),), "--order"),
    ("R22", MEGATRON, (_more("--use-megatron-fsdp"),), "--use-megatron-fsdp"),
    ("R22", MEGATRON, (_more("--ckpt-format fsdp_dtensor"),), "--ckpt-format"),
    (
        "R22",
        MEGATRON,
        (_more("--use-megatron-fsdp --ckpt-format torch_dist"),),
        "--ckpt-format",
    ),
    (
        "R22",
        MEGATRON,
        (_more("--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-torch-fsdp2"),),
        "--use-megatron-fsdp",
    ),
    (
        "F04",
        MEGATRON,
        (_more("--data-parallel-sharding-strategy optim_grads"),),
        "--data-parallel-sharding-strategy",
    ),
    (
        "R22",
        MEGATRON,
        (
            _more(
                "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
                "--cuda-graph-impl transformer_engine"
            ),
        ),
        "--use-megatron-fsdp",
    ),
    (
        "N08",
        MEGATRON,
        (
            _more("--use-megatron-fsdp --ckpt-format fsdp_dtensor"),
            ("torchrun --nproc", "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc"),
        ),
        "CUDA_DEVICE_MAX_CONNECTIONS=1",
    ),
    ("F01", MEGATRON, (("--sequence-parallel", "--sequence-paralel"),), "--sequence-paralel"),
    ("F01", MEGATRON, (_more("--fp8-hybrid"),), "--fp8-hybrid"),
    ("F03", MEGATRON, (("--micro-batch-size 1", "--micro-batch-size one"),), "--micro-batch"),
    ("F03", MEGATRON, (("RMSNorm", "RMSnorm"),), "--normalization"),
    ("F04", MEGATRON, (_more("--moe-router-topk 2"),), "--moe-router-topk"),
    ("F04", MEGATRON, (("    --group-query-attention\n", ""),), "--num-query-groups"),
    ("L01", SBATCH, (("ntasks-per-node=1", "ntasks-per-node=8"),), "--ntasks-per-node"),
    (
        "L02",
        SBATCH,
        (
            (
                'srun bash -c \'torchrun --nproc-per-node 8 --nnodes 4 --node-rank "$SLURM_NODEID" '
                "train.py'",
                "srun python train.py",
            ),
        ),
        "--ntasks-per-node",
    ),
    ("L04", SBATCH, (("#SBATCH --nodes=4", "#SBATCH --nodes=4 --gres=gpu:8"),), "--gres"),
    (
        "L05",
        SBATCH,
        (("#SBATCH --nodes=4", "#SBATCH --nodes=4 --ntasks-per-gpu=1"),),
        "--ntasks-per-gpu",
    ),
    ("L08", SBATCH, (("bash -c 'torchrun", "torchrun"), ("train.py'", "train.py")), "srun"),
    (
        "L09",
        SBATCH,
        (('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "127.0.0.1"),),
        "MASTER_ADDR",
    ),
    ("N01", SBATCH, (("NCCL_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=docker0"),), "NCCL_SOCKET"),
    ("N02", SBATCH, (("export GLOO_SOCKET_IFNAME=eth0\n", ""),), "NCCL_SOCKET"),
    (
        "B02",
        DEEPSPEED,
        (('"train_batch_size": 256', '"train_batch_size": 250'),),
        "train_batch_size",
    ),
    (
        "B03",
        DEEPSPEED,
        (('  "train_batch_size": 256,\n', ""), ('  "train_micro_batch_size_per_gpu": 8,\n', "")),
        "{",
    ),
    (
        "I02",
        DEEPSPEED,
        (('"train_batch_size": 256', '"train_batch_size": "256"'),),
        "train_batch_size",
    ),
    ("I02", DEEPSPEED, (('"stage": 3', '"stage": 4'),), "stage"),
    ("R04", DEEPSPEED, (('"fp16": {"enabled": false}', '"fp16": {"enabled": true}'),), "fp16"),
    ("R14", DEEPSPEED, (('"stage": 3', '"stage": 2'),), "offload_param"),
    ("R14", DEEPSPEED, (('"stage": 3', '"stage": 0'), ("_param", "_optimizer")), "_optimizer"),
    ("X01", DEEPSPEED, (("gradient_clipping", "gradient_clipp1ng"),), "gradient_clipp1ng"),
    ("X11", MEGATRON, (_more("--lr 1e-4 --min-lr 1e-3"),), "--min-lr"),
    ("X11", MEGATRON, (_more("--lr-warmup-iters 200 --lr-decay-iters 200"),), "--lr-warmup-iters"),
    ("X01", DEEPSPEED, (('"fp16": {', '"amp": {'),), "amp"),
    ("X01", DEEPSPEED, (('"stage": 3', '"stage": 3, "my_own": 1'),), "my_own"),
    ("X01", DEEPSPEED, (("offload_param", "offload_params"),), "offload_params"),
    ("D01", VLLM, (("--tensor-parallel-size 8", "-tp 12"),), "-tp"),
    ("F01", VLLM, (("--max-model-len", "--max-modle-len"),), "--max-modle-len"),
    ("F03", VLLM, (("--pipeline-parallel-size 2", "--pipeline-parallel-size two"),), "two"),
    (
        "M01",
        VLLM,
        (("--max-model-len", "--enable-expert-parallel --max-model-len"),),
        "--enable-expert",
    ),
    (
        "M10",
        VLLM,
        (VLLM_EXPERTS, ("--max-model-len", "--enable-eplb --max-model-len")),
        "--enable-eplb",
    ),
    (
        "V04",
        VLLM,
        (("--max-model-len", "--no-enable-chunked-prefill --max-model-len"),),
        "--no-enable",
    ),
    (
        "V09",
        VLLM,
        (VLLM_EXPERTS, ("--max-model-len", "--headless --data-parallel-hybrid-lb --max-model-len")),
        "--headless",
    ),
    ("V11", VLLM, (("--pipeline-parallel-size 2", "--data-parallel-size 2"),), "--data-parallel"),
    (
        "V12",
        VLLM,
        (("--pipeline-parallel-size 2", "--decode-context-parallel-size 3"),),
        "--decode",
    ),
    ("V27", VLLM, (("--pipeline-parallel-size 2", "--pipeline-parallel-size 96"),), "--pipeline"),
)


def edited(script: str, edits: tuple[Edit, ...]) -> str:
    """Apply ``edits`` to ``script``; each of them must change something."""
    for old, new in edits:
        assert old in script, old
        script = script.replace(old, new)
    return script


def codes(text: str, options: LintOptions | None = None) -> list[str]:
    """Return the short codes of the findings in ``text``."""
    sink, _ = lint_text(text, "run.sh", options or LintOptions())
    return [one.code.removeprefix("PARC-") for one in sink.diagnostics]
