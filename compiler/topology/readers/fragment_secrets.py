"""Remove values that look like secrets from an imported fragment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parc.compiler.diagnostics.secret_values import HIDDEN, hide_secrets, is_secret
from parc.compiler.topology.readers.reader_state import Fragment


def without_secrets(fragment: Fragment) -> Fragment:
    """Return ``fragment`` without values that look like secrets, with a note about each.

    Variables get their values from the environment instead. Flags of ``launch.args`` and commands
    of ``launch.setup`` are left out.
    """
    launch = fragment.spec.get("launch")
    if not isinstance(launch, Mapping):
        return replace(fragment, notes=tuple(map(hide_secrets, fragment.notes)))
    kept, notes = dict(launch), list(map(hide_secrets, fragment.notes))
    for name, value in dict(kept.get("env", {})).items():
        if isinstance(value, str) and is_secret(name, value):
            kept["env"] = {**kept["env"], name: {"from": "environment"}}
            notes.append(f"launch.env.{name} comes from the environment: it looks like a secret")
    args = _arguments_without_secrets(kept.get("args", []), notes)
    setup = [line for line in kept.get("setup", []) if hide_secrets(line) == line]
    notes += [
        f"not carried over: {hide_secrets(line)}, which contains a secret"
        for line in kept.get("setup", [])
        if line not in setup
    ]
    for key, left in (("args", args), ("setup", setup)):
        if key in kept:
            kept[key] = left
        if not left:
            kept.pop(key, None)
    spec = {key: value for key, value in fragment.spec.items() if key != "launch"}
    return replace(
        fragment, spec={**spec, **({"launch": kept} if kept else {})}, notes=tuple(notes)
    )


def _arguments_without_secrets(args: Sequence[str], notes: list[str]) -> list[str]:
    """Return the arguments without flags whose values look like secrets; add a note about each."""
    left: list[str] = []
    for word in args:
        name, equals, value = word.partition("=")
        follows = left and left[-1].startswith("-") and not word.startswith("-")
        if equals and word.startswith("-") and is_secret(name, value):
            notes.append(secret_note(name))
        elif follows and is_secret(left[-1], word):
            notes.append(secret_note(left.pop()))
        else:
            left.append(word)
    return left


def secret_note(name: str) -> str:
    """Return the note that the value of a flag is not carried over."""
    return (
        f"not carried over: {name} {HIDDEN}, which looks like a secret: "
        "set launch.env.NAME: {from: environment}"
    )
