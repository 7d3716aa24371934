"""Import of vLLM's flags on formats, memory, ports and load balancing, and of all other flags."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    advise_removed_flag,
    find_value_fault,
    rows_of_known_flags,
)
from parc.backends.shared.serving.import_service import (
    OTHER_HINT,
    SECRET_HINT,
    engines_line,
    is_secret_flag,
)
from parc.backends.shared.serving.import_weight_format import read_weight_format
from parc.backends.vllm.arguments import EXECUTOR, PACKAGE, planned_flags
from parc.backends.vllm.backend import DEFAULT_VERSION
from parc.backends.vllm.environment import PARTITION
from parc.backends.vllm.extra_arguments import normalize_flag
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field, whole_number
from parc.compiler.tools.importers.open_fields import set_defaults
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
_ENGINES = engines_line("vLLM")


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


def take_extra_arguments(flags: list[LaunchFlag], reading: Reading) -> None:
    """Move valid flags that a plan does not determine to ``launch.args``.

    All other flags are reported: unknown flags, flags that a plan determines, invalid values, and
    values that are known only at run time.
    """
    words: dict[str, tuple[str, ...]] = {}
    # An imported spec has no versions, so it is compiled for the default one.
    rows = rows_of_known_flags(PACKAGE, DEFAULT_VERSION)
    for flag in flags:
        row = rows.get(normalize_flag(flag.name).partition(".")[0])
        takes = row.get("takes", 1) if row is not None else 1
        # Arguments after the last flag, such as a redirection, are not values.
        many = takes if isinstance(takes, int) else 1 if takes == "?" else len(flag.values)
        values = tuple(word.text for word in flag.values[:many])
        dynamic = any("$" in value or "`" in value for value in values)
        planned = row is not None and (
            str(row.get("means", flag.name)).replace("--no-", "--", 1) in planned_flags()
        )
        secret = is_secret_flag(flag.name, values)
        if (
            row is None
            or dynamic
            or planned
            or secret
            or find_value_fault(ExtraArgument(flag.name, values, 0), row)
        ):
            text = " ".join((flag.name, *values))
            hint = advise_removed_flag(PACKAGE, flag.name) if row is None else ""
            reading.leave_out(text, flag.word.span, SECRET_HINT if secret else hint or OTHER_HINT)
        else:
            words[flag.name] = values
    if words:
        reading.spec.setdefault("launch", {})["args"] = [
            word for name, values in words.items() for word in (name, *values)
        ]


def pin_vllm_defaults(reading: Reading, unsure: Collection[str]) -> None:
    """Set the ``layout`` fields whose flags are absent to vLLM's defaults.

    ``unsure`` contains the paths of fields whose values are unknown. These fields are not set.
    """
    layout = reading.spec.setdefault("layout", {})
    engines = _ENGINES.search(reading.text)
    if engines is not None and engines[1] != "one":
        layout["replicas"] = int(engines[1])
    set_defaults(layout, "layout", LAYOUT_DEFAULTS, unsure)
    env = reading.spec.get("launch", {}).get("env", {})
    stages = env.get(PARTITION, "")
    if re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5})*", stages):
        layout["stage_layers"] = [int(part) for part in stages.split(",")]
        del env[PARTITION]
        if not env:
            del reading.spec["launch"]["env"]


def is_script_from_parc(reading: Reading) -> bool:
    """Return True if PARC emitted the script that is read."""
    return _ENGINES.search(reading.text) is not None
