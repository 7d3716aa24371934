"""Verifier of ``megatron-bridge/config.yaml``, independent of the code that writes the file.

It translates the fields to the flags of Megatron-LM that mean the same, one per line, and verifies
these flags. Several fields can determine a flag together. Findings name the field and its line.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from parc.backends.megatron.bridge.verify_fields import (
    CONSTANTS,
    FIELD_OF_FLAG,
    MODEL,
    OVERLAP,
    PRECISION,
    REQUIRED,
    YARN,
    plain_text,
    same_value_flags,
)
from parc.backends.megatron.verify import MegatronVerifier
from parc.backends.megatron.verify_arguments import ARGUMENTS, WrittenFlags
from parc.backends.megatron.verify_plan_fields import PlanFields
from parc.backends.megatron.verify_settings import ARGS, OMIT, derive_settings
from parc.backends.shared.torch.verify_program_start import start_of_program
from parc.backends.verifier import DerivedGroups, DerivedSetting, FileDependencies, LaunchedProgram
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_settings import PLAN, EmittedSettings, read_plan, yaml_settings

CONFIG, PROGRAM = "megatron-bridge/config.yaml", "megatron-bridge/pretrain.py"
BRIDGE, CORES = "megatron-bridge", {"0.6": "0.19"}
POSITIONS = "problem.model.position.max_positions"
T = TypeVar("T")
Flag = tuple[str, str, tuple[str, ...]]
"""(flag, field that findings point to, words of the flag). A flag with the name of a field is
unknown to Megatron-LM, so that the verifier reports the field."""
DELAY, LATE = "ddp.delay_wgrad_compute", f"{OVERLAP}delay_wgrad_compute"
ALWAYS: tuple[Flag, ...] = (
    # DataloaderConfig.skip_getting_attention_mask_from_dataset is true by default.
    ("no-create-attention-mask-in-dataloader", "dataset", ()),
)


@frozen(slots=False)
class TranslatedFields:
    """Fields of the file as flags."""

    settings: EmittedSettings
    flags: WrittenFlags
    """Flags with the lines of their fields. A field without a flag keeps its own name."""

    def field(self, flag: str) -> str:
        """Return the field of Megatron-Bridge that ``flag`` stands for."""
        return FIELD_OF_FLAG.get(flag, flag)


def translate_fields(text: str) -> TranslatedFields:
    """Return the flags that mean the same as the fields in ``text``.

    Raises:
        MalformedFileError: the text is not YAML.
    """
    settings = yaml_settings(CONFIG, text)
    flags: dict[str, tuple[str, ...]] = {}
    lines: dict[str, int] = {}
    for flag, field, words in (*same_value_flags(settings), *flags_of_several_fields(settings)):
        flags[flag], lines[flag] = words, settings.line(field)
    for field in REQUIRED:
        if field not in settings:
            flags[field], lines[field] = (), 1
    return TranslatedFields(settings, WrittenFlags(flags, lines))


class BridgeVerifier(MegatronVerifier):
    """Verifier that derives process groups, layers and batch from the fields of the file."""

    file = CONFIG
    files = FileDependencies(
        references={PROGRAM: f"/{PROGRAM}", CONFIG: f"/{CONFIG}"}, required_by=((CONFIG, PROGRAM),)
    )
    not_in_files = MappingProxyType(
        {
            **MegatronVerifier.not_in_files,
            "problem.model.mamba": "a rule rejects models with Mamba layers (E11)",
            POSITIONS: "GPTModelProvider has no such field",
            "problem.launch.omit": "only Megatron-LM has flags that a spec can omit (E13)",
        }
    )

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report layers that are in no stage or in several (A08), and a changed program (A18)."""
        if CONFIG in artifacts:
            arguments = _build_arguments_file(translate_fields(artifacts[CONFIG]))
            _verify_with_file_name(
                lambda own: MegatronVerifier.check_file_contents(self, arguments, own), sink
            )
        verify_programs(artifacts, read_program_digests(__package__), sink)

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the process groups of a job with ``world`` ranks, as for Megatron-LM's flags."""
        arguments = _build_arguments_file(translate_fields(artifacts[CONFIG]))
        found = _verify_with_file_name(
            lambda own: MegatronVerifier.derive_groups(self, arguments, world, own), sink
        )
        return found and replace(found, file=CONFIG, builder="Megatron-Bridge")

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how launch.sh must start the emitted program or the user's program."""
        core = super().program_start(plan, artifacts)
        own = start_of_program(plan, PROGRAM, (f'--config-file "$here/../{CONFIG}"',))
        return replace(
            own,
            environment=core.environment if core else {},
            stop_test=f"grep -qs 'exit_signal_handler: true' \"$PARC_DIR/{CONFIG}\"",
        )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings that Megatron-Bridge reads from ``config.yaml``."""
        if CONFIG not in artifacts or PLAN not in artifacts:
            return
        fields, found = (
            _core_fields(read_plan(artifacts[PLAN])),
            translate_fields(artifacts[CONFIG]),
        )
        for one in derive_settings(found.flags, fields):
            # The user's words and omitted flags are not in this file.
            if one.path not in (OMIT, POSITIONS) and (one.path != ARGS or one.needed is not None):
                yield _named_as_field(one, found)
        yield from _repeated_values(found.settings)
        yield from _constant_fields(found.settings)
        yield from found.settings.unread_settings()


def _core_fields(plan: Mapping[str, Any]) -> PlanFields:
    """Return the plan as for Megatron-LM with the same Megatron-Core and no extra arguments."""
    problem = plan.get("problem", {})
    try:
        versions = dict(problem["versions"])
        launch = {**problem["launch"], "args": [], "omit": []}
    except (KeyError, TypeError, ValueError):
        raise MalformedFileError(PLAN, 1, "problem.versions or problem.launch is missing") from None
    versions["megatron"] = CORES.get(str(versions.get(BRIDGE)), "")
    return PlanFields({**plan, "problem": {**problem, "versions": versions, "launch": launch}})


def _build_arguments_file(fields: TranslatedFields) -> dict[str, str]:
    """Return the file of Megatron-LM's arguments with the translated flags."""
    flags = fields.flags.flags.items()
    words = (shlex.join((f"--{flag}", *values)) for flag, values in flags)
    return {ARGUMENTS: "MEGATRON_ARGS=(\n" + "".join(f"  {one}\n" for one in words) + ")\n"}


