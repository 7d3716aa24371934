"""Base class of all models of the spec."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Frozen model without type coercion or unknown keys.

    Docstrings under its fields are the hover text in editors and the text of `parc explain FIELD`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
