"""Import of SGLang's flags on formats, memory and ports, and of all other flags."""

from __future__ import annotations

import re

from parc.backends.sglang.arguments import PACKAGE, planned_flags
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    rows_of_known_flags,
)
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field
from parc.compiler.topology.readers.reader_state import Reading

PRECISIONS = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16"}
OF_HOSTS = frozenset(("--nnodes", "--node-rank", "--dist-init-addr", "--host", "--nccl-port"))
"""Flags about hosts and ports between them, which PARC's script sets for each host."""
IGNORED = {"--dtype": "auto", "--deepep-mode": "auto"}
"""Flags that need no field if they have this value."""


def read_formats(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set spec fields from the flags on number formats and memory.

    Return the flags that a spec cannot express as fields.
    """
    # --quantization names the format of weights, --dtype only that of activations.
    ordered = sorted(flags, key=lambda flag: flag.name != "--dtype")
    return [flag for flag in ordered if not _read_flag(flag, reading)]


def _read_flag(flag: LaunchFlag, reading: Reading) -> bool:
    """Set the spec field of ``flag``; return False if no field can express the flag."""
    value = flag.values[0].text if flag.values else ""
    if flag.name in OF_HOSTS or IGNORED.get(flag.name) == value:
        return True
    if flag.name == "--dtype" and value in PRECISIONS:
        set_spec_field(reading, "job.precision", PRECISIONS[value], flag)
        return True
    if flag.name == "--quantization" and value == "fp8":
        set_spec_field(reading, "job.precision", "fp8", flag)
        set_spec_field(reading, "job.quantize", True, flag)
        return True
    if flag.name == "--mem-fraction-static" and re.fullmatch(r"0?\.[0-9]{1,6}", value):
        set_spec_field(reading, "goals.memory_headroom", round(1 - float(value), 6), flag)
        return True
    layout = reading.spec.get("layout", {})
    if flag.name == "--deepep-mode" and layout.get("all2all") == "deepep_high_throughput":
        return value == "normal"
    return False


def take_extra_arguments(flags: list[LaunchFlag], reading: Reading) -> None:
    """Move valid flags that a plan does not determine to ``launch.args``.

    All other flags are reported: unknown flags, flags that a plan determines, invalid values, and
    values that are known only at run time.
    """
    words: dict[str, tuple[str, ...]] = {}
    for flag in flags:
        row = rows_of_known_flags(PACKAGE).get(flag.name)
        takes = row.get("takes", 1) if row is not None else 1
        # Arguments after the last flag, such as a redirection, are no values.
        many = takes if isinstance(takes, int) else 1 if takes == "?" else len(flag.values)
        values = tuple(word.text for word in flag.values[:many])
        dynamic = any("$" in value or "`" in value for value in values)
        if (
            row is None
            or dynamic
            or flag.name in planned_flags()
            or find_value_fault(ExtraArgument(flag.name, values, 0), row)
        ):
            text = " ".join((flag.name, *values))
            reading.leave_out(text, flag.word.span, "set the matching field of the job, if any")
        else:
            words[flag.name] = values
    if words:
        reading.spec.setdefault("launch", {})["args"] = [
            word for name, values in words.items() for word in (name, *values)
        ]
