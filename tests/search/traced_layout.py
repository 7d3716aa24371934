"""Layout that records which of its fields a rule reads."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property, partial
from typing import Any

from parc.compiler.ir import Layout, ServingLayout


class TracedLayout:
    """A layout that notes which of its fields are read, by properties and methods too."""

    def __init__(self, layout: Layout | ServingLayout) -> None:
        self._layout, self.seen = layout, set[str]()
        self._fields = {field.name for field in fields(layout)}

    def __getattr__(self, name: str) -> Any:
        if name in self._fields:
            self.seen.add(name)
            return getattr(self._layout, name)
        derived = getattr(type(self._layout), name)
        if isinstance(derived, cached_property):
            return derived.func(self)
        if isinstance(derived, property) and derived.fget is not None:
            return derived.fget(self)
        return partial(derived, self)
