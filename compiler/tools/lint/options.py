"""Options of ``parc lint``: facts about a launch that its file does not contain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LintOptions:
    """Options as the user gives them; None or empty means unknown."""

    framework: str = "auto"
    """Backend that the file starts; none: check only the launch lines; auto: detect it."""
    model: str | None = None
    """Catalog name, or path to a config.json."""
    cluster: str | None = None
    """Catalog name of a cluster or of a node type."""
    gpus: int | None = None
    """Number of GPUs of the job."""
    version: str = ""
    """Version of the framework; empty: its default."""
    folder: Path | None = None
    """Folder that the path of a model is relative to."""


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that was not checked, because it needs an unknown fact."""

    code: str
    fact: str
    """The unknown fact: ``the value of --micro-batch-size``, ``the GPU type``."""
    option: str = ""
    """Option of ``parc lint`` that supplies the fact; empty if none does."""

    @property
    def reason(self) -> str:
        """The fact, and how to supply it."""
        advice = f" Pass {self.option}." if self.option else ""
        return f"{self.fact} is unknown.{advice}"
