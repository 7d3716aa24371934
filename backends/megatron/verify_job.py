"""Layout and job settings in Megatron's arguments, and the fields of ``plan.json`` they set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.backends.megatron.verify_flags import ParsedFlags, RejectedFlagValues
from parc.backends.megatron.verify_model import MODEL, Implied, Shown, rows_of_flags
from parc.backends.megatron.verify_plan_fields import PlanFields

JOB, LAYOUT, RECOMPUTE = "problem.job", "layout", "layout.recompute"
LAUNCH = "problem.launch"
ARGS = f"{LAUNCH}.args"
"""Plan path under which a flag is reported if no other field of the plan sets the flag."""
PARTS = {
    "attention": ("qkv_linear", "core_attn", "attn_proj"),
    "norms": ("attn_norm", "mlp_norm"),
    "experts": ("expert_fc1", "moe_act"),
}
"""Part of a layer in the plan -> modules of --offload-modules (transformer_config.py)."""


def _flag_translator(flag: str, names: dict[str, str]) -> Callable[[ParsedFlags], Any]:
    """Return a function that reads ``--flag`` and translates its value to the name in a plan.

    ``names`` maps values of the flag to names in a plan. Megatron would reject a name of a plan as
    the value of the flag. In this case, the function returns a text that equals no value of a plan.
    """

    def read(settings: ParsedFlags) -> Any:
        value = settings[flag]
        if not isinstance(value, str):
            return value
        return f"--{flag} {value}" if value in names.values() else names.get(value, value)

    return read


def _recompute_modules(settings: ParsedFlags) -> Any:
    modules = settings["recompute-modules"]
    # TransformerConfig: selective recompute without modules covers the core attention.
    if settings["recompute-granularity"] == "selective" and modules == ():
        return ["core_attn"]
    return modules


def _job_kind(settings: ParsedFlags) -> str:
    # Until the run has a checkpoint, load_checkpoint sets --finetune for the pretrained one.
    weights = settings["finetune"] or settings["pretrained-checkpoint"] is not None
    return "finetune" if weights else "pretrain"


def _offloaded_parts(settings: ParsedFlags) -> Any:
    modules = settings["offload-modules"]
    if isinstance(modules, RejectedFlagValues):
        return modules
    rest, found = list(modules), []
    while rest:
        part = next((name for name, own in PARTS.items() if tuple(rest[: len(own)]) == own), None)
        if part is None:
            return f"no parts of a layer: {' '.join(rest)}"
        found.append(part)
        rest = rest[len(PARTS[part]) :]
    return found


def _expert_tensor_size(settings: ParsedFlags) -> Any:
    # initialize_model_parallel: the default is tp.
    size = settings["expert-tensor-parallel-size"]
    return settings["tensor-model-parallel-size"] if size is None else size


def _weight_sharing_ranks(settings: ParsedFlags) -> Any:
    shards = settings["tensor-parallel-num-weight-shards"]
    return _quotient_of_shards(shards, settings["tensor-model-parallel-size"])


def _expert_sharing_ranks(settings: ParsedFlags) -> Any:
    shards = settings["expert-tensor-parallel-num-weight-shards"]
    return _quotient_of_shards(shards, _expert_tensor_size(settings))


def _quotient_of_shards(shards: Any, size: Any) -> Any:
    """Return the sharing ranks (resolve_tensor_parallel_weight_shards in model_parallel_config)."""
    if shards is None:
        return 1
    if not isinstance(shards, int) or not isinstance(size, int):
        return shards
    valid = 0 < size <= shards and shards % size == 0
    return shards // size if valid else f"not valid: {shards} shards for {size} ranks"


STEP = "full_iteration"
"""Value of ``layout.cuda_graphs`` for one graph of a whole step, and Megatron's name for it."""


def _cuda_graphs(settings: ParsedFlags) -> Any:
    known = {"none": False, "transformer_engine": True}
    if settings["cuda-graph-impl"] == "local" and settings["cuda-graph-scope"] == (STEP,):
        return STEP  # as Megatron 0.17 names it
    return known.get(str(settings["cuda-graph-impl"]), settings["cuda-graph-impl"])


def _profiled_steps(settings: ParsedFlags) -> Any:
    if settings["profile"] is not True:
        return settings["profile"] or None
    names = {"first_step": "step-start", "last_step": "step-end", "ranks": "ranks"}
    return {name: settings[f"profile-{flag}"] for name, flag in names.items()}


