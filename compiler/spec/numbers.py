"""Plain numbers of the spec, with bounds that no real job passes.

The bounds keep the arithmetic after the spec finite: no list of 10^18 hosts, no overflow.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "a true/false value is no number")
    return value


NotBool = BeforeValidator(_refuse_bool)
"""For a Literal of integers, which pydantic would let ``true`` pass as 1."""

Count = Annotated[int, Field(ge=1, le=2**20)]
"""A parallel degree, a count of hosts, GPUs, layers or heads."""
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
"""A width, a length in tokens, a batch in sequences, a count of steps."""
CountOrZero = Annotated[int, Field(ge=0, le=2**20)]
"""A count that may be none."""
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9)]
"""A width that may be none."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""A TCP port."""
PositiveFloat = Annotated[float, Field(gt=0, le=1e12)]
"""A factor, a rate, a bandwidth."""
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e12)]
"""A weight that may be none."""
Beta = Annotated[float, Field(ge=0, lt=1)]
"""Decay rate of a running mean."""
