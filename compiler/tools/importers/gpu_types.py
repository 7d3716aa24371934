"""Import of the GPU type that options of Slurm name, such as ``--gres=gpu:a100:4``."""

from __future__ import annotations

import re

from parc.compiler.catalog.find_hardware import find_gpus
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field
from parc.compiler.topology.readers.reader_state import Reading

_MOST = 4
"""Most GPUs that a note lists."""
_TYPED = re.compile(r"(?:gpu:)?([A-Za-z][\w.-]*):[0-9]+")
"""Matches one resource of an option: the GPU type and the number of GPUs."""


def read_gpu_type(flag: LaunchFlag, text: str, reading: Reading) -> None:
    """Set ``cluster.gpu`` from the GPU type in an option, if the catalog has one such GPU.

    Otherwise a note lists the type, because sites choose the names of their GPU types. ``text`` is
    the value of the option: ``gpu:a100:4``, or ``a100:4`` for options that count only GPUs.
    """
    parts = [one for one in text.split(",") if flag.name != "--gres" or one.startswith("gpu:")]
    types = [found[1] for one in parts if (found := _TYPED.match(one)) and found[1] != "gpu"]
    if not types or "gpu" in reading.spec.get("cluster", {}):
        return
    gpu, which = gpu_of_type(types[0])
    if gpu is not None:
        set_spec_field(reading, "cluster.gpu", gpu, flag)
        return
    note = f"GPU type {types[0]}, line {flag.word.span.line}: {which}"
    if note not in reading.notes:
        reading.notes.append(note)


def gpu_of_type(name: str) -> tuple[str | None, str]:
    """Return (GPU of the catalog that ``name`` means, advice if it is None)."""
    names = find_gpus(name)
    if len(names) == 1:
        return names[0], ""
    which = f"one of {', '.join(names[:_MOST])}" if names else "its name in parc catalog gpus"
    return None, f"set cluster.gpu to {which}"
