"""Reader of a plan's settings in ``megatron/args.sh``, which follows Megatron's parser.

Flags that no plan sets are compared with ``launch.args``; flags that are absent have the default of
the parser. The tables are in ``verify_model``, ``verify_job`` and ``verify_precision``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from parc.backends.megatron import verify_job, verify_model, verify_precision, verify_sharding
from parc.backends.megatron.verify_arguments import ARGUMENTS, WrittenFlags
from parc.backends.megatron.verify_flags import FLAGS, ParsedFlags, RejectedFlagValues
from parc.backends.megatron.verify_model import Implied, Shown
from parc.backends.megatron.verify_plan_fields import PlanFields
from parc.backends.megatron.verify_stages import derive_split
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_settings import PLAN, is_same_value

ARGS, OMIT = verify_job.ARGS, f"{verify_job.LAUNCH}.omit"
STAGE_FLAGS = {
    "split.count_embedding": "account-for-embedding-in-pipeline-split",
    "split.count_loss": "account-for-loss-in-pipeline-split",
    "split.form": "pipeline-model-parallel-layout",
    "split.text": "pipeline-model-parallel-layout",
    "split.chunks": "num-layers",
    "schedule": "num-virtual-stages-per-pipeline-rank",
    "vpp": "num-virtual-stages-per-pipeline-rank",
}
"""Layout field -> Megatron flag. A finding on the field points to the line of this flag."""
_DAMAGED = (TypeError, KeyError, AttributeError, ValueError, IndexError, ArithmeticError)
"""Exceptions that can occur in a computation if fields of a plan have values of the wrong type."""


def derive_settings(arguments: WrittenFlags, fields: PlanFields) -> Iterator[DerivedSetting]:
    """Yield the value of each plan field that follows from ``arguments`` or Megatron's defaults."""
    settings = ParsedFlags(arguments)
    extra = _split_words(_checked_texts(fields[ARGS]))
    omitted = {flag.removeprefix("--") for flag in _checked_texts(fields[OMIT])} - extra.keys()
    yield from _omitted_flags(settings, omitted, fields)
    for path, flag, read in _plan_field_rows(fields):
        if flag not in extra and flag not in omitted:
            yield _derived_setting(settings, path, flag, _json_value(read(settings)))
    for flag, path, compute in _implied_flag_rows(fields):
        if flag not in extra and flag not in omitted:
            yield _compare_implied_flag(
                settings, path, flag, _compute_expected(compute, fields, path), fields
            )
    yield from _derived_sizes(settings, fields)
    split = derive_split(settings)
    for name, value in (split or {"split.chunks": "no valid split"}).items():
        yield _derived_setting(settings, f"layout.{name}", STAGE_FLAGS[name], value)
    # The bars of a layer pattern separate the stages, so no flag names the form of the split.
    for name in STAGE_FLAGS.keys() - (split or STAGE_FLAGS).keys():
        yield DerivedSetting(f"layout.{name}", fields[f"layout.{name}"], ARGUMENTS)
    yield from _extra_arguments(arguments, extra, fields)


def _omitted_flags(
    settings: ParsedFlags, omitted: Iterable[str], fields: PlanFields
) -> Iterator[DerivedSetting]:
    """Yield ``launch.omit``, and each flag that the file has although the plan omits it."""
    yield DerivedSetting(OMIT, fields[OMIT], ARGUMENTS)
    for flag in sorted(omitted):
        if text := settings.text(flag):
            yield DerivedSetting(OMIT, text, ARGUMENTS, settings.line(flag), text, needed="")


def _plan_field_rows(fields: PlanFields) -> tuple[Shown, ...]:
    """Return the table rows of the plan fields that flags determine.

    The rows depend on the features of the model, such as experts or Mamba layers.
    """
    rows = verify_model.SHOWN + verify_job.SHOWN + verify_precision.SHOWN + verify_sharding.SHOWN
    rows += verify_model.SHOWN_LATENT if fields.latent else verify_model.SHOWN_GROUPED
    rows += verify_model.SHOWN_LINEAR if fields[verify_model.LINEAR] is not None else ()
    no_mamba: tuple[Shown, ...] = ((verify_model.MAMBA, "hybrid-layer-pattern", _mamba_layers),)
    rows += verify_model.SHOWN_MAMBA if fields[verify_model.MAMBA] is not None else no_mamba
    without: tuple[Shown, ...] = ((verify_model.EXPERTS, "num-experts", _expert_count),)
    return rows + (verify_model.SHOWN_EXPERTS if fields.routed else without)


def _mamba_layers(settings: ParsedFlags) -> Any:
    """Return the layer pattern if it has Mamba layers, else None.

    In the plan of a model without Mamba layers, the value to compare with is None too.
    """
    pattern = settings["hybrid-layer-pattern"]
    return pattern if isinstance(pattern, str) and "M" in pattern else None


def _expert_count(settings: ParsedFlags) -> Any:
    return settings["num-experts"]


def _implied_flag_rows(fields: PlanFields) -> tuple[Implied, ...]:
    experts = verify_model.IMPLIED_EXPERTS if fields.routed else ()
    own = (verify_model, verify_job, verify_precision, verify_sharding)
    return sum((module.IMPLIED for module in own), experts)


