"""Verifier of Accelerate's DeepSpeed plugin: files of both, started by ``accelerate launch``.

DeepSpeed's own verifier checks ``ds_config.json``; a backend may not import another one, so that
the registry provides it.
"""

from __future__ import annotations

from typing import cast

from parc.backends.accelerate.verify import CONFIG, LAUNCHER, read_sizes
from parc.backends.registry import verifier
from parc.backends.verifier import FrontableVerifier


def read_world(text: str) -> int:
    """Return the number of ranks that Accelerate's file configures."""
    return read_sizes(text).world


VERIFIER = cast(FrontableVerifier, verifier("deepspeed")).behind_front(CONFIG, read_world, LAUNCHER)
