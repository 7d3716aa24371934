"""Import of layout and job from a JSON config of DeepSpeed.

Keys: https://www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import json
import re
from typing import Any

from parc.backends.deepspeed.derived_config import AIO_BLOCK_BYTES, AIO_QUEUE_DEPTH, AIO_THREADS
from parc.backends.deepspeed.launch_files.import_optimizer import TABLE, read_optimizer
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.formats import BackendImporters, FrameworkSettings
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import WRITTEN_BY_HAND, Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Batch keys: global batch = micro-batch x accumulation steps x data-parallel replicas."""
_READ = (
    *TABLE.rows,
    *("gradient_accumulation_steps", "sequence_parallel_size", "data_parallel_size"),
    *("tensor_parallel.autotp_size", "data_types.grad_accum_dtype"),
    *(f"zero_optimization.{key}" for key in ("cpu_offload", "cpu_offload_param")),
    "pipeline.activation_checkpoint_interval",
)
"""Keys that have a field in the spec or follow from other keys, such as ``bf16.enabled``."""

STAGE = "zero_optimization.stage"
OLD_OFFLOAD = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
"""Deprecated switch of ``zero_optimization`` -> key that DeepSpeed replaces it by, with device cpu
(runtime/zero/config.py)."""
WRITTEN: dict[str, Any] = {
    "steps_per_print": 1,
    "zero_optimization.overlap_comm": True,
    "zero_optimization.offload_optimizer.pin_memory": True,
    "zero_optimization.offload_param.pin_memory": True,
    "aio.block_size": AIO_BLOCK_BYTES,
    "aio.queue_depth": AIO_QUEUE_DEPTH,
    "aio.intra_op_parallelism": AIO_THREADS,
    "activation_checkpointing.partition_activations": False,
}
"""Key without a field in the spec -> value that PARC writes. If a config has the same value, the
import loses nothing."""
OPTIMIZER = ("gradient_clipping", "optimizer", "scheduler")
"""Top-level keys that import_optimizer.py reads."""


def read_deepspeed_json(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the layout and job fields that a DeepSpeed config sets; None if the text is unusable.

    Keys without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink, WRITTEN_BY_HAND)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    layout: dict[str, object] = {}
    job: dict[str, object] = {}
    # The first releases had a boolean, and true meant stage 1 (runtime/zero/config.py).
    switch = root.value.get("zero_optimization")
    zero = None if isinstance(switch, bool) else root.mapping("zero_optimization")
    stage = _read_whole_number(zero, "stage", reading) if zero is not None else int(switch is True)
    # Without the section DeepSpeed does not use ZeRO; a section without a number leaves the stage
    # open.
    if stage is not None and stage > 3:
        reading.report_error(
            "I02", f"ZeRO stage {stage} does not exist, valid values: 0, 1, 2, 3", root.span
        )
    elif stage is not None:
        layout["zero_stage"] = stage
    if zero is not None:
        layout |= _read_offload(zero) | _read_zero_plus(zero, reading)
    sections = {"layout": layout, "job": job}
    for key in ("train_micro_batch_size_per_gpu", "train_batch_size"):
        number = _read_whole_number(root, key, reading)
        if number:
            section, _, field = TABLE.rows[key].path.partition(".")
            sections[section][field] = number
    optimizer, read = read_optimizer(root)
    job |= _read_precision(root, reading) | optimizer
    if stage == 0 and job.get("precision") != "fp16":
        # Without ZeRO, DeepSpeed accumulates gradients in the type of the weights.
        job["gradient_precision"] = "bf16"
    job |= _read_gradient_type(root)
    layout |= _read_sizes(root, stage, reading) | _read_replicas(root, reading)
    layout |= _read_recompute(root, reading)
    _report_other_keys(root, read, reading)
    reading.spec = {"layout": layout, **({"job": job} if job else {})}
    return reading.fragment()


def _read_whole_number(node: DocumentNode, key: str, reading: Reading) -> int | None:
    """Return the value of ``key`` as a whole number; None if the key is absent or ``auto``.

    Report other values as unreadable (I02).
    """
    found = node.child(key)
    if found is None or found.value == "auto":
        return None
    if isinstance(found.value, int) and not isinstance(found.value, bool) and found.value >= 0:
        return found.value
    message = f"{key} is {str(found.value)[:40]}, expected a whole number or auto"
    reading.report_error("I02", Finding(message), found.span)
    return None


def _read_precision(root: DocumentNode, reading: Reading) -> dict[str, object]:
    # DeepSpeed asserts that at most one of the two is enabled; `parc lint` reports both (R04).
    for name in ("bf16", "fp16"):
        section = root.mapping(name)
        if section is not None and section.value.get("enabled") is True:
            return {"precision": name}
        if section is not None and section.value.get("enabled") == "auto":
            return {}
    reading.leave_out(
        "fp32, because neither bf16 nor fp16 is enabled",
        root.span,
        "PARC trains in bf16 unless job.precision is set",
    )
    return {}


