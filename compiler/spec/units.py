"""Numbers with units: ``8%``, ``300ms``, ``16M`` tokens, ``80 GB``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Percent = Annotated[float, Field(ge=0, lt=1)]
Seconds = Annotated[float, Field(gt=0)]
Tokens = Annotated[int, Field(gt=0)]
Gigabytes = Annotated[float, Field(gt=0)]
Gigabits = Annotated[float, Field(gt=0)]
