"""Linter of a DeepSpeed config: batch, precision, ZeRO, and keys that DeepSpeed ignores.

Keys: https://www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from parc.backends.deepspeed.known_keys import (
    check_config_key,
    check_config_value,
    keys_in_section,
)
from parc.backends.deepspeed.launch_files.import_config import BATCH, OLD_OFFLOAD
from parc.backends.deepspeed.launch_files.import_optimizer import SETS_PEAK
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.lint.linter import ConfigLinter
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.script import ScriptSink
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import Reading

LEAST_STAGE = {
    "offload_optimizer": 1,
    # DeepSpeed's config check accepts the ZeRO-3 settings at lower stages, which ignore them.
    "offload_param": 3,
    "zero_hpz_partition_size": 3,
    "zero_quantized_weights": 3,
    "zero_quantized_gradients": 3,
}
"""Key of the ZeRO section -> lowest ZeRO stage at which the key has an effect."""
NO_EFFECT: tuple[Any, ...] = (None, False, 0, 1, "none", "auto")
"""Values that turn a feature off, and "auto", which another program replaces."""

FORMATS = {
    **dict.fromkeys(("fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float"), "fp32"),
}
"""Name of a number format in ``data_types`` -> its name in PARC."""

_OF_NEOX = re.compile(r"""["'](?:pipe|model)[-_]parallel[-_]size["']|["']num[-_]layers["']\s*:""")
"""Matches a key of GPT-NeoX, whose configs contain settings of the model and of DeepSpeed."""
COMMENTS = frozenset(("comment", "comments", "_comment", "__comment__", "description", "//", "#"))
"""Keys of which DeepSpeed reads none, and which people use for remarks in JSON."""

MOST_KEYS = 300
"""Maximum number of keys that are checked per section."""


def lint_deepspeed(text: str, name: str, options: LintOptions, sink: ScriptSink) -> None:
    """Check the keys, ZeRO settings, precision and batch sizes of a DeepSpeed config."""
    root = read_document(Reading(text, name, sink))
    if root is None or not root.check_type(dict):
        return
    sink.checked.update(("X01", "X30", "F03", "R04", "R14", "B02", "B03"))
    _check_keys(root, options.version, sink)
    zero = _zero_section(root)
    if zero is not None and not _is_tuned(root, zero):
        _check_zero_stage(zero, sink)
    if zero is not None:
        _check_deprecated_offload(zero, sink)
    _check_learning_rates(root, sink)
    # DeepSpeed 0.19.8 removed amp; X01 reports the key there, so R16 would only repeat it.
    _check_precision(root, "amp" in keys_in_section("", options.version), sink)
    _check_batch(root, options.gpus, sink)


def is_deepspeed(text: str) -> bool:
    """Return True if ``text`` is JSON with a batch size or ZeRO section of DeepSpeed."""
    if not text.lstrip().startswith("{"):
        return False
    if _OF_NEOX.search(text) is not None:
        return False
    try:
        tree = json.loads(text)
    # The keys of damaged or too deeply nested JSON still show what it is.
    except (ValueError, RecursionError):
        return any(f'"{key}"' in text for key in (*BATCH, "zero_optimization"))
    return isinstance(tree, Mapping) and bool({*BATCH, "zero_optimization"} & tree.keys())


def _is_tuned(root: DocumentNode, zero: DocumentNode) -> bool:
    """Return True if the autotuner selects the ZeRO stage from a list (autotuning/autotuner.py)."""
    return _is_enabled(root, "autotuning") and isinstance(zero.value.get("stage"), list)


def _zero_section(root: DocumentNode) -> DocumentNode | None:
    """Return the ``zero_optimization`` section; None if the section is absent.

    The result is also None if the value is a boolean, as in the first releases of DeepSpeed.
    """
    old = isinstance(root.value.get("zero_optimization"), bool)
    return None if old else root.mapping("zero_optimization")


def _check_keys(node: DocumentNode, version: str, sink: Sink) -> None:
    """Report keys in ``node`` and its sections that DeepSpeed rejects or ignores (X01).

    Numbers outside their range are reported too (F03).

    Only sections in known_keys.json are checked.
    """
    section = ".".join(map(str, node.path))
    # Each unknown key is compared with all known ones.
    if (more := len(node.value) - MOST_KEYS) > 0:
        unchecked = Finding(
            f"{more} of {len(node.value)} keys are not checked",
            help=f"PARC checks the first {MOST_KEYS} keys of a section; no section of DeepSpeed "
            "has so many valid keys",
        )
        sink.report("X01", unchecked, span=node.span)
    for key, value in islice(node.value.items(), MOST_KEYS):
        wrong = check_config_key(section, str(key), value, version)
        if wrong is not None and not section and key in COMMENTS:
            continue
        if wrong is not None:
            sink.report("X01", wrong, span=_span_of_key(node, key))
        elif (outside := check_config_value(section, str(key), value)) is not None:
            sink.report("F03", outside, span=_span_of_key(node, key))
        elif isinstance(value, dict):
            _check_keys(DocumentNode(value, (*node.path, key), node.document), version, sink)


