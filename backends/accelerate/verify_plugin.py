"""Verifier of the files that Accelerate and DeepSpeed emit together.

DeepSpeed's own verifier checks ``ds_config.json``. The registry provides that verifier, because a
backend may not import another backend.
"""

from __future__ import annotations

from typing import cast

from parc.backends.accelerate.verify import CONFIG, LAUNCHER, read_sizes
from parc.backends.registry import verifier
from parc.backends.verifier import FrontableVerifier


def read_world(text: str) -> int:
    """Return the number of ranks that Accelerate's ``config.yaml`` configures."""
    return read_sizes(text).world


VERIFIER = cast(FrontableVerifier, verifier("deepspeed")).behind_front(CONFIG, read_world, LAUNCHER)
