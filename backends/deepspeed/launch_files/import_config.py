"""Import of layout and job from a JSON config of DeepSpeed.

Keys: https://www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

from parc.backends.deepspeed.launch_files.import_optimizer import TABLE, read_optimizer
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.formats import Importers
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reader_state import Reading, some
from parc.compiler.topology.readers.registry import Format

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Batch keys: global batch = micro-batch x accumulation steps x data-parallel replicas."""
_READ = (*TABLE.rows, "gradient_accumulation_steps")
"""Keys that have a field in the spec or follow from other keys, such as ``bf16.enabled``."""

OPTIMIZER = ("gradient_clipping", "optimizer", "scheduler")
"""Top-level keys that import_optimizer.py reads."""


def read_deepspeed_json(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the layout and job fields that a DeepSpeed config sets; None if the text is unusable.

    Keys without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    layout: dict[str, object] = {}
    job: dict[str, object] = {}
    zero = root.mapping("zero_optimization")
    stage = _read_whole_number(zero, "stage", reading) if zero is not None else 0
    # Without the section DeepSpeed does not use ZeRO; a section without a number leaves the stage
    # open.
    if stage is not None and stage > 3:
        reading.refuse(
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
    job |= _read_precision(root) | optimizer
    _note_replicas(root, reading)
    _report_other_keys(root, read, reading)
    reading.spec = {"layout": layout, **({"job": job} if job else {})}
    return reading.fragment()


def _read_whole_number(node: Node, key: str, reading: Reading) -> int | None:
    """Return the value of ``key`` as a whole number; None if the key is absent or ``auto``.

    Report other values as unreadable (I02).
    """
    found = node.child(key)
    if found is None or found.value == "auto":
        return None
    if isinstance(found.value, int) and not isinstance(found.value, bool) and found.value >= 0:
        return found.value
    message = f"{key} is {str(found.value)[:40]}, expected a whole number or auto"
    reading.refuse("I02", Finding(message), found.span)
    return None


def _read_precision(root: Node) -> dict[str, object]:
    # DeepSpeed asserts that at most one of the two is enabled; `parc lint` reports both (R04).
    for name in ("bf16", "fp16"):
        section = root.mapping(name)
        if section is not None and section.value.get("enabled") is True:
            return {"precision": name}
    return {}


def _read_offload(zero: Node) -> dict[str, object]:
    """Return the offload settings in a ``zero_optimization`` section; {} without offload."""
    found: dict[str, str] = {}
    for key, part in (("offload_optimizer", "optimizer"), ("offload_param", "parameters")):
        section = zero.mapping(key)
        device = section.text("device") if section is not None else ""
        if section is not None and device in ("cpu", "nvme"):
            found[part] = device
            path = section.text("nvme_path")
            found |= {"nvme_path": path} if device == "nvme" and path else {}
    return {"offload": found} if found else {}


def _read_zero_plus(zero: Node, reading: Reading) -> dict[str, object]:
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


def _note_replicas(root: Node, reading: Reading) -> None:
    """Note the number of replicas, and report batch sizes that contradict each other (I03).

    The global batch is micro-batch x accumulation steps x replicas (deepspeed/runtime/config.py).
    """
    numbers = [_read_whole_number(root, key, reading) for key in BATCH]
    # The number of replicas follows only if all three sizes are given.
    if all(numbers) and reading.sound:
        batch, micro, steps = (number or 1 for number in numbers)
        if batch % (micro * steps):
            finding = Finding(
                f"train_batch_size {batch} is not a multiple of micro-batch {micro} x "
                f"accumulation steps {steps}",
                label=f"{batch} % {micro * steps} = {batch % (micro * steps)}, must be 0",
            )
            reading.refuse("I03", finding, root.document.find((BATCH[0],)))
        reading.notes.append(f"number of data-parallel replicas: {batch // (micro * steps)}")


def _report_other_keys(root: Node, optimizer: set[str], reading: Reading) -> None:
    for key, value in root.value.items():
        inner = value if isinstance(value, dict) else {}
        read = {name.split(".")[1] for name in _READ if name.startswith(f"{key}.")}
        if key in OPTIMIZER:
            left = [name for name in _dotted_keys(str(key), value) if name not in optimizer]
        elif read or key in _READ:
            left = [f"{key}.{name}" for name in inner if name not in read]
        else:
            left = [str(key)]
        if left:
            span = root.document.find((str(key),))
            reading.say("I04", Finding(f"not carried over: {some(left, 12)}"), span)


def _dotted_keys(path: str, value: object) -> list[str]:
    """Return the dotted keys of a section, such as ``optimizer.params.lr``."""
    if not isinstance(value, dict):
        return [path]
    keys = [f"{path}.{name}" for name in value if name != "params"]
    return keys + (_dotted_keys(f"{path}.params", value["params"]) if "params" in value else [])


IMPORTERS = Importers(
    {
        "deepspeed-json": Format(
            read_deepspeed_json,
            "config of DeepSpeed",
            (r'"(train_batch_size|zero_optimization|train_micro_batch_size_per_gpu)"\s*:',),
        )
    }
)
