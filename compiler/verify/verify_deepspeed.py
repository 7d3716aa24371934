"""The second routes through ``deepspeed/ds_config.json``, with ``train.json`` or Accelerate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.derived_groups import SecondRoute, Told
from parc.compiler.verify.read_emitted import LARGEST, TABLE, Malformed
from parc.compiler.verify.regenerate_topology import COLUMNS, Topology, regenerate
from parc.compiler.verify.torch_sizes import ACCELERATE, accelerate_sizes

CONFIG = "deepspeed/ds_config.json"
PROGRAM = "deepspeed/train.json"
ORDER = "tp-cp-ep-dp-pp"
AXES = ("pipe", "data", "sequence", "model", "expert", "expert_model")


def _contents(artifacts: Mapping[str, str], sink: Sink) -> None:
    """A08 for layers, A09 for the batch, A05 where the two files disagree."""
    if PROGRAM not in artifacts:
        return
    config, program = _read(CONFIG, artifacts[CONFIG]), _read(PROGRAM, artifacts[PROGRAM])
    topology = _topology(program)
    stages = program.get("stages")
    layers = _section(PROGRAM, program, "model").get("layers")
    if not isinstance(stages, list) or not all(isinstance(n, int) for n in stages):
        raise Malformed(PROGRAM, 1, "stages is no list of numbers")
    if len(stages) != topology.pipe or sum(stages) != layers:
        label = f"{sum(stages)} layers on {len(stages)} stages"
        message = f"the stages do not hold {layers!r:.20} layers on {topology.pipe} ranks"
        sink.report("A08", Finding(message, label), span=Span(PROGRAM, 1, 1))
    _verify_batch(config, topology, sink)
    _verify_sizes(config, topology, PROGRAM, sink)


def _plugged(artifacts: Mapping[str, str]) -> Topology:
    """What Accelerate's plugin makes of its file: every process is a replica of its own."""
    return Topology(1, accelerate_sizes(artifacts[ACCELERATE]).world, 1, 1, 1, 1)


def _plugin_contents(artifacts: Mapping[str, str], sink: Sink) -> None:
    """A09 for the batch, A05 for sizes that Accelerate does not bring."""
    if CONFIG in artifacts:
        config, topology = _read(CONFIG, artifacts[CONFIG]), _plugged(artifacts)
        _verify_batch(config, topology, sink)
        _verify_sizes(config, topology, ACCELERATE, sink)


def _verify_batch(config: dict[str, Any], topology: Topology, sink: Sink) -> None:
    """DeepSpeed's triangle, over the replicas that there really are."""
    micro = _number(CONFIG, config, "train_micro_batch_size_per_gpu")
    steps = _number(CONFIG, config, "gradient_accumulation_steps")
    if "train_batch_size" not in config:
        return
    batch, product = config["train_batch_size"], micro * steps * topology.data
    if batch != product:
        label = f"{micro} * {steps} * {topology.data} = {product}, not {batch!r:.20}"
        message = "train_batch_size is not micro-batch x accumulation x data-parallel ranks"
        sink.report("A09", Finding(message, label), span=Span(CONFIG, 1, 1))


def _verify_sizes(config: dict[str, Any], topology: Topology, other: str, sink: Sink) -> None:
    """Sizes that stand in both files."""
    tensor = config.get("tensor_parallel")
    pairs = [
        ("tensor_parallel.autotp_size", tensor and tensor.get("autotp_size"), topology.model),
        ("sequence_parallel_size", config.get("sequence_parallel_size"), topology.sequence),
        ("data_parallel_size", config.get("data_parallel_size"), topology.data),
    ]
    for name, value, wanted in pairs:
        if value is not None and value != wanted:
            message = f"{name} is {value!r:.20} in {CONFIG}, {other} has {wanted}"
            sink.report("A05", message, span=Span(CONFIG, 1, 1))


def _told(artifacts: Mapping[str, str], world: int, sink: Sink) -> Told | None:
    if PROGRAM not in artifacts:
        return None
    return _groups(_topology(_read(PROGRAM, artifacts[PROGRAM])), PROGRAM, world, sink)


def _plugin_told(artifacts: Mapping[str, str], world: int, sink: Sink) -> Told | None:
    return _groups(_plugged(artifacts), ACCELERATE, world, sink)


def _groups(topology: Topology, file: str, world: int, sink: Sink) -> Told | None:
    """All groups of a topology that ``file`` says; None after a finding."""
    if topology.world != world:
        message = f"the rank map has {world} ranks, the topology of {file} {topology.world}"
        sink.report("A05", message, span=Span(TABLE, 1, 1))
        return None
    if topology.data * topology.sequence * topology.model % topology.experts_ranks:
        label = f"{topology.data * topology.sequence} data-parallel ranks, ep {topology.expert}"
        finding = Finding(f"experts of {file} do not tile a stage", label)
        sink.report("A05", finding, span=Span(file, 1, 1))
        return None
    return Told(
        file=file,
        builder="DeepSpeed",
        order=ORDER,
        sizes=topology.sizes(),
        families=regenerate(topology),
        columns=COLUMNS,
    )


def _read(file: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise Malformed(file, line, f"not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(tree, dict):
        raise Malformed(file, 1, "not a JSON object")
    for name in ("tensor_parallel", "topology"):
        if name in tree and not isinstance(tree[name], dict):
            raise Malformed(file, 1, f"{name} is no object")
    return tree


def _section(file: str, tree: dict[str, Any], name: str) -> dict[str, Any]:
    section = tree.get(name)
    if not isinstance(section, dict):
        raise Malformed(file, 1, f"{name} is missing or no object")
    return section


def _topology(program: dict[str, Any]) -> Topology:
    section = _section(PROGRAM, program, "topology")
    return Topology(*(_number(PROGRAM, section, name) for name in AXES))


def _number(file: str, section: dict[str, Any], name: str) -> int:
    value = section.get(name)
    if type(value) is not int or not 0 < value <= LARGEST:
        raise Malformed(file, 1, f"{name} is {value!r:.40}, must be a number > 0")
    return value


DEEPSPEED = SecondRoute(CONFIG, (PROGRAM,), _contents, _told)
PLUGIN = SecondRoute(ACCELERATE, (CONFIG,), _plugin_contents, _plugin_told)
"""DeepSpeed behind Accelerate."""
