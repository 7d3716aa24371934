"""Addresses of models on the Hugging Face hub."""

from __future__ import annotations

import re

HUB = "https://huggingface.co/"
_REPOSITORY = re.compile(rf"{re.escape(HUB)}([\w.-]+/[\w.-]+)/?")


def hub_repository(source: str) -> str:
    """Return the repository (ORG/NAME) that the address ``source`` names; "" if it names none."""
    found = _REPOSITORY.fullmatch(source.strip())
    return found[1] if found else ""
