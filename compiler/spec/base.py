"""What every model of the spec shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Frozen, strict, and an unknown key is an error. Docstrings of fields become hover text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
