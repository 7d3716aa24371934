"""Report the config keys that no reader of a family has read (``known_keys.yaml``)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.catalog.huggingface.keys import Keys, shown
from parc.compiler.diagnostics.table_yaml import parse_table

_HARMLESS_ENDINGS = ("_token_id", "dropout", "_pdrop")


def note_unread(keys: Keys) -> None:
    """Record one note for each key that is set but was not read.

    K04: users may expect an effect; K02: it changes the structure of some families; K05: unknown.
    """
    types = keys.config.get("layer_types")
    if isinstance(types, list) and all(name == "full_attention" for name in types):
        keys.ignore(("layer_types",))  # full attention in all layers is the default
    known = _known_keys()
    for key in keys.unread():
        name = key.rpartition(".")[2] if key not in keys.config else key
        if name in known["no_effect"]:
            keys.note("K04", key, f"{key} is not used: {known['no_effect'][name]}")
        elif name in known["structural"]:
            keys.note(
                "K02", key, f"{key} changes the structure; it is not supported in this family"
            )
        elif name not in known["harmless"] and not name.endswith(_HARMLESS_ENDINGS):
            keys.note("K05", key, f"unknown key {shown(key)}; PARC ignores it")


@cache
def _known_keys() -> dict[str, Any]:
    path = files("parc.compiler.catalog.huggingface") / "known_keys.yaml"
    tree: dict[str, Any] = parse_table(path.read_text("utf-8"))
    return tree