def _span_of_key(node: DocumentNode, key: str) -> Span:
    child = node.child(key)
    return child.span if child is not None else node.span


def _read_positive_integer(node: DocumentNode, key: str, sink: Sink) -> int | None:
    """Return the value of ``key`` as a whole number above 0; None if the key is absent or ``auto``.

    Report other values as unreadable (I02).
    """
    value = node.value.get(key)
    if value in (None, "auto"):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    finding = Finding(f"{key} is {str(value)[:40]!r}, expected a whole number above 0 or auto")
    sink.report("I02", finding, span=_span_of_key(node, key))
    return None


def _check_batch(root: DocumentNode, gpus: int | None, sink: Sink) -> None:
    """Check that train_batch_size = micro-batch x accumulation steps x data-parallel ranks.

    Source: deepspeed/runtime/config.py, ``_batch_assertion``.
    """
    present = [key for key in BATCH if key in root.value]
    # DeepSpeed derives the missing sizes from one of these two, but asserts without both;
    # accumulation steps do not suffice.
    if not {"train_batch_size", "train_micro_batch_size_per_gpu"} & {*present}:
        finding = Finding(
            "neither train_batch_size nor train_micro_batch_size_per_gpu is set",
            help="set two of train_batch_size, train_micro_batch_size_per_gpu and "
            "gradient_accumulation_steps",
        )
        sink.report("B03", finding, span=root.span)
        return
    batch, micro, steps = (_read_positive_integer(root, key, sink) for key in BATCH)
    if batch is None or micro is None:
        return
    step = micro * (steps or 1)
    # Without the number of ranks only the divisibility is certain.
    wrong = batch % step != 0 if gpus is None or steps is None else batch != step * gpus
    if not wrong:
        return
    complete = gpus is not None and steps is not None
    product = f"micro-batch {micro} x accumulation steps {steps or 1}"
    expected = step * gpus if gpus is not None and complete else 0
    finding = Finding(
        f"train_batch_size {batch} does not match {product}" + f" x {gpus} GPUs" * complete,
        label=f"{batch} != {step} * {gpus} = {expected}"
        if complete
        else f"{batch} % ({micro} * {steps or 1}) = {batch % step}, must be 0",
        help="train_batch_size = micro-batch x accumulation steps x data-parallel ranks",
        fix=f"train_batch_size: {expected}" if expected else "",
    )
    sink.report("B02", finding, span=_span_of_key(root, "train_batch_size"))


def _check_precision(root: DocumentNode, has_amp: bool, sink: Sink) -> None:
    on = [key for key in ("bf16", "fp16", "amp") if _is_enabled(root, key)]
    if "bf16" in on and "fp16" in on:
        finding = Finding(
            "bf16 and fp16 are both enabled",
            label="bf16 and fp16 exclude each other",
            help="enable one of them, bf16 unless the GPUs are older than Ampere",
            fix="fp16.enabled: false",
        )
        sink.report("R04", finding, span=_span_of_key(root, "fp16"))
    _check_parameter_format(root, on, sink)
    zero = _zero_section(root)
    if has_amp and "amp" in on and zero is not None and zero.value.get("stage"):
        finding = Finding("amp cannot be combined with ZeRO", fix="use bf16 instead of amp")
        sink.report("R16", finding, span=_span_of_key(root, "amp"))


def _check_parameter_format(root: DocumentNode, on: list[str], sink: Sink) -> None:
    """Report ``data_types.param_dtype`` that contradicts the enabled format ``on`` (R04).

    Source: deepspeed/runtime/engine.py, ``_assert_valid_mixed_precision_config``.
    """
    section = root.mapping("data_types")
    if section is None or any(
        isinstance(one, dict) and one.get("enabled") == "auto"
        for one in (root.value.get("bf16"), root.value.get("fp16"))
    ):
        return
    written = section.value.get("param_dtype")
    requested = FORMATS.get(str(written).removeprefix("torch."))
    used = next((name for name in ("fp16", "bf16") if name in on), "fp32")
    if requested is None or requested == used:
        return
    finding = Finding(
        f"param_dtype is {written}, but the config trains in {used}",
        label="DeepSpeed stops if both settings differ",
        fix="remove param_dtype",
    )
    sink.report("R04", finding, span=_span_of_key(section, "param_dtype"))


