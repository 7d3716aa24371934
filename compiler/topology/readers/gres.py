"""GPUs in the words of Slurm: ``gpu:h100:8(S:0-1)`` of gres, ``gres/gpu:h100=16`` of tres."""

from __future__ import annotations

import re

_GPUS = re.compile(r"\bgpu(?::([\w.-]+))?[:=]([0-9]{1,6})(?![0-9])")


def gpus_of(text: str) -> tuple[int, tuple[str, ...]]:
    """(GPUs, their types) that ``text`` counts.

    tres say the sum and, again, the parts of it that have a type.
    """
    found = _GPUS.findall(text)
    total = sum(int(count) for kind, count in found if not kind)
    parts = sum(int(count) for kind, count in found if kind)
    types = tuple(dict.fromkeys(kind for kind, _ in found if kind))
    return (max(total, parts) if "=" in text else total + parts), types