SHOWN: tuple[Shown, ...] = (
    *rows_of_flags(
        LAYOUT,
        {
            "tp": "tensor-model-parallel-size",
            "pp": "pipeline-model-parallel-size",
            "cp": "context-parallel-size",
            "ep": "expert-model-parallel-size",
            "sequence_parallel": "sequence-parallel",
            "micro_batch": "micro-batch-size",
        },
    ),
    (f"{LAYOUT}.etp", "expert-tensor-parallel-size", _expert_tensor_size),
    (f"{LAYOUT}.gtp", "tensor-parallel-num-weight-shards", _weight_sharing_ranks),
    (f"{LAYOUT}.egtp", "expert-tensor-parallel-num-weight-shards", _expert_sharing_ranks),
    (
        f"{LAYOUT}.order",
        "use-tp-pp-dp-mapping",
        lambda s: "tp-cp-ep-pp-dp" if s["use-tp-pp-dp-mapping"] else "tp-cp-ep-dp-pp",
    ),
    (f"{LAYOUT}.cuda_graphs", "cuda-graph-impl", _cuda_graphs),
    (
        f"{RECOMPUTE}.granularity",
        "recompute-granularity",
        lambda s: s["recompute-granularity"] or "none",
    ),
    (f"{RECOMPUTE}.modules", "recompute-modules", _recompute_modules),
    (f"{RECOMPUTE}.method", "recompute-method", lambda s: s["recompute-method"]),
    (f"{RECOMPUTE}.layers", "recompute-num-layers", lambda s: s["recompute-num-layers"]),
    (f"{LAYOUT}.offload.activations", "offload-modules", _offloaded_parts),
    *rows_of_flags(
        JOB,
        {
            "sequence_length": "seq-length",
            "global_batch": "global-batch-size",
            "steps": "train-iters",
            "learning_rate": "lr",
            "min_learning_rate": "min-lr",
            "warmup_fraction": "lr-warmup-fraction",
            "weight_decay": "weight-decay",
            "adam_beta1": "adam-beta1",
            "adam_beta2": "adam-beta2",
            "adam_epsilon": "adam-eps",
            "gradient_clipping": "clip-grad",
            "fused_loss": "cross-entropy-loss-fusion",
            "seed": "seed",
            "data": "data-path",
            "tokenizer_model": "tokenizer-model",
            "checkpoint_dir": "save",
        },
    ),
    (f"{JOB}.moment_precision", "exp-avg-dtype", lambda s: s["exp-avg-dtype"]),
    (f"{JOB}.lr_decay", "lr-decay-style", _flag_translator("lr-decay-style", {"WSD": "wsd"})),
    (
        f"{JOB}.lr_decay_steps",
        "lr-decay-iters",
        lambda s: s["lr-decay-iters"] if s["lr-decay-iters"] is not None else s["train-iters"],
    ),
    (
        f"{JOB}.wsd_decay_steps",
        "lr-wsd-decay-iters",
        lambda s: s["lr-wsd-decay-iters"] or 0,
    ),
    (f"{LAUNCH}.tensorboard_dir", "tensorboard-dir", lambda s: s["tensorboard-dir"]),
    (f"{LAUNCH}.wandb_project", "wandb-project", lambda s: s["wandb-project"]),
    (f"{LAUNCH}.profile", "profile", _profiled_steps),
    (f"{JOB}.kind", "pretrained-checkpoint", _job_kind),
)
"""Rows for the layout and job fields of every plan."""


def _cp_exchange_flag(fields: PlanFields) -> Any:
    # With cp 1 nothing is exchanged, and the flag has no effect.
    name = fields[f"{LAYOUT}.cp_comm"] if fields[f"{LAYOUT}.cp"] > 1 else "p2p"
    return ("allgather" if name == "all_gather" else name,)


