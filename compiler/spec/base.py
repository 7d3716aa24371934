"""Base class of all spec models, and number types with upper bounds.

No real job reaches the bounds. They keep later computations finite, for example by excluding lists
of 10^18 hosts and overflows.

The modules with models do not postpone the evaluation of annotations, because pydantic would then
compile each of them from text on import.
"""

from typing import Annotated, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


class StrictModel(BaseModel):
    """Base class of spec models: frozen, without type coercion, without unknown keys.

    The docstrings below the fields of its subclasses are shown by editors (as hover text) and by
    `parc explain FIELD`.
    """

    # strict: without it, pydantic would accept the text "8" as a number.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def with_defaults(cls) -> Self:
        """Return the model in which every field has its default.

        The result equals that of the constructor, which would build a validator for this class on
        import. A spec needs only the validator of its root.
        """
        return cast(Self, cls.model_construct())


def _reject_bool(value: object) -> object:
    # bool is a subclass of int in Python.
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "true or false is not a number")
    return value


NotBool = BeforeValidator(_reject_bool)
"""Validator that rejects true and false for a Literal of integers, because pydantic would accept
``true`` as 1."""

Count = Annotated[int, Field(ge=1, le=2**20)]
"""Parallel size, or a count of hosts, GPUs, layers or heads; at most 2^20."""
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
"""Width, length in tokens, batch in sequences, or number of steps; at most 10^9."""
Parameters = Annotated[int, Field(ge=1, le=10**12)]
"""Number of parameters of a model part; at most 10^12."""
CountOrZero = Annotated[int, Field(ge=0, le=2**20)]
"""Count that can be 0; at most 2^20."""
NonNegativeInt = Annotated[int, Field(ge=0, le=10**9)]
"""Width or number of steps that can be 0; at most 10^9."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""TCP port."""
PositiveFloat = Annotated[float, Field(gt=0, le=1e12)]
"""Factor, rate or bandwidth above 0."""
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e12)]
"""Factor or rate that can be 0."""
LearningRate = Annotated[float, Field(gt=0, lt=1)]
"""Learning rate. No optimizer trains a language model with a rate of 1 or more."""
LoadFactor = Annotated[float, Field(ge=1, le=1000)]
"""Largest load divided by the mean load, at least 1."""
Beta = Annotated[float, Field(ge=0, lt=1)]
"""Decay rate of a moving average, at least 0 and below 1."""
