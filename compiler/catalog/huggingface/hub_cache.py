"""Look-up of a model id of the Hugging Face hub in the cache on this machine, without network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from parc.compiler.diagnostics import Finding

_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96})(?:#([\w.]+))?", re.ASCII)
_FILE_ENDINGS = (".json", ".yaml", ".yml")
_LARGEST_BYTES = 4_000_000


def split_hub_id(name: str) -> tuple[str, str] | None:
    """Return (model id, key) of a name such as ``Qwen/Qwen3-8B`` or ``ORG/NAME#text_config``.

    The key is empty if the name has no ``#``. Returns None for the path of a file, which starts
    with ``.`` or ``/``, has several slashes, or has an ending such as ``.json``.
    """
    found = _HUB_ID.fullmatch(name)
    if found is None or found[1].endswith(_FILE_ENDINGS):
        return None
    return found[1], found[2] or ""


def cached_config(
    hub_id: str, environment: Mapping[str, str] = os.environ, file: str = "config.json"
) -> str | None:
    """Return the text of ``file`` of a model in the cache of the hub; None if it is absent.

    The revision is the one that ``main`` had when it was downloaded, or the only one in the cache.
    """
    folder = _cache_folder(environment) / f"models--{hub_id.replace('/', '--')}"
    try:
        snapshots = [one.name for one in (folder / "snapshots").iterdir()]
        main = folder / "refs" / "main"
        if main.is_file():
            snapshots = [main.read_text("utf-8").strip()]
        if len(snapshots) != 1:
            return None
        with (folder / "snapshots" / snapshots[0] / file).open("rb") as opened:
            return opened.read(_LARGEST_BYTES + 1).decode("utf-8-sig")
    except (OSError, ValueError):  # ValueError: not UTF-8
        return None


def _cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in which huggingface_hub stores models (its ``constants.HF_HUB_CACHE``)."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name]).expanduser()
    cache = Path(environment.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(environment.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def missing_config_finding(name: str, hub_id: str, listed: str | None) -> Finding:
    """Return the finding that ``name`` is neither a file nor a downloaded model of the hub.

    ``listed`` is the catalog's model with this repository, if there is one.
    """
    return Finding(
        f"{name} is neither a file, nor a model in the Hugging Face cache of this machine",
        "PARC reads the config.json of this model, and never uses the network",
        help=f"if it is a model of the Hugging Face hub, run `hf download {hub_id} config.json`; "
        "for a model with restricted access, run `hf auth login` first"
        + (f"; the catalog describes its base model as {listed}" if listed else ""),
        fix=f"model: {listed}" if listed else "",
    )