def _cp_hierarchy_flag(fields: PlanFields) -> tuple[int, ...]:
    inner = fields[f"{LAYOUT}.cp_a2a"]
    return (inner, fields[f"{LAYOUT}.cp"] // inner) if inner > 1 else ()


def _uses_deduplicating_dispatcher(fields: PlanFields) -> bool:
    return fields.routed and fields[f"{JOB}.moe_dispatcher"] in ("deepep", "hybridep")


def _moe_dispatcher(fields: PlanFields) -> str:
    if not fields.routed:
        return "allgather"
    return "flex" if _uses_deduplicating_dispatcher(fields) else "alltoall"


def _hybrid_layer_spec(fields: PlanFields) -> tuple[str, ...]:
    if not fields[f"{MODEL}.pattern"]:
        return ()
    # Megatron 0.18 renamed the layers from mamba to hybrid.
    name = "hybrid" if fields.version >= (0, 18) else "mamba"
    return (f"megatron.core.models.{name}.{name}_layer_specs", f"{name}_stack_spec")


def _tokenizer_type(fields: PlanFields) -> str:
    # Without a model, the data are token ids.
    given = "HuggingFaceTokenizer" if fields[f"{JOB}.tokenizer_model"] else "NullTokenizer"
    return fields[f"{JOB}.tokenizer_type"] or given


def _warmup_steps(fields: PlanFields) -> Any:
    whole = fields[f"{JOB}.warmup_fraction"] is None
    return fields[f"{JOB}.warmup_steps"] if whole else 0


def _continued_folder(fields: PlanFields) -> str | None:
    # A run continues its own checkpoints, unless it continues those of another folder at first.
    other = None if fields[f"{JOB}.kind"] == "finetune" else fields[f"{JOB}.load_dir"]
    folder: str | None = other or fields[f"{JOB}.checkpoint_dir"]
    return folder


def _saves_in_background(fields: PlanFields) -> bool:
    return bool(fields[f"{JOB}.async_checkpoint"] and fields[f"{JOB}.checkpoint_dir"])


def _wandb_folder(fields: PlanFields) -> str | None:
    # Megatron derives the folder from the folder of the checkpoints, if there is one.
    own = fields[f"{LAUNCH}.wandb_project"] is not None and not fields[f"{JOB}.checkpoint_dir"]
    return "wandb" if own else None


def _overlaps_dispatch(fields: PlanFields) -> bool:
    return bool(fields.routed and fields[f"{JOB}.moe_overlap"] and fields[f"{LAYOUT}.ep"] > 1)


def _overlaps_shared_experts(fields: PlanFields) -> bool:
    if not fields.routed or not fields[f"{MODEL}.experts.shared_size"]:
        return False
    # TransformerConfig: not with dispatch overlap, and not if the experts are recomputed.
    whole = fields[f"{RECOMPUTE}.granularity"] == "full"
    parts = fields[f"{RECOMPUTE}.modules"]
    kept = not whole and "moe" not in parts and "shared_experts" not in parts
    hidden = _overlaps_dispatch(fields) or _uses_deduplicating_dispatcher(fields)
    return kept and not hidden and fields[f"{LAYOUT}.ep"] > 1


def _graph_modules(fields: PlanFields) -> tuple[str, ...]:
    """Return the parts of layers that the graphs of the plan contain."""
    if fields[f"{LAYOUT}.cuda_graphs"] in (False, STEP):
        return ()
    letters, overlapped = fields[f"{MODEL}.pattern"], _overlaps_dispatch(fields)
    dense = not fields.routed or not all(fields[f"{MODEL}.experts.pattern"])
    low = fields[f"{JOB}.precision"] in ("fp8", "mxfp8", "nvfp4")
    # TransformerConfig: one expert counts as dense. Without moe_layer_freq, which models with a
    # pattern do not set, all layers of a model with more experts count as routed.
    routed = fields.routed and fields[f"{MODEL}.experts.count"] > 1
    if letters:
        dense = "-" in letters and not routed
    contained = {
        "attn": "*" in letters if letters else True,
        "mamba": "M" in letters,
        # TransformerConfig: the dispatch of another micro-batch excludes dense MLPs.
        "mlp": dense and not overlapped,
        "moe_router": routed,
        # Padded tokens of an all-to-all have a size that the host has to know.
        "moe_preprocess": routed and (_uses_deduplicating_dispatcher(fields) or not low),
    }
    return tuple(module for module, is_contained in contained.items() if is_contained)


def _graph_scope(fields: PlanFields) -> tuple[str, ...]:
    """Return the value of the flag that Megatron 0.18 replaced."""
    if fields.version >= (0, 18):
        return ()
    return (STEP,) if fields[f"{LAYOUT}.cuda_graphs"] == STEP else _graph_modules(fields)


IMPLIED: tuple[Implied, ...] = (
    (
        "cuda-graph-modules",
        f"{LAYOUT}.cuda_graphs",
        # Megatron 0.18 renamed --cuda-graph-scope.
        lambda f: _graph_modules(f) if f.version >= (0, 18) else (),
    ),
    (
        "cuda-graph-scope",
        f"{LAYOUT}.cuda_graphs",
        _graph_scope,
    ),
    ("te-rng-tracker", f"{LAYOUT}.cuda_graphs", lambda f: bool(f[f"{LAYOUT}.cuda_graphs"])),
    # validate_args: the host would have to read the loss in the middle of the graph.
    (
        "no-check-for-nan-in-loss-and-grad",
        f"{LAYOUT}.cuda_graphs",
        lambda f: f[f"{LAYOUT}.cuda_graphs"] == STEP,
    ),
    ("cp-comm-type", f"{LAYOUT}.cp_comm", _cp_exchange_flag),
    ("hierarchical-context-parallel-sizes", f"{LAYOUT}.cp_a2a", _cp_hierarchy_flag),
    (
        "fine-grained-activation-offloading",
        f"{LAYOUT}.offload.activations",
        lambda f: bool(f[f"{LAYOUT}.offload.activations"]),
    ),
    ("moe-token-dispatcher-type", f"{JOB}.moe_dispatcher", _moe_dispatcher),
    (
        "moe-flex-dispatcher-backend",
        f"{JOB}.moe_dispatcher",
        lambda f: f[f"{JOB}.moe_dispatcher"] if _uses_deduplicating_dispatcher(f) else "deepep",
    ),
    (
        "overlap-moe-expert-parallel-comm",
        f"{JOB}.moe_overlap",
        lambda f: f[f"{JOB}.moe_overlap"] and f[f"{LAYOUT}.ep"] > 1,
    ),
    ("delay-wgrad-compute", f"{JOB}.moe_overlap", _overlaps_dispatch),
    ("moe-shared-expert-overlap", f"{JOB}.moe_overlap", _overlaps_shared_experts),
    (
        "moe-router-force-load-balancing",
        f"{JOB}.moe_imbalance",
        lambda f: f.routed and not f[f"{JOB}.data"] and f[f"{JOB}.moe_imbalance"] == 1,
    ),
    (
        "tp-comm-overlap",
        f"{JOB}.tp_overlap",
        lambda f: f[f"{JOB}.tp_overlap"] and f[f"{LAYOUT}.tp"] > 1,
    ),
    *(
        (flag, f"{JOB}.async_checkpoint", _saves_in_background)
        for flag in ("async-save", "use-persistent-ckpt-worker")
    ),
    (
        "async-strategy",
        f"{JOB}.async_checkpoint",
        lambda f: "mcore" if _saves_in_background(f) else "nvrx",
    ),
    ("lr-warmup-iters", f"{JOB}.warmup_steps", _warmup_steps),
    (
        "lr-wsd-decay-style",
        f"{JOB}.lr_decay",
        lambda f: "linear" if f[f"{JOB}.lr_decay"] == "wsd" else "exponential",
    ),
    ("exit-signal-handler", f"{JOB}.checkpoint_dir", lambda f: bool(f[f"{JOB}.checkpoint_dir"])),
    (
        "wandb-exp-name",
        f"{LAUNCH}.wandb_project",
        lambda f: None if f[f"{LAUNCH}.wandb_project"] is None else f["problem.name"],
    ),
    ("wandb-save-dir", f"{LAUNCH}.wandb_project", _wandb_folder),
    ("tokenizer-type", f"{JOB}.tokenizer_type", _tokenizer_type),
    ("mock-data", f"{JOB}.data", lambda f: not f[f"{JOB}.data"]),
    ("split", f"{JOB}.data", lambda f: "100,0,0" if f[f"{JOB}.data"] else None),
    (
        "save-interval",
        f"{JOB}.checkpoint_interval",
        lambda f: f[f"{JOB}.checkpoint_interval"] if f[f"{JOB}.checkpoint_dir"] else None,
    ),
    ("load", f"{JOB}.load_dir", _continued_folder),
    (
        "pretrained-checkpoint",
        f"{JOB}.load_dir",
        lambda f: f[f"{JOB}.load_dir"] if f[f"{JOB}.kind"] == "finetune" else None,
    ),
    (
        "exit-on-missing-checkpoint",
        f"{JOB}.load_dir",
        lambda f: (
            f[f"{JOB}.kind"] == "pretrain"
            and f[f"{JOB}.load_dir"] not in (None, f[f"{JOB}.checkpoint_dir"])
        ),
    ),
    ("spec", f"{MODEL}.pattern", _hybrid_layer_spec),
    # Flags with which every plan trains. Only launch.args could set them.
    ("attention-dropout", ARGS, lambda _: 0.0),
    ("hidden-dropout", ARGS, lambda _: 0.0),
    ("make-vocab-size-divisible-by", ARGS, lambda _: 128),
    ("mtp-loss-scaling-factor", ARGS, lambda _: 0.1),
    ("distributed-timeout-minutes", ARGS, lambda _: 30),
    ("eval-iters", ARGS, lambda _: 0),
    ("transformer-impl", ARGS, lambda _: "transformer_engine"),
    ("attention-backend", ARGS, lambda _: "auto"),
    ("no-create-attention-mask-in-dataloader", ARGS, lambda _: True),
    ("log-interval", ARGS, lambda _: 1),
    ("log-throughput", ARGS, lambda _: True),
    ("manual-gc", ARGS, lambda _: True),
    ("manual-gc-interval", ARGS, lambda _: 100),
)
"""Rows for the layout and job flags of every plan."""
