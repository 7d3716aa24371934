"""DeepSpeed: its JSON config to layout and job.

Keys: https://www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reading import Reading, some

_READ = {
    "zero_optimization": {"stage"},
    "bf16": {"enabled"},
    "fp16": {"enabled"},
    "communication_data_type": set[str](),
    "train_batch_size": set[str](),
    "train_micro_batch_size_per_gpu": set[str](),
    "gradient_accumulation_steps": set[str](),
    "optimizer": {"params"},
}


def read_deepspeed_json(text: str, name: str, sink: Sink) -> Fragment | None:
    """ZeRO stage, micro-batch, batch and precision; every other key is named (I04)."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    layout: dict[str, object] = {}
    job: dict[str, object] = {}
    zero = root.mapping("zero_optimization")
    stage = _count(zero, "stage", reading) if zero is not None else 0
    if stage is not None and stage > 3:
        reading.refuse("I02", f"ZeRO stage {stage}, there are 0 to 3", root.span)
    elif stage is not None:
        layout["zero_stage"] = stage
    for key, section, field in (
        ("train_micro_batch_size_per_gpu", layout, "micro_batch"),
        ("train_batch_size", job, "global_batch"),
    ):
        number = _count(root, key, reading)
        if number:
            section[field] = number
    job |= _precision(root)
    _note_replicas(root, reading)
    _report_rest(root, reading)
    reading.spec = {"layout": layout, **({"job": job} if job else {})}
    return reading.fragment()


def _count(node: Node, key: str, reading: Reading) -> int | None:
    """A whole number; None where it is absent or ``auto``; I02 for anything else."""
    found = node.child(key)
    if found is None or found.value == "auto":
        return None
    if isinstance(found.value, int) and not isinstance(found.value, bool) and found.value >= 0:
        return found.value
    message = f"{key} is {str(found.value)[:40]}, expected a whole number or auto"
    reading.refuse("I02", Finding(message), found.span)
    return None


def _precision(root: Node) -> dict[str, object]:
    for name in ("bf16", "fp16"):
        section = root.mapping(name)
        if section is not None and section.value.get("enabled") is True:
            return {"precision": name}
    return {}


def _note_replicas(root: Node, reading: Reading) -> None:
    """train_batch_size = micro-batch x accumulation x replicas (DeepSpeed, runtime/config.py)."""
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    numbers = [_count(root, key, reading) for key in keys]
    if all(numbers) and reading.sound:
        batch, micro, steps = (number or 1 for number in numbers)
        if batch % (micro * steps):
            finding = Finding(
                f"train_batch_size {batch} is no multiple of {micro} x {steps}",
                label=f"{batch} % {micro * steps} = {batch % (micro * steps)}",
            )
            reading.refuse("I03", finding, root.document.find((keys[0],)))
        reading.notes.append(f"data-parallel replicas of this config: {batch // (micro * steps)}")


def _report_rest(root: Node, reading: Reading) -> None:
    for key, value in root.value.items():
        read = _READ.get(key)
        if read is None:
            left = [str(key)]
        else:
            inner = value if isinstance(value, dict) else {}
            left = [f"{key}.{name}" for name in inner if name not in read]
        if left and key != "optimizer":
            span = root.document.find((str(key),))
            reading.say("I04", Finding(f"not carried over: {some(left, 12)}"), span)
