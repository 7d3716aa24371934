"""Import of SGLang's flags on formats, memory and ports."""

from __future__ import annotations

import re

from parc.backends.shared.serving.import_weight_format import read_weight_format
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field
from parc.compiler.topology.readers.reader_state import Reading

OF_HOSTS = frozenset(("--nnodes", "--node-rank", "--dist-init-addr", "--host", "--nccl-port"))
"""Flags about hosts and ports between them, which PARC's script sets for each host."""
IGNORED = {"--deepep-mode": "auto"}
"""Flags that need no field if they have this value."""


def read_formats(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set spec fields from the flags on number formats and memory.

    Return the flags that a spec cannot express as fields.
    """
    return [flag for flag in read_weight_format(flags, reading) if not _read_flag(flag, reading)]


def _read_flag(flag: LaunchFlag, reading: Reading) -> bool:
    """Set the spec field of ``flag``; return False if no field can express the flag."""
    value = flag.value
    if flag.name in OF_HOSTS or IGNORED.get(flag.name) == value:
        return True
    if flag.name == "--mem-fraction-static" and re.fullmatch(r"0?\.[0-9]{1,6}", value):
        set_spec_field(reading, "goals.memory_headroom", round(1 - float(value), 6), flag)
        return True
    layout = reading.spec.get("layout", {})
    if flag.name == "--deepep-mode" and layout.get("all2all") == "deepep_high_throughput":
        return value == "normal"
    return False
