"""Other names of the flags of an engine, which its own parser accepts with the same meaning.

The parser tables, ``known_flags.json`` of a backend, are read from the parsers of the engines; the
emitters write only one name per flag.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _aliases(package: str) -> Mapping[str, str]:
    """Return flag -> flag of the same meaning, in the parser table of a backend.

    A flag for the opposite, such as ``--no-enable-x``, is not an alias.
    """
    if not package:
        return {}
    rows = json.loads((files(package) / "known_flags.json").read_text("utf-8"))
    found = {row["flag"]: row["means"] for row in rows if "means" in row}
    return {flag: means for flag, means in found.items() if not _is_opposite(flag, means)}


def _is_opposite(flag: str, means: str) -> bool:
    name, other = flag.lstrip("-"), means.lstrip("-")
    starts = (("no-", ""), ("disable-", "enable-"))
    return any(
        one.startswith(first) and f"{second}{one.removeprefix(first)}" == two
        for one, two in ((name, other), (other, name))
        for first, second in starts
    )


def long_flags(package: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of an engine with the name that PARC writes for each flag.

    ``package`` is the backend of the engine; without one, the arguments are returned unchanged.
    """
    aliases = _aliases(package)
    pairs = (word.partition("=") for word in words)
    return tuple(f"{aliases.get(flag, flag)}{equals}{value}" for flag, equals, value in pairs)


def accepts_aliases(package: str, words: Sequence[str]) -> Callable[[Any], bool]:
    """Return a function that returns True for planned arguments with the meaning of ``words``."""
    meaning = long_flags(package, words)
    return lambda planned: long_flags(package, planned) == meaning
