"""Docstrings of fields: from the source of a model and of those it inherits from."""

from __future__ import annotations

from parc.compiler.spec.base import Strict
from parc.compiler.spec.field_docs import field_docs


class Above(Strict):
    """A model with a field of each kind."""

    told: int = 1
    """What it is."""
    silent: int = 2
    long: int = 3
    """Two
    lines."""


class Below(Above):
    """One that says one of them anew, and adds one."""

    told: int = 4
    """What it is here."""
    own: int = 5
    """Its own."""


def test_a_string_after_a_field_is_its_docstring() -> None:
    assert field_docs(Above) == {"told": "What it is.", "long": "Two\nlines."}


def test_fields_are_inherited_with_their_docstrings() -> None:
    docs = {"told": "What it is here.", "long": "Two\nlines.", "own": "Its own."}
    assert field_docs(Below) == docs
