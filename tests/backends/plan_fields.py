"""Paths of the fields that a plan has, for the tests that walk the tables of the backends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from parc.compiler.ir import Job, Layout, Model, ServingLayout
from parc.compiler.ir.serving_plan import EngineLimits, Service

WHOLE = (
    "service.setup.engine",
    "service.setup.speculative.model",
    "layout.split.chunks",
    "layout.offload",
    "layout.zero_plus",
    "model.attention.latent",
)
"""Objects inside the plan that one flag or a group of flags expresses as a whole."""


def leaves(kind: type, path: str) -> Iterator[str]:
    """Return the paths of all fields, including those of nested objects."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner, own = _dataclass_in(hints[field.name]), f"{path}.{field.name}"
        if inner is None or own in WHOLE:
            yield own
        else:
            yield from leaves(inner, own)


def _dataclass_in(hint: Any) -> type | None:
    """Return the dataclass in the type ``hint``, which may be a union."""
    options = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    return next((option for option in options if is_dataclass(option)), None)


TRAINING = (*leaves(Model, "model"), *leaves(Layout, "layout"), *leaves(Job, "job"))
SERVING = (
    *leaves(ServingLayout, "layout"),
    *leaves(EngineLimits, "limits"),
    *leaves(Service, "service"),
)
LATENT = tuple(
    f"model.attention.latent.{name}"
    for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim")
)
"""Fields of the objects in ``WHOLE`` that a table may map separately."""
