"""Nouns to JSON types: dataclasses become mappings, tuples become lists."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def as_json(noun: Any) -> Any:
    """A tree of dict, list, str, int, float, bool and None with the same content as ``noun``."""
    if is_dataclass(noun) and not isinstance(noun, type):
        return {field.name: as_json(getattr(noun, field.name)) for field in fields(noun)}
    if isinstance(noun, tuple | list):
        return [as_json(item) for item in noun]
    if isinstance(noun, dict):
        return {str(key): as_json(value) for key, value in noun.items()}
    return noun
