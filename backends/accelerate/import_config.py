"""Import of layout, job and hosts from a YAML config of ``accelerate launch``.

Keys: accelerate 1.15.0, commands/config/config_args.py, commands/launch.py, parallelism_config.py.
"""

from __future__ import annotations

from typing import Any

from parc.backends.value_range import LAST_PORT
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.formats import (
    BackendImporters,
    leave_framework_open,
    targets_with_launchers,
)
from parc.compiler.topology.readers.document import DocumentNode, leaves_by_path, read_document
from parc.compiler.topology.readers.reader_state import WRITTEN_BY_HAND, Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

SIZES = {
    "parallelism_config.parallelism_config_tp_size": "tp",
    "parallelism_config.parallelism_config_cp_size": "cp",
    "parallelism_config.parallelism_config_dp_shard_size": "dp_shard",
}
REPLICAS = "parallelism_config.parallelism_config_dp_replicate_size"
STAGES: dict[str, dict[str, int]] = {
    "fsdp_config.fsdp_reshard_after_forward": {"True": 3, "False": 2},
    "fsdp_config.fsdp_sharding_strategy": {
        **{"FULL_SHARD": 3, "1": 3},
        **{"SHARD_GRAD_OP": 2, "2": 2, "NO_SHARD": 0, "3": 0},
    },
}
"""Key of FSDP -> value -> ZeRO stage; older versions write strategies as numbers from 1."""
WRITTEN: dict[str, tuple[Any, ...]] = {
    "compute_environment": ("LOCAL_MACHINE",),
    "rdzv_backend": ("static", "c10d"),
    "use_cpu": (False,),
    "debug": (False,),
    "downcast_bf16": ("no", False),
    "main_training_function": ("main",),
    "same_network": (True,),
    "enable_cpu_affinity": (False,),
    "tpu_use_cluster": (False,),
    "tpu_use_sudo": (False,),
    "tpu_env": ([],),
    "gpu_ids": ("all",),
    "deepspeed_config.deepspeed_multinode_launcher": ("standard",),
    "fsdp_config.fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP",),
    "fsdp_config.fsdp_state_dict_type": ("SHARDED_STATE_DICT",),
    "fsdp_config.fsdp_version": (2,),
}
"""Key without a field in the spec -> values that are equal to what PARC writes."""
SET_BY_LAUNCHERS = ("machine_rank", "main_process_ip")
"""Keys that PARC's launch scripts set on each host."""


def read_accelerate_yaml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec fields that a config of Accelerate sets; None if the text is unusable.

    Keys without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink, WRITTEN_BY_HAND)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    found = leaves_by_path(root)
    kind = str(root.value.get("distributed_type", "NO"))
    layout = _read_sizes(found) | _read_sharding(found)
    job = {}
    precision = found.get("mixed_precision")
    if precision is not None and precision.value in ("bf16", "fp16", "fp8"):
        job["precision"] = found.pop("mixed_precision").value
    port = _pop_number(found, "main_process_port", LAST_PORT)
    sections = {
        "cluster": _read_hosts(found),
        "job": job,
        "layout": layout,
        "launch": {"master_port": port} if port else {},
    }
    reading.spec = {key: section for key, section in sections.items() if section}
    if reading.spec:
        _set_targets(kind, reading)
    for key, node in found.items():
        if key not in SET_BY_LAUNCHERS and node.value not in WRITTEN.get(key, ()):
            hint = "import this file alone" if key.endswith("deepspeed_config_file") else ""
            reading.leave_out(f"{key}: {node.value}", node.span, hint)
    if not reading.spec and reading.is_valid:
        reading.report_error("I02", "this config sets no field of a spec", root.span)
    return reading.fragment()


def _set_targets(kind: str, reading: Reading) -> None:
    """Set the frameworks of ``emit`` from the ``distributed_type`` of the config.

    ``emit: [accelerate]`` is set where the fragment is finished.
    """
    if kind == "DEEPSPEED":
        reading.spec["emit"] = targets_with_launchers(reading.spec, "accelerate", "deepspeed")
    elif kind not in ("FSDP", "MULTI_GPU", "NO", "False"):  # YAML reads NO as false
        leave_framework_open(f"distributed_type {kind[:40]}", reading)


def _pop_number(nodes: dict[str, DocumentNode], key: str, most: int = 999_999) -> int | None:
    """Remove a whole number from 1 to ``most`` and return it; None if ``key`` has no such value."""
    node = nodes.get(key)
    if node is None or isinstance(node.value, bool) or not isinstance(node.value, int):
        return None
    if not 1 <= node.value <= most:
        return None
    del nodes[key]
    return int(node.value)


def _read_hosts(found: dict[str, DocumentNode]) -> dict[str, Any]:
    """Return the numbers of hosts and GPUs; ``num_processes`` counts the ranks of all hosts."""
    nodes = _pop_number(found, "num_machines")
    ranks = found.get("num_processes")
    if nodes is None or ranks is None or not isinstance(ranks.value, int) or ranks.value % nodes:
        return {"nodes": nodes} if nodes else {}
    whole = _pop_number(found, "num_processes")
    return {"nodes": nodes, **({"node": {"gpus_per_node": whole // nodes}} if whole else {})}


def _read_sizes(nodes: dict[str, DocumentNode]) -> dict[str, Any]:
    """Return the parallel sizes; Accelerate has no pipeline parallelism."""
    sizes: dict[str, Any] = {}
    for key, field in SIZES.items():
        number = _pop_number(nodes, key)
        if number is not None:
            sizes[field] = number
    replicas = _pop_number(nodes, REPLICAS)
    if replicas is not None and "dp_shard" in sizes:
        sizes["dp"] = replicas * sizes["dp_shard"]
    return sizes


def _read_sharding(nodes: dict[str, DocumentNode]) -> dict[str, Any]:
    """Return the spec fields for the ZeRO stage and, with FSDP, for recomputation."""
    kind = nodes.get("distributed_type")
    if kind is None or kind.value not in ("FSDP", "MULTI_GPU", "DEEPSPEED"):
        return {}
    del nodes["distributed_type"]
    if kind.value == "MULTI_GPU":
        return {"zero_stage": 0}
    if kind.value == "DEEPSPEED":
        return _read_deepspeed(nodes)
    layout: dict[str, Any] = {}
    for key, stages in STAGES.items():
        if key in nodes and str(nodes[key].value) in stages:
            layout["zero_stage"] = stages[str(nodes.pop(key).value)]
    node = nodes.get("fsdp_config.fsdp_activation_checkpointing")
    if node is not None and isinstance(node.value, bool):
        del nodes["fsdp_config.fsdp_activation_checkpointing"]
        layout["recompute"] = "full" if node.value else "none"
    return layout


def _read_deepspeed(nodes: dict[str, DocumentNode]) -> dict[str, Any]:
    """Return the ZeRO stage that the config itself sets, not a file that the config names."""
    stage = nodes.get("deepspeed_config.zero_stage")
    if stage is not None and str(stage.value) in ("0", "1", "2", "3"):
        del nodes["deepspeed_config.zero_stage"]
        return {"zero_stage": int(stage.value)}
    init = nodes.get("deepspeed_config.zero3_init_flag")
    if init is not None and "deepspeed_config.deepspeed_config_file" in nodes:
        del nodes["deepspeed_config.zero3_init_flag"]  # the stage is in the file
    return {}


IMPORTERS = BackendImporters(
    {
        "accelerate-yaml": FileFormat(
            read_accelerate_yaml, "config of accelerate launch", (r"(?m)^distributed_type:",)
        )
    }
)