def _derived_sizes(settings: ParsedFlags, fields: PlanFields) -> Iterator[DerivedSetting]:
    """Yield dp, dp_shard, edp and the number of micro-batches, which follow from other sizes."""
    names = ("tp", "cp", "pp", "ep", "etp")
    readers = {path: read for path, _, read in verify_job.SHOWN}
    sizes = {name: readers[f"layout.{name}"](settings) for name in names}
    world, batch = fields["layout.world"], settings["global-batch-size"]
    micro = settings["micro-batch-size"]
    numbers = (*sizes.values(), world, batch, micro)
    if not all(isinstance(one, int) and one > 0 for one in numbers):
        return
    dp = world // (sizes["tp"] * sizes["cp"] * sizes["pp"])
    edp = world // (sizes["etp"] * sizes["ep"] * sizes["pp"])
    batches = batch / (micro * dp) if dp else 0
    for path, flag, value in (
        ("layout.dp", "tensor-model-parallel-size", dp),
        (
            "layout.dp_shard",
            "num-distributed-optimizer-instances",
            _optimizer_shard_size(settings, dp, readers["layout.gtp"](settings)),
        ),
        ("layout.edp", "expert-model-parallel-size", edp),
        ("layout.micro_batches", "micro-batch-size", batches),
    ):
        yield _derived_setting(settings, path, flag, value)


def _optimizer_shard_size(settings: ParsedFlags, dp: int, gtp: Any) -> Any:
    """Return the number of data-parallel ranks that share one copy of the optimizer state.

    Of ``gtp`` ranks that share weights, each has the state of its own weights.
    """
    copies = settings["num-distributed-optimizer-instances"]
    if not isinstance(gtp, int):
        return gtp
    return dp // (copies * gtp) if isinstance(copies, int) and copies > 0 else copies


def _derived_setting(settings: ParsedFlags, path: str, flag: str, value: Any) -> DerivedSetting:
    return DerivedSetting(path, value, ARGUMENTS, settings.line(flag), settings.text(flag))


def _compare_implied_flag(
    settings: ParsedFlags, path: str, flag: str, expected: Any, fields: PlanFields
) -> DerivedSetting:
    """Compare a flag with the value ``expected``, which follows from other fields of the plan.

    If the values differ, the result contains the flag as it is in the file and the flag that the
    plan needs, so that PARC reports the difference.
    """
    found = settings[flag]
    if not isinstance(found, RejectedFlagValues) and is_same_value(expected, found):
        return _derived_setting(settings, path, flag, fields[path])
    text = settings.text(flag)
    return DerivedSetting(
        path, text, ARGUMENTS, settings.line(flag), text, needed=_argument_text(flag, expected)
    )


def _compute_expected(compute: Callable[[PlanFields], Any], fields: PlanFields, path: str) -> Any:
    try:
        return compute(fields)
    except _DAMAGED:
        raise MalformedFileError(
            PLAN, 1, f"a value in {path} is missing or has the wrong type"
        ) from None


def _extra_arguments(
    arguments: WrittenFlags, extra: Mapping[str, tuple[str, ...]], fields: PlanFields
) -> Iterator[DerivedSetting]:
    """Yield a value of ``launch.args`` for each flag that differs from the plan.

    The order of different flags has no effect. Of a repeated flag, argparse uses the last value.
    """
    planned, settings = _checked_texts(fields[ARGS]), ParsedFlags(arguments)
    for flag in sorted(arguments.flags.keys() | extra.keys()):
        found, expected = arguments.flags.get(flag), extra.get(flag)
        rejected = flag in FLAGS and isinstance(settings[flag], RejectedFlagValues)
        if found == expected or (expected is None and flag in FLAGS and not rejected):
            continue
        text, needed = (
            settings.text(flag),
            "" if expected is None else _argument_text(flag, expected or True),
        )
        yield DerivedSetting(ARGS, text, ARGUMENTS, settings.line(flag), text, needed=needed)
    yield DerivedSetting(ARGS, planned, ARGUMENTS)


def _split_words(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Return flag -> values for a list of command-line words.

    If a flag is repeated, the last occurrence counts.
    """
    flags: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags[name] = (value,) if equals else ()
        elif name:
            flags[name] = (*flags[name], word)
    return flags


def _checked_texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedFileError(PLAN, 1, f"{ARGS} is not a list of strings")
    return value


def _json_value(value: Any) -> Any:
    """Return ``value`` in the form that it has in plan.json.

    For a flag that Megatron would reject, return a text that contains the flag's values.
    """
    if isinstance(value, RejectedFlagValues):
        return f"not valid: {' '.join(value.words)}"
    return value


def _argument_text(flag: str, value: Any) -> str:
    """Return ``--flag`` and its value as one text; "" if the value means an absent flag."""
    if value is None or value is False or value == ():
        return ""
    words = () if value is True else value if isinstance(value, tuple) else (value,)
    return " ".join((f"--{flag}", *map(str, words)))
