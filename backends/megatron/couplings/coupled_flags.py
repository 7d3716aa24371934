"""Table of Megatron's flags that need or exclude another flag.

Source: NVIDIA/Megatron-LM, megatron/training/arguments.py, ``validate_args``.
"""

from __future__ import annotations

from parc.compiler.tools.lint.flag_rules import FlagCoupling

# Each of these flags shards the optimizer state, which several overlaps need.
SHARDS = ("--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2")
EXPERTS, FSDP, TORCH_FSDP = ("--num-experts",), "--use-megatron-fsdp", "--use-torch-fsdp2"
COUPLINGS: tuple[FlagCoupling, ...] = (
    FlagCoupling(
        "R04", "--bf16", excludes=("--fp16",), why="only one of --bf16 and --fp16 can be set"
    ),
    FlagCoupling("R06", "--fp8-param-gather", SHARDS, why="fp8 gathers need a sharded optimizer"),
    FlagCoupling(
        "R06", "--fp4-param-gather", ("--fp4-format",), why="only fp4 training has fp4 weights"
    ),
    FlagCoupling(
        "R06",
        "--reuse-grad-buf-for-mxfp8-param-ag",
        ("--fp8-param-gather",),
        why="the gradient buffer gathers weights that are stored in mxfp8",
    ),
    FlagCoupling(
        "R13",
        "--overlap-param-gather",
        ("--overlap-grad-reduce",),
        why="Megatron overlaps gathers only if it also overlaps gradient reductions",
    ),
    FlagCoupling(
        "R13",
        "--overlap-param-gather",
        SHARDS,
        why="parameters are gathered only if they are sharded",
    ),
    *(
        FlagCoupling(
            "D25",
            flag,
            excludes=("--ddp-average-in-collective", "--num-distributed-optimizer-instances"),
            why="shared weights need sums of gradients and one copy of the optimizer state",
        )
        for flag in (
            "--tensor-parallel-num-weight-shards",
            "--expert-tensor-parallel-num-weight-shards",
        )
    ),
    FlagCoupling(
        "F04",
        "--data-parallel-sharding-strategy",
        (FSDP,),
        why="only Megatron-FSDP reads the strategy",
    ),
    FlagCoupling(
        "R22", FSDP, ("--ckpt-format",), why="Megatron-FSDP only writes the format fsdp_dtensor"
    ),
    FlagCoupling(
        "R22", FSDP, excludes=(TORCH_FSDP,), why="only one of the two can shard the weights"
    ),
    *(
        FlagCoupling("R22", TORCH_FSDP, excludes=(flag,), why=why)
        for flag, why in (
            ("--use-distributed-optimizer", "torch FSDP2 shards the optimizer state itself"),
            ("--fp16", "torch FSDP2 is not supported with fp16: use --bf16"),
        )
    ),
    *(
        FlagCoupling("R22", TORCH_FSDP, (flag,), why=why)
        for flag, why in (
            (
                "--untie-embeddings-and-output-weights",
                "torch FSDP2 cannot shard a weight that two layers share",
            ),
            (
                "--no-gradient-accumulation-fusion",
                "torch FSDP2 reduces gradients itself, which this fusion prevents",
            ),
        )
    ),
    FlagCoupling(
        "R22",
        TORCH_FSDP,
        why="torch FSDP2 is not supported with pipeline or expert parallelism",
        limits=(
            ("--pipeline-model-parallel-size", ("1",)),
            ("--expert-model-parallel-size", ("1",)),
        ),
    ),
    FlagCoupling(
        "R22",
        TORCH_FSDP,
        why="torch FSDP2 writes only distributed checkpoints",
        limits=(("--ckpt-format", ("torch_dist", "torch_dcp")),),
    ),
    FlagCoupling(
        "R22",
        TORCH_FSDP,
        why="torch FSDP2 is supported only with these optimizers",
        limits=(("--optimizer", ("adam", "sgd")),),
    ),
    FlagCoupling(
        "R22",
        "--ckpt-format",
        (TORCH_FSDP,),
        why="only torch FSDP2 writes this format, without other parallelism",
        value="torch_dcp",
        limits=(
            ("--tensor-model-parallel-size", ("1",)),
            ("--pipeline-model-parallel-size", ("1",)),
        ),
    ),
    *(
        FlagCoupling(
            "R22",
            "--ckpt-format",
            excludes=(FSDP,),
            why="Megatron-FSDP only writes the format fsdp_dtensor",
            value=other,
        )
        for other in ("torch", "torch_dist", "torch_dcp")
    ),
    FlagCoupling(
        "R22",
        "--ckpt-format",
        (FSDP,),
        why="only Megatron-FSDP writes this format",
        value="fsdp_dtensor",
    ),
    FlagCoupling(
        "R21",
        "--cuda-graph-impl",
        ("--no-check-for-nan-in-loss-and-grad",),
        excludes=("--cuda-graph-modules",),
        why="a graph of a whole step contains all modules and cannot check for NaN",
        value="full_iteration",
    ),
    FlagCoupling(
        "S14",
        "--tp-comm-overlap",
        ("--sequence-parallel",),
        why="this overlap hides the gathers of sequence parallelism",
    ),
    FlagCoupling(
        "P05",
        "--hybrid-layer-pattern",
        excludes=(
            "--num-layers-per-virtual-pipeline-stage",
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-layout",
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ),
        why="bars in the pattern define the pipeline stages",
    ),
    FlagCoupling(
        "P05",
        "--num-layers-per-virtual-pipeline-stage",
        excludes=(
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-layout",
        ),
        why="both flags define the pipeline stages",
    ),
    FlagCoupling(
        "P05",
        "--num-virtual-stages-per-pipeline-rank",
        excludes=("--pipeline-model-parallel-layout",),
        why="both flags define the pipeline stages",
    ),
    FlagCoupling(
        "P05",
        "--pipeline-model-parallel-layout",
        excludes=(
            "--decoder-first-pipeline-num-layers",
            "--decoder-last-pipeline-num-layers",
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ),
        why="the layout string defines all pipeline stages",
    ),
    *(
        FlagCoupling("F04", flag, EXPERTS, why="the flag has no effect without experts")
        for flag in (
            "--moe-router-topk",
            "--moe-ffn-hidden-size",
            "--moe-grouped-gemm",
            "--moe-latent-size",
            "--moe-shared-expert-intermediate-size",
            "--moe-layer-freq",
        )
    ),
    FlagCoupling(
        "F04",
        "--q-lora-rank",
        ("--multi-latent-attention",),
        why="only latent attention has this size",
    ),
    FlagCoupling(
        "F04",
        "--kv-lora-rank",
        ("--multi-latent-attention",),
        why="only latent attention has this size",
    ),
    FlagCoupling(
        "F04",
        "--num-query-groups",
        ("--group-query-attention",),
        why="without this flag, the number of query groups has no effect",
    ),
    *(
        FlagCoupling(
            "R08",
            "--recompute-granularity",
            (flag,),
            why="full recomputation needs both --recompute-method and --recompute-num-layers",
            value="full",
        )
        for flag in ("--recompute-method", "--recompute-num-layers")
    ),
    # validate_args in training/arguments.py, TransformerConfig.__post_init__
    *(
        FlagCoupling(
            "R08",
            flag,
            excludes=("--recompute-method", "--recompute-num-layers"),
            why="selective recomputation accepts no method and no number of layers",
            value=value,
        )
        for flag, value in (
            ("--recompute-granularity", "selective"),
            ("--recompute-activations", ""),
        )
    ),
    FlagCoupling(
        "R08",
        "--recompute-method",
        ("--recompute-granularity", "--recompute-activations"),
        why="without one of these flags, nothing is recomputed",
    ),
    FlagCoupling(
        "R08",
        "--recompute-num-layers",
        ("--recompute-granularity", "--recompute-activations"),
        why="without one of these flags, nothing is recomputed",
    ),
)