def _read_gradient_type(root: DocumentNode) -> dict[str, object]:
    types = root.mapping("data_types")
    name = types.value.get("grad_accum_dtype") if types is not None else None
    return {"gradient_precision": name} if name in ("fp32", "bf16") else {}


def _read_recompute(root: DocumentNode, reading: Reading) -> dict[str, object]:
    """Return the recomputation that a pipeline's config sets; nothing without this key.

    The number is that of the layers per block; DeepSpeed recomputes nothing if it is 0.
    """
    pipeline = root.mapping("pipeline")
    if pipeline is None:
        return {}
    layers = _read_whole_number(pipeline, "activation_checkpoint_interval", reading)
    if layers is None:
        return {}
    if not layers:
        return {"recompute": "none"}
    return {"recompute": {"granularity": "full", "method": "uniform", "layers": layers}}


def _read_sizes(root: DocumentNode, stage: int | None, reading: Reading) -> dict[str, object]:
    """Return the parallel sizes that the config determines.

    With ZeRO stage 2 or 3 there is no pipeline. With a lower stage, the training program may use a
    pipeline, and may split weights over tensor-parallel ranks.
    """
    found: dict[str, object] = {}
    if root.value.get("sequence_parallel_size") != "auto":
        found["cp"] = _read_whole_number(root, "sequence_parallel_size", reading) or 1
    tensor = root.mapping("tensor_parallel")
    tp = _read_whole_number(tensor, "autotp_size", reading) if tensor is not None else None
    if tp:
        found["tp"] = tp
    if stage is not None and stage >= 2:
        return {"tp": 1, "pp": 1, **found}
    open_sizes = "pipeline and expert" if tp else "tensor, pipeline and expert"
    reading.notes.append(f"the program sets the {open_sizes} parallel sizes: pin them in layout")
    return found


def _read_offload(zero: DocumentNode) -> dict[str, object]:
    """Return the offload settings in a ``zero_optimization`` section; ``none`` without offload.

    The result is empty if the section has a setting of offload that PARC cannot read.
    """
    found: dict[str, str] = {}
    parts = (("offload_optimizer", "optimizer"), ("offload_param", "parameters"))
    for key, part in parts:
        section = zero.mapping(key)
        device = section.text("device") if section is not None else ""
        if section is not None and device in ("cpu", "nvme"):
            found[part] = device
            path = section.text("nvme_path")
            found |= {"nvme_path": path} if device == "nvme" and path else {}
    for old, key in OLD_OFFLOAD.items():
        if zero.value.get(old) is True:
            found.setdefault(dict(parts)[key], "cpu")
    off = (None, False, "none")
    unread = [key for key in zero.value if "offload" in str(key) and key not in _OFFLOAD_KEYS]
    unread += [key for key in OLD_OFFLOAD if zero.value.get(key) not in (*off, True)]
    unread += [
        key
        for key, part in parts
        if part not in found
        and zero.value.get(key) not in off
        and _device(zero.value[key]) not in off
    ]
    return {"offload": found or "none"} if found or not unread else {}


def _device(value: object) -> object:
    return value.get("device", "none") if isinstance(value, dict) else value


_OFFLOAD_KEYS = {*OLD_OFFLOAD, *OLD_OFFLOAD.values(), "cpu_offload_use_pin_memory"}


def _read_zero_plus(zero: DocumentNode, reading: Reading) -> dict[str, object]:
    """Return the ZeRO++ settings in a ``zero_optimization`` section; {} if there are none.

    ZeRO++ means secondary weight shards, quantized gathers and quantized reductions.
    """
    found: dict[str, object] = {}
    ranks = _read_whole_number(zero, "zero_hpz_partition_size", reading)
    # 1 is the default and means that hpZ is off.
    if ranks is not None and ranks > 1:
        found["hpz"] = ranks
    for key in ("quantized_weights", "quantized_gradients"):
        if zero.value.get(f"zero_{key}") is True:
            found[key] = True
    return {"zero_plus": found} if found else {}


def _read_replicas(root: DocumentNode, reading: Reading) -> dict[str, object]:
    """Return the number of replicas, and report batch sizes that contradict each other (I03).

    The global batch is micro-batch x accumulation steps x replicas (deepspeed/runtime/config.py).
    The spec has no field for accumulation steps. If the global batch or the micro-batch is absent,
    the accumulation steps are reported (I04).
    """
    numbers = [_read_whole_number(root, key, reading) for key in BATCH]
    ranks = _read_whole_number(root, "data_parallel_size", reading)
    found: dict[str, object] = {"dp": ranks} if ranks else {}
    steps = numbers[2]
    # The number of replicas follows only if all three sizes are given.
    if not all(numbers):
        if steps:
            reading.leave_out(
                f"gradient_accumulation_steps: {steps}",
                root.document.find((BATCH[2],)),
                "set job.global_batch to micro-batch x accumulation steps x replicas",
            )
        return found
    if reading.is_valid:
        batch, micro, steps = (number or 1 for number in numbers)
        if batch % (micro * steps):
            finding = Finding(
                f"train_batch_size {batch} is not a multiple of micro-batch {micro} x "
                f"accumulation steps {steps}",
                label=f"{batch} % {micro * steps} = {batch % (micro * steps)}, must be 0",
            )
            reading.report_error("I03", finding, root.document.find((BATCH[0],)))
        found["dp"] = batch // (micro * steps)
    return found