def _is_enabled(root: DocumentNode, key: str) -> bool:
    section = root.mapping(key)
    return section is not None and section.value.get("enabled") is True


def _check_zero_stage(zero: DocumentNode, sink: Sink) -> None:
    stage = zero.value.get("stage", 0)
    # Hugging Face replaces "auto" before DeepSpeed reads the file, so its value is unknown here.
    if stage == "auto":
        return
    if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage <= 3:
        finding = Finding(
            f"ZeRO stage {str(stage)[:20]} does not exist", help="valid values: 0, 1, 2, 3"
        )
        sink.report("I02", finding, span=_span_of_key(zero, "stage"))
        return
    _check_partial_offload(zero, stage, sink)
    _check_offload_sections(zero, sink)
    for key, least in LEAST_STAGE.items():
        value = zero.value.get(key)
        requested = value.get("device") if isinstance(value, dict) else value
        if stage < least and requested not in NO_EFFECT:
            finding = Finding(
                f"{key} has no effect at ZeRO stage {stage}",
                label=f"needs stage {least} or more" if least < 3 else "needs stage 3",
                fix=f"stage: {least}",
            )
            sink.report("R14", finding, span=_span_of_key(zero, key))


def _check_offload_sections(zero: DocumentNode, sink: Sink) -> None:
    """Report offload settings that are not sections (F03), which DeepSpeed's model rejects."""
    for key in ("offload_optimizer", "offload_param"):
        value = zero.value.get(key)
        if value is None or value == "auto" or isinstance(value, dict):
            continue
        finding = Finding(
            f"{key} is {json.dumps(value)[:40]}, but DeepSpeed expects a section",
            label="DeepSpeed rejects this value",
            help='write a section, such as {"device": "cpu"}, or remove the key',
        )
        sink.report("F03", finding, span=_span_of_key(zero, key))


def _check_partial_offload(zero: DocumentNode, stage: int, sink: Sink) -> None:
    """Report an optimizer that is partly offloaded below ZeRO stage 3 (R14).

    Source: deepspeed/runtime/zero/config.py, ``offload_ratio_check``.
    """
    offload = zero.value.get("offload_optimizer")
    ratio = offload.get("ratio", 1) if isinstance(offload, dict) else 1
    if stage == 3 or isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio == 1:
        return
    finding = Finding(
        f"offload_optimizer.ratio {ratio} is not possible at ZeRO stage {stage}",
        label="only stage 3 can offload a part of the optimizer",
        fix="ratio: 1.0",
    )
    sink.report("R14", finding, span=_span_of_key(zero, "offload_optimizer"))


def _check_deprecated_offload(zero: DocumentNode, sink: Sink) -> None:
    """Report the old keys of offload to host memory (X30).

    Source: deepspeed/runtime/zero/config.py, ``DeepSpeedZeroConfig``.
    """
    for old, new in OLD_OFFLOAD.items():
        if zero.value.get(old) is not True:
            continue
        finding = Finding(
            f"{old} is deprecated",
            label=f"DeepSpeed replaces it by {new} with device cpu",
            fix=f'"{new}": {{"device": "cpu"}}',
        )
        sink.report("X30", finding, span=_span_of_key(zero, old))


def _check_learning_rates(root: DocumentNode, sink: Sink) -> None:
    """Report a learning rate of the optimizer that the schedule replaces (X30)."""
    optimizer, scheduler = root.mapping("optimizer"), root.mapping("scheduler")
    if optimizer is None or scheduler is None or scheduler.text("type") not in SETS_PEAK:
        return
    mine, theirs = optimizer.mapping("params"), scheduler.mapping("params")
    rate = mine.value.get("lr") if mine is not None else None
    peak = theirs.value.get("warmup_max_lr") if theirs is not None else None
    numbers = all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in (rate, peak)
    )
    if mine is None or theirs is None or not numbers or rate == peak:
        return
    finding = Finding(
        f"the optimizer's lr {rate} has no effect: the schedule sets the rate {peak}",
        label=f"after the warm-up, the rate is warmup_max_lr {peak}",
        help=f"set both to the same rate, {rate} or {peak}",
    )
    sink.report("X30", finding, span=_span_of_key(mine, "lr"))


LINTER = ConfigLinter(is_deepspeed, lint_deepspeed)