def _verify_with_file_name(verify: Callable[[Sink], T], sink: Sink) -> T:
    """Call ``verify`` and report its findings with the name of the real file."""
    own = Sink()
    try:
        return verify(own)
    except MalformedFileError as error:
        raise MalformedFileError(CONFIG, 1, error.message) from None
    finally:
        for one in own.diagnostics:
            span = one.span and Span(_real_name(one.span.file), one.span.line, one.span.column)
            message = _real_name(one.finding.message)
            finding = replace(one.finding, message=message)
            sink.report(one.code.removeprefix("PARC-"), finding, at=one.path, span=span)


def _real_name(text: str) -> str:
    return text.replace(ARGUMENTS, CONFIG)


def _named_as_field(setting: DerivedSetting, fields: TranslatedFields) -> DerivedSetting:
    """Return the setting with the field behind its flag."""
    flag = (setting.setting or setting.needed or "").partition(" ")[0].removeprefix("--")
    field = fields.field(flag)
    text = fields.settings.text(field)
    needed = setting.needed and f"{field} = {setting.needed.partition(' ')[2] or 'the other value'}"
    line = fields.settings.line(field) if field in fields.settings else 1
    value = text if setting.path == ARGS else setting.value
    if setting.path == ARGS and not text and not needed:
        needed = field
    return replace(setting, value=value, file=CONFIG, line=line, setting=text, needed=needed)


def _repeated_values(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the plan settings that a second field repeats."""
    yield settings.derive_from("problem.job.sequence_length", "dataset.seq_length")
    yield settings.derive_from("problem.job.seed", "dataset.random_seed")
    for name in ("start_weight_decay", "end_weight_decay"):
        yield settings.derive_from("problem.job.weight_decay", f"scheduler.{name}")
    if settings.get("tokenizer.tokenizer_type") == "NullTokenizer":
        yield settings.derive_from("problem.model.vocab", "tokenizer.vocab_size")
    name = plain_text(settings.get("model.hf_model_id"))
    if name is not None:
        yield settings.derive(
            "problem.model.source", name, "model.hf_model_id", lambda source: str(name) in source
        )
    chunks = settings.get("model.virtual_pipeline_model_parallel_size", 1)
    yield settings.derive("layout.vpp", chunks, "model.virtual_pipeline_model_parallel_size")
    overlap = chunks != 1
    for name in ("overlap_p2p_comm", "align_param_gather"):
        yield from settings.require(f"comm_overlap.{name}", overlap)
    yield from settings.require("comm_overlap.batch_p2p_comm", not overlap)


def _constant_fields(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield a report for each field whose value differs from the constant that plans assume."""
    for field, value in CONSTANTS.items():
        yield from settings.require(field, value)
    plain = settings.get("model.multi_latent_attention") is not True
    if plain and settings.get("model.position_embedding_type") == "yarn":
        for field, value in YARN.items():
            yield from settings.require(field, value)


VERIFIER = BridgeVerifier()


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
        yield "pretrained-checkpoint", first, (str(weights),)
    if path is not None:
        yield "load", load, (str(path),)
    if weights is None and path is not None and path != plain_text(own):
        # pretrain.py stops if the folder of another run has no checkpoint.
        yield "exit-on-missing-checkpoint", load, ()
    if fresh:
        yield "finetune", "checkpoint.finetune", ()
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
