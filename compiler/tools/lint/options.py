"""What the user adds to a script: facts that stand elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LintOptions:
    """None, or empty: unknown."""

    framework: str = "auto"
    """megatron, deepspeed, vllm, none, or auto: seen from the content."""
    model: str | None = None
    """Catalog name, or path to a config.json."""
    cluster: str | None = None
    """Catalog name of a cluster or of a node type."""
    gpus: int | None = None
    """GPUs of the job."""
    version: str = ""
    """Version of the framework; empty: its default."""
    folder: Path | None = None
    """What the path of a model is relative to."""


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that could not be asked."""

    code: str
    needs: str
    """What it would have to know, in words: ``--micro-batch-size``, ``the kind of GPU``."""
