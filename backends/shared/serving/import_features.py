"""Import of LoRA adapters and speculative decoding from the command of a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field, whole_number
from parc.compiler.tools.lint.complete_facts import catalog_name
from parc.compiler.topology.readers.reader_state import Reading


@frozen
class LoraFlags:
    """Flags of an engine for LoRA adapters, and its default."""

    enable: str
    adapters: str
    active: str
    """Flag with the number of adapters in GPU memory."""
    rank: str
    default_active: int
    """Value of ``active`` if the command does not have the flag."""
    without_adapter: int = 0
    """1 if ``active`` also counts the requests without an adapter."""
    host: str = ""
    """Flag with the number of adapters in host memory, for which PARC writes that of all adapters;
    empty if the engine has none."""


def known_flags(flags: Iterable[LaunchFlag]) -> dict[str, LaunchFlag]:
    """Return name -> flag for the flags whose values are known."""
    return {flag.name: flag for flag in flags if not any(word.dynamic for word in flag.values)}


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in ``text``; None if it is something else."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def read_lora(flags: list[LaunchFlag], names: LoraFlags, reading: Reading) -> list[LaunchFlag]:
    """Set ``job.lora``; return the flags that a spec cannot express.

    Without names and paths of all adapters, the result contains all flags of LoRA.
    """
    known = known_flags(flags)
    listed = known.get(names.adapters)
    adapters = _adapters([word.text for word in listed.values] if listed is not None else [])
    if listed is None or adapters is None or names.enable not in known:
        return flags
    lora: dict[str, Any] = {"adapters": adapters}
    taken = {names.enable, names.adapters}
    active, rank = (
        whole_number(known[one].value) if one in known else None
        for one in (names.active, names.rank)
    )
    most = (names.default_active if active is None else active) - names.without_adapter
    if most > 0 and (active is not None or names.active not in {flag.name for flag in flags}):
        lora["active"] = min(most, len(adapters))
        taken.add(names.active)
    if rank:
        lora["rank"] = rank
        taken.add(names.rank)
    if names.host in known and whole_number(known[names.host].value) == len(adapters):
        taken.add(names.host)
    set_spec_field(reading, "job.lora", lora, listed)
    return without(flags, taken)


def _adapters(words: list[str]) -> dict[str, str] | None:
    """Return name -> path of the adapters in NAME=PATH or JSON; None if there are other words."""
    found: dict[str, str] = {}
    for word in words:
        tree = json_object(word)
        if tree is not None:
            known = tree.keys() <= {"name", "path"} or tree.keys() <= {"lora_name", "lora_path"}
            pair = [tree.get(one, tree.get(f"lora_{one}")) for one in ("name", "path")]
        else:
            name, equals, path = word.partition("=")
            known, pair = bool(equals), [name, path]
        if not known or not all(isinstance(one, str) and one for one in pair):
            return None
        found[str(pair[0])] = str(pair[1])
    return found or None


def set_speculative(
    method: str, tokens: int | None, draft: str | None, flag: LaunchFlag, reading: Reading
) -> None:
    """Set ``job.speculative`` from a method of a spec, the number of draft tokens, and the draft.

    The architecture of a small model is set if the catalog contains it.
    """
    found: dict[str, Any] = {"method": method}
    if tokens is not None:
        found["tokens"] = tokens
    if draft:
        found["checkpoint"] = draft
    if method == "draft-model" and draft and (model := catalog_name(draft)) is not None:
        found["model"] = model
    set_spec_field(reading, "job.speculative", found, flag)


def without(flags: Iterable[LaunchFlag], taken: Iterable[str]) -> list[LaunchFlag]:
    """Return ``flags`` except those with a name in ``taken``."""
    names = set(taken)
    return [flag for flag in flags if flag.name not in names]


def method_of(names: Mapping[str, str], text: str) -> str | None:
    """Return the method of a spec for an engine's name of it, in any case; None if unknown."""
    return next((method for method, name in names.items() if name.lower() == text.lower()), None)
