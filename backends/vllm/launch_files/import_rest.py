"""Import of vLLM's flags on formats, memory, ports and load balancing, and of all other flags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.import_weight_format import read_weight_format
from parc.backends.vllm.arguments import EXECUTOR, PACKAGE
from parc.backends.vllm.backend import DEFAULT_VERSION
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field, whole_number
from parc.compiler.topology.readers.reader_state import Reading

LAYOUT_DEFAULTS: dict[str, Any] = {
    **{"tp": 1, "pp": 1, "dp": 1, "ep": "off", "pcp": 1, "dcp": 1, "replicas": 1}
}
"""``layout`` field -> vLLM's value if the command does not have the flag. In a spec, most absent
fields mean that PARC chooses the value."""
SUBJECTS = {"layout.tp": r"--tp\S*", "layout.ep": r"--(?:enable-)?(?:expert-parallel|ep)\S*"}
"""Spec field -> flags without a row in the import table that can set it."""
CACHES = {"auto": "auto", "fp8": "fp8", "fp8_e4m3": "fp8", "bfloat16": "bf16"}
BALANCERS = {
    "--data-parallel-hybrid-lb": "hybrid",
    "--data-parallel-external-lb": "external",
    "--data-parallel-multi-port-external-lb": "external",
}
OF_HOSTS = frozenset(
    (
        *("--headless", "--nnodes", "--node-rank", "--master-addr", "--master-port"),
        *("--data-parallel-size-local", "--data-parallel-start-rank", "--data-parallel-rank"),
        *("--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-supervisor-port"),
    )
)
"""Flags about hosts and ports between them, which PARC's script sets for each host."""
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30, "": 1}


def parse_length(text: str) -> int | None:
    """Return the number in a length such as ``32k`` (32,000) or ``32K`` (32,768).

    Return None for any other text. Source: vllm/engine/arg_utils.py, ``human_readable_int``.
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kmgKMG]?)", text)
    if match is None or ("." in match[1] and match[2] in ("K", "M", "G", "")):
        return None
    return int(float(match[1]) * _FACTORS[match[2]])


def read_formats(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set spec fields from the flags on number formats, memory, load balancing and ports.

    Return the flags that a spec cannot express as fields.
    """
    return [flag for flag in read_weight_format(flags, reading) if not _read_flag(flag, reading)]


def _read_flag(flag: LaunchFlag, reading: Reading) -> bool:
    """Set the spec field of ``flag``; return False if no field can express the flag.

    Flags that PARC's script sets for each host need no field; True is returned for these flags too.
    """
    value = flag.value
    if (flag.name == EXECUTOR and value == "mp") or flag.name in OF_HOSTS:
        return True
    found = _field_of_flag(flag.name, value, reading)
    if found is None:
        return False
    path, setting = found
    # 0 redundant experts only turn the load balancer on; --eplb-config may have set a number.
    kept = flag.name == "--enable-eplb" and "redundant_experts" in reading.spec.get("layout", {})
    if not kept:
        set_spec_field(reading, path, setting, flag)
    return True


def _field_of_flag(name: str, value: str, reading: Reading) -> tuple[str, Any] | None:
    """Return (spec field, value of the field) that correspond to the flag ``name``.

    Return None if no field corresponds to the flag, or if the field cannot have ``value``.
    """
    words: dict[str, tuple[str, Mapping[str, Any]]] = {
        "--kv-cache-dtype": ("job.kv_precision", CACHES),
        "--enable-eplb": ("layout.redundant_experts", {"": 0}),
    }
    if name in words:
        path, values = words[name]
        return (path, values[value]) if value in values else None
    if name in BALANCERS:
        return "launch.load_balancer", BALANCERS[name]
    if name == "--gpu-memory-utilization" and re.fullmatch(r"0?\.[0-9]{1,6}", value):
        return "goals.memory_headroom", round(1 - float(value), 6)
    if name == "--port" and (port := whole_number(value)):
        # Each further server of a host uses the next port.
        return "launch.port", min(port, reading.spec.get("launch", {}).get("port", port))
    if name == "--eplb-config" and (redundant := _redundant_experts(value)) is not None:
        return "layout.redundant_experts", redundant
    return None


def _redundant_experts(text: str) -> int | None:
    """Return the number in a JSON text such as ``{"num_redundant_experts": 32}``.

    Return None if the text is not such an object or has other keys.
    """
    try:
        tree = json.loads(text)
    except ValueError:
        return None
    number = tree.get("num_redundant_experts") if isinstance(tree, dict) else None
    return number if isinstance(number, int) and len(tree) == 1 else None


def row_of_flag(name: str) -> Mapping[str, Any] | None:
    """Return the row in known_flags.json of a flag, or of the JSON option that it is a field of."""
    # An imported spec has no versions, so it is compiled for the default one.
    return rows_of_known_flags(PACKAGE, DEFAULT_VERSION).get(name.partition(".")[0])
