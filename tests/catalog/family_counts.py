"""Read family_counts.yaml: configs with the number of parameters that transformers counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table


def counted_configs() -> list[tuple[dict[str, Any], int]]:
    """Return pairs of a config, with its model_type, and its parameter count."""
    tree = parse_table((Path(__file__).parent / "family_counts.yaml").read_text("utf-8"))
    return [
        ({"model_type": family, **keys}, count)
        for family, rows in tree.items()
        for keys, count in rows
    ]
