"""Compare every setting that the emitted files contain with the decisions in ``plan.json``.

The verifiers of the backends read the settings; this module only looks up and compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from parc.backends.verifier import Decision
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import Malformed, read_json

PLAN = "plan.json"
RELATIVE_TOLERANCE = 1e-9
"""Tolerance for a number that a file contains in another notation: 1e-08 for 0.00000001."""
SHOWN_CHARACTERS = 60
_ABSENT = object()


@lru_cache(maxsize=2)
def read_plan(text: str) -> dict[str, Any]:
    """Return the content of ``plan.json``; raise Malformed if it has no layout or no problem."""
    tree = read_json(PLAN, text)
    for key in ("layout", "problem"):
        if not isinstance(tree.get(key), dict):
            raise Malformed(PLAN, 1, f"{key} is missing or not an object")
    return tree


def verify_decisions(plan: Mapping[str, Any], found: Iterable[Decision], sink: Sink) -> None:
    """Report each setting in ``found`` that differs from ``plan`` (A14).

    The settings were read from emitted files; the diagnostic points to the line in the file.
    """
    for one in found:
        expected = planned_value(plan, one.path)
        if expected is _ABSENT:
            message, label = f"{PLAN} has no {one.path}", f"{one.file} sets it"
        elif same_value(expected, one.value) or _is_accepted(expected, one):
            continue
        else:
            message = (
                f"{one.path} is {_as_text(expected)} in {PLAN}, but {_as_text(one.value)} here"
            )
            label = one.setting or "not set here, so the default of the target applies"
        sink.report("A14", Finding(message, label), span=Span(one.file, one.line, 1))


def planned_value(plan: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of ``plan``; the sentinel ``_ABSENT`` if there is none."""
    value: Any = plan
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def same_value(expected: Any, found: Any) -> bool:
    """Return True if two JSON values are equal.

    Numbers are equal if they differ by at most ``RELATIVE_TOLERANCE``. A frozenset equals each of
    its values.
    """
    if isinstance(found, frozenset):
        return any(same_value(expected, one) for one in found)
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        try:
            return math.isclose(expected, found, rel_tol=RELATIVE_TOLERANCE)
        except OverflowError:  # an integer of several hundred digits in a damaged file
            return expected == found
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(same_value, expected, found))
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return expected.keys() == found.keys() and all(
            same_value(value, found[name]) for name, value in expected.items()
        )
    return bool(expected == found)


def _is_accepted(expected: Any, found: Decision) -> bool:
    """Return True if the target behaves in the same way with ``expected`` as with ``found``."""
    try:
        return found.accepts is not None and found.accepts(expected)
    except TypeError:  # a damaged plan.json, in which the value has another type
        return False


def _as_text(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