def _report_other_keys(root: DocumentNode, optimizer: set[str], reading: Reading) -> None:
    auto = [
        name
        for name in _nested_keys(root.value)
        if name in _READ
        and name.partition(".")[0] not in OPTIMIZER
        and _value_at_dotted_path(root, name) == "auto"
    ]
    if auto:
        reading.notes.append(f"auto in the config, so PARC decides them: {', '.join(auto)}")
    for key, value in root.value.items():
        inner = _nested_keys(value)
        read = any(name.startswith(f"{key}.") for name in _READ)
        if key in OPTIMIZER:
            left = [name for name in _dotted_keys(str(key), value) if name not in optimizer]
        elif read or key in _READ:
            left = [f"{key}.{name}" for name in inner if f"{key}.{name}" not in _READ]
        else:
            left = [f"{key}.{name}" for name in inner] or [str(key)]
        for name in left:
            _report_key(root, name, reading)


def _nested_keys(value: object) -> list[str]:
    """Return the dotted paths of all values inside ``value``; [] if ``value`` is not a mapping."""
    if not isinstance(value, dict):
        return []
    return [
        f"{key}.{below}" if below else str(key)
        for key, inner in value.items()
        for below in (_nested_keys(inner) or [""])
    ]


def _report_key(root: DocumentNode, name: str, reading: Reading) -> None:
    """Report the key ``name`` (I04) unless PARC writes the same value."""
    value = _value_at_dotted_path(root, name)
    ours = WRITTEN.get(name)
    if name == "zero_optimization.overlap_comm" and _value_at_dotted_path(root, STAGE) in (
        0,
        1,
        None,
    ):
        ours = None  # written for stages 2 and 3
    if ours is not None and value == ours:
        return
    text = json.dumps(value, ensure_ascii=False)[:80]
    hint = "" if ours is None else f"PARC writes {json.dumps(ours)}"
    if name.partition(".")[0] in OLD_OFFLOAD.values():
        hint = "DeepSpeed reads this key only in zero_optimization"
    reading.leave_out(f"{name}: {text}", root.document.find(tuple(name.split("."))), hint)


def _value_at_dotted_path(root: DocumentNode, name: str) -> Any:
    """Return the value at the dotted path ``name``; None if the path is absent."""
    value: Any = root.value
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _dotted_keys(path: str, value: object) -> list[str]:
    """Return the dotted keys of a section, such as ``optimizer.params.lr``."""
    if not isinstance(value, dict):
        return [path]
    keys = [f"{path}.{name}" for name in value if name != "params"]
    return keys + (_dotted_keys(f"{path}.params", value["params"]) if "params" in value else [])


def read_settings(text: str, name: str) -> dict[str, str]:
    """Return dotted key -> value as JSON text for all keys of a DeepSpeed config.

    The result is empty if ``text`` is not a DeepSpeed config.
    """
    if not text.lstrip().startswith("{") or "train_" not in text:
        return {}
    root = read_document(Reading(text, name, Sink()))
    if root is None or not isinstance(root.value, dict) or not BATCH_KEYS & root.value.keys():
        return {}
    return {key: json.dumps(_value_at_dotted_path(root, key)) for key in _nested_keys(root.value)}


BATCH_KEYS = {*BATCH}
"""Keys that identify a DeepSpeed config, which contains at least one of them."""

DEFAULTS = {
    "sequence_parallel_size": "1",
    **dict.fromkeys(("fp16.enabled", "bf16.enabled", "wall_clock_breakdown"), "false"),
}
"""Key -> value that DeepSpeed uses if the key is absent."""

_OF_GPT_NEOX = re.compile(r'"(?:pipe[-_]parallel[-_]size|num[-_]attention[-_]heads)"\s*:')
"""Matches keys of GPT-NeoX, whose configs contain DeepSpeed's keys and those of the model."""


def _is_deepspeed_config(text: str) -> bool:
    return _OF_GPT_NEOX.search(text) is None


IMPORTERS = BackendImporters(
    {
        "deepspeed-json": FileFormat(
            read_deepspeed_json,
            "config of DeepSpeed",
            (r'"(train_batch_size|zero_optimization|train_micro_batch_size_per_gpu)"\s*:',),
            confirms=_is_deepspeed_config,
        )
    },
    settings=FrameworkSettings("deepspeed", read_settings, DEFAULTS),
)
