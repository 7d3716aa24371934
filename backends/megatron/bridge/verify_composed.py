"""Flags of Megatron-LM that several fields of Megatron-Bridge determine together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parc.backends.megatron.bridge.verify_fields import MODEL, OVERLAP, PRECISION, plain_text
from parc.compiler.verify.emitted_settings import EmittedSettings

Flag = tuple[str, str, tuple[str, ...]]
"""(flag, field that findings point to, words of the flag). A flag with the name of a field is
unknown to Megatron-LM, so that the verifier reports the field."""
DELAY, LATE = "ddp.delay_wgrad_compute", f"{OVERLAP}delay_wgrad_compute"
ALWAYS: tuple[Flag, ...] = (
    # DataloaderConfig.skip_getting_attention_mask_from_dataset is true by default.
    ("no-create-attention-mask-in-dataloader", "dataset", ()),
)


def flags_of_several_fields(settings: EmittedSettings) -> Iterator[Flag]:
    """Yield the flags that follow from several fields."""
    yield from ALWAYS
    for compose in COMPOSERS:
        yield from compose(settings)


def _activation(settings: EmittedSettings) -> Iterator[Flag]:
    """Yield the activation, and whether a kernel fuses it with the bias before it."""
    func, gated = f"{MODEL}activation_func", settings.get(f"{MODEL}gated_linear_unit") is True
    name, fusion = settings.get(func), f"{MODEL}bias_activation_fusion"
    biased = settings.get(f"{MODEL}add_bias_linear") is not False
    fused = settings.get(fusion) is True
    flags = {("silu", True): "swiglu", ("quick_gelu", True): "quick-geglu"}
    flags[("squared_relu", False)] = "squared-relu"
    flag = flags.get((str(name), gated))
    if flag:
        yield flag, func, ()
    elif (name, gated) != ("gelu", False):
        yield func, func, (str(name),)
    if flag == "swiglu":
        if not fused:
            yield fusion, fusion, ("False",)
    elif biased and not fused:
        yield "no-bias-gelu-fusion", fusion, ()
    elif fused and not biased:
        yield fusion, fusion, ("True",)


def _heads(settings: EmittedSettings) -> Iterator[Flag]:
    field = f"{MODEL}num_query_groups"
    if (groups := settings.get(field)) is not None:
        yield "group-query-attention", field, ()
        yield "num-query-groups", field, (str(groups),)


def _window(settings: EmittedSettings) -> Iterator[Flag]:
    field = f"{MODEL}window_size"
    if (pair := settings.get(field)) is not None:
        text = ",".join(map(str, pair)) if isinstance(pair, list) else str(pair)
        yield "window-size", field, (f"({text})",)


def _chunks(settings: EmittedSettings) -> Iterator[Flag]:
    field = f"{MODEL}virtual_pipeline_model_parallel_size"
    chunks = settings.get(field)
    # A layout string of Megatron-LM implies the number of chunks.
    if chunks is not None and not settings.get(f"{MODEL}pipeline_model_parallel_layout"):
        yield "num-virtual-stages-per-pipeline-rank", field, (str(chunks),)


def _precision(settings: EmittedSettings) -> Iterator[Flag]:
    """Yield the format of gradients; weights must have the format of the precision."""
    half = settings.get(f"{PRECISION}fp16") is True
    dtype = "torch.float16" if half else "torch.bfloat16"
    for name in ("params_dtype", "pipeline_dtype"):
        field = f"{PRECISION}{name}"
        if settings.get(field) != dtype:
            yield field, field, (str(settings.get(field)),)
    # With fp16, a gradient that is not a number only lowers the loss scale.
    checks = "ddp.check_for_nan_in_grad"
    if settings.get(checks) is half:
        yield checks, checks, (str(half),)
    field = f"{PRECISION}grad_reduce_in_fp32"
    wide = settings.get(field)
    if half and wide is not False:
        yield field, field, (str(wide),)
    if not half and wide is not True:
        yield "grad-reduce-in-bf16", field, ()


def _data_parallel(settings: EmittedSettings) -> Iterator[Flag]:
    """Yield the sharding of the optimizer and the overlap of its communication.

    One of the two switches is sufficient. With it, CommOverlapConfig replaces both overlaps.
    """
    switches = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
    sharded = any([settings.get(one) is True for one in switches])
    if sharded:
        yield "use-distributed-optimizer", switches[0], ()
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        own, replaced = settings.get(f"ddp.{name}"), settings.get(f"{OVERLAP}{name}")
        if (replaced if sharded else own) is True:
            yield name.replace("_", "-"), f"{OVERLAP if sharded else 'ddp.'}{name}", ()
    # CommOverlapConfig delays weight gradients; without ZeRO it leaves the hooks as they are.
    if settings.get(DELAY, False) is not (settings.get(LATE) is True):
        yield DELAY, DELAY, (str(settings.get(DELAY)),)


def _checkpoints(settings: EmittedSettings) -> Iterator[Flag]:
    """Yield the checkpoint to start from.

    Pretrained weights are used until the run has checkpoints to resume from.
    """
    load, first = "checkpoint.load", "checkpoint.pretrained_checkpoint"
    path, weights = plain_text(settings.get(load)), plain_text(settings.get(first))
    own = settings.get("checkpoint.save")
    fresh = settings.get("checkpoint.finetune") is True
    if weights is not None:
        yield "load", first, (str(weights),)
        if path != plain_text(own):
            yield load, load, (str(path),)
    elif path is not None:
        yield "load", load, (str(path),)
    if weights is not None or fresh:
        yield "finetune", first if weights is not None else "checkpoint.finetune", ()
    persistent = "checkpoint.use_persistent_ckpt_worker"
    if settings.get("checkpoint.async_save") is True and settings.get(persistent, True) is True:
        yield "use-persistent-ckpt-worker", persistent, ()


def _data(settings: EmittedSettings) -> Iterator[Flag]:
    if not settings.get("dataset.data_path"):
        yield "mock-data", "dataset.data_path", ()


COMPOSERS: tuple[Callable[[EmittedSettings], Iterator[Flag]], ...] = (
    *(_activation, _heads, _window, _chunks),
    *(_precision, _data_parallel, _checkpoints, _data),
)
