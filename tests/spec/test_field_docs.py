"""Docstrings of fields, read from the source of a model and its base classes."""

from __future__ import annotations

from parc.compiler.spec.base import StrictModel
from parc.compiler.spec.schema import docstrings_of_fields


class Base(StrictModel):
    """Model with documented and undocumented fields."""

    documented: int = 1
    """Base text."""
    undocumented: int = 2
    long: int = 3
    """Two
    lines."""


class Derived(Base):
    """Model that overrides one field and adds one."""

    documented: int = 4
    """Overridden text."""
    added: int = 5
    """Added text."""


def test_a_string_after_a_field_is_its_docstring() -> None:
    assert docstrings_of_fields(Base) == {"documented": "Base text.", "long": "Two\nlines."}


def test_fields_are_inherited_with_their_docstrings() -> None:
    docs = {"documented": "Overridden text.", "long": "Two\nlines.", "added": "Added text."}
    assert docstrings_of_fields(Derived) == docs
