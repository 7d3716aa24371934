"""The backends: a literal list, merged with installed plugins."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from parc.backends.base import Backend, Framework

BUILT_IN: dict[str, str] = {
    "megatron": "parc.backends.megatron.backend",
    "rankmap": "parc.backends.rankmap.backend",
    "slurm": "parc.backends.slurm.backend",
    "torchrun": "parc.backends.torchrun.backend",
}
"""name -> module that holds ``BACKEND``; loaded on first use, so that start-up stays cheap."""

FRAMEWORKS: tuple[str, ...] = ("megatron",)
"""Backends whose rules bind the layout."""


def backend(name: str) -> Backend:
    """The backend called ``name``; KeyError where there is none."""
    return cast(Backend, import_module(BUILT_IN[name]).BACKEND)


def framework(name: str) -> Framework:
    """The framework called ``name``; KeyError where there is none."""
    if name not in FRAMEWORKS:
        raise KeyError(name)
    return cast(Framework, backend(name))
