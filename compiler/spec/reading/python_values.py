"""JSON text of specs that Python programs build, with numbers of other libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

MOST_LEVELS = 100
"""Largest depth of nested values. A spec has less than 20 levels; a value that contains itself has
no end."""


class UnsupportedValueError(TypeError):
    """Error: a spec contains an object that is not a value of YAML."""

    def __init__(self, path: str, value: object) -> None:
        """Store the path of the value in the spec, and the name of its type."""
        self.path = path
        self.type_name = f"{type(value).__module__}.{type(value).__qualname__}"
        super().__init__(f"{path or 'the spec'} has a value of the type {self.type_name}")


def json_text(value: object, path: str = "", indent: int | None = None) -> str:
    """Return ``value`` as JSON, which is valid YAML. ``path`` is its path in the spec.

    Numbers and arrays of numpy, pandas or torch become plain numbers and lists, and paths of files
    become texts.

    Raises:
        UnsupportedValueError: ``value`` contains an object of another type.
    """
    return json.dumps(_plain_value(value, path, MOST_LEVELS), indent=indent)


def _plain_value(value: Any, path: str, levels: int) -> Any:
    """Return ``value`` as JSON types, with at most ``levels`` levels."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if levels == 0:
        raise UnsupportedValueError(path, value)
    if isinstance(value, Mapping):
        return {
            _plain_value(key, path, 0): _plain_value(
                item, f"{path}.{key}" if path else str(key), levels - 1
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _plain_value(item, f"{path}[{place}]", levels - 1) for place, item in enumerate(value)
        ]
    return _plain_object(value, path, levels)


def _plain_object(value: Any, path: str, levels: int) -> Any:
    """Return a number, array or path of another library as JSON types."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # numpy and torch have this method for numbers and arrays; their booleans are not numbers.
    if callable(convert := getattr(value, "tolist", None)) and not isinstance(value, type):
        return _plain_value(convert(), path, levels - 1)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise UnsupportedValueError(path, value)
