"""Checkpoints of the catalog's models on the Hugging Face hub, from ``checkpoints.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from parc.compiler.diagnostics.table_yaml import parse_table


@cache
def catalog_checkpoints() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return model of the catalog -> use (base, instruct) -> format -> repository."""
    text = (files("parc.compiler.catalog") / "checkpoints.yaml").read_text("utf-8")
    table: dict[str, dict[str, dict[str, str]]] = parse_table(text)
    return table


def catalog_model_of(repository: str) -> str | None:
    """Return the catalog's model whose checkpoint is ``repository``; None if there is none."""
    for model, uses in catalog_checkpoints().items():
        if any(repository in forms.values() for forms in uses.values()):
            return model
    return None
