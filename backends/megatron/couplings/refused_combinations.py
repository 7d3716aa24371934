"""Combinations of flags at which Megatron stops and that no layout rule describes (F08).

Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py, ``validate_args``, and
megatron/core/transformer/transformer_config.py, ``__post_init__``. A conformance test checks that
Megatron accepts a script with a flag and what it needs, and rejects the script that breaks the row.
"""

from __future__ import annotations

from parc.compiler.tools.lint.flag_rules import FlagCoupling

DISPATCHER, PRECISE = "--moe-token-dispatcher-type", "--use-precision-aware-optimizer"
FP8_OR_FP4 = ("--fp8-format", "--fp4-format")
VIRTUAL_STAGES = (
    "--num-layers-per-virtual-pipeline-stage",
    "--num-virtual-stages-per-pipeline-rank",
    "--pipeline-model-parallel-layout",
)

REFUSED: tuple[FlagCoupling, ...] = (
    FlagCoupling(
        "F08",
        "--cpu-offloading-num-layers",
        excludes=("--recompute-granularity", "--recompute-activations"),
        why="activations are either offloaded or recomputed",
        limits=(("--pipeline-model-parallel-size", ("1",)),),
    ),
    FlagCoupling(
        "F08",
        "--moe-enable-deepep",
        (DISPATCHER,),
        why="only the dispatcher flex uses DeepEP",
        limits=((DISPATCHER, ("flex",)),),
    ),
    FlagCoupling(
        "F08",
        "--moe-shared-expert-overlap",
        (DISPATCHER,),
        why="the default dispatcher, allgather, cannot overlap shared experts",
        limits=((DISPATCHER, ("alltoall", "flex")),),
    ),
    FlagCoupling(
        "F08",
        "--moe-router-padding-for-quantization",
        FP8_OR_FP4,
        why="tokens are padded only for fp8 and fp4",
    ),
    FlagCoupling(
        "F08",
        "--moe-router-padding-for-quantization",
        (DISPATCHER,),
        why="the default dispatcher, allgather, does not support padding",
        limits=((DISPATCHER, ("alltoall", "flex")),),
    ),
    FlagCoupling(
        "F08",
        "--moe-pad-expert-input-to-capacity",
        ("--moe-expert-capacity-factor",),
        why="the capacity factor defines the length of the padded input",
    ),
    FlagCoupling(
        "F08",
        "--moe-router-group-topk",
        ("--moe-router-num-groups",),
        why="routing limited to groups needs the number of groups",
    ),
    FlagCoupling(
        "F08",
        "--moe-router-enable-expert-bias",
        ("--moe-router-score-function",),
        why="the default score function, softmax, does not support this bias",
        limits=(("--moe-router-score-function", ("sigmoid", "sqrtsoftplus")),),
    ),
    FlagCoupling(
        "F08",
        "--recompute-modules",
        ("--moe-grouped-gemm",),
        why="the module moe_act exists only with grouped GEMMs",
        value="moe_act",
    ),
    FlagCoupling(
        "F08",
        "--recompute-modules",
        excludes=("--moe-shared-expert-overlap",),
        why="overlapped shared experts cannot be recomputed",
        value="shared_experts",
    ),
    FlagCoupling(
        "F08",
        "--recompute-granularity",
        why="a CUDA graph of single modules cannot contain full recomputation",
        value="full",
        limits=(("--cuda-graph-impl", ("none", "full_iteration")),),
    ),
    FlagCoupling(
        "F08",
        "--distribute-saved-activations",
        excludes=("--sequence-parallel",),
        why="sequence parallelism already distributes the saved activations",
    ),
    FlagCoupling(
        "F08",
        "--first-last-layers-bf16",
        ("--fp8-recipe",),
        why="the default recipe, delayed, uses fp8 in all layers",
        limits=(("--fp8-recipe", ("tensorwise", "blockwise", "mxfp8", "custom")),),
    ),
    FlagCoupling(
        "F08",
        "--lr-warmup-iters",
        excludes=("--lr-warmup-fraction",),
        why="only one of both can set the length of the warm-up",
    ),
    FlagCoupling(
        "F08",
        "--train-samples",
        excludes=("--train-iters", "--lr-decay-iters", "--lr-warmup-iters"),
        why="the length of a run is either in samples or in iterations",
    ),
    FlagCoupling(
        "F08",
        "--delay-wgrad-compute",
        ("--overlap-moe-expert-parallel-comm",),
        why="delayed weight gradients hide the exchange of the experts",
    ),
    FlagCoupling(
        "F08",
        "--optimizer-cpu-offload",
        (PRECISE,),
        why="the offloaded optimizer uses the code of the precision-aware optimizer",
    ),
    *(
        FlagCoupling(
            "F08",
            flag,
            (PRECISE,),
            why="other optimizers keep their moments in fp32",
            value=value,
        )
        for flag in ("--exp-avg-dtype", "--exp-avg-sq-dtype")
        for value in ("fp16", "bf16", "fp8")
    ),
    *(
        FlagCoupling(
            "F08",
            "--overlap-param-gather-with-optimizer-step",
            needs,
            why="the gather of one model chunk overlaps the update of another one",
        )
        for needs in (
            ("--use-distributed-optimizer",),
            ("--overlap-param-gather",),
            VIRTUAL_STAGES,
        )
    ),
    FlagCoupling(
        "F08",
        "--hybrid-context-parallel",
        ("--calculate-per-token-loss",),
        excludes=("--use-megatron-fsdp",),
        why="micro-batches have different numbers of tokens",
        limits=(("--pipeline-model-parallel-size", ("1",)),),
    ),
    FlagCoupling(
        "F08",
        "--multi-latent-attention",
        excludes=("--group-query-attention",),
        why="latent attention has no query groups",
    ),
)
