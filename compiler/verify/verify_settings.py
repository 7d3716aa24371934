"""Compare every setting that the emitted files contain with the decisions in ``plan.json``.

The verifiers of the backends read the settings; this module only looks up and compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import MalformedFileError, read_json
from parc.compiler.verify.verify_program import CONTEXT, cut_to_difference, shorten_for_finding

PLAN = "plan.json"
RELATIVE_TOLERANCE = 1e-9
"""Tolerance for a number that a file contains in another notation: 1e-08 for 0.00000001."""
_ABSENT = object()


@lru_cache(maxsize=2)
def read_plan(text: str) -> dict[str, Any]:
    """Return the content of ``plan.json``.

    Raises:
        MalformedFileError: the text is not JSON, or has no object ``layout`` or ``problem``.
    """
    tree = read_json(PLAN, text)
    for key in ("layout", "problem"):
        if not isinstance(tree.get(key), dict):
            raise MalformedFileError(PLAN, 1, f"the key {key!r} is missing or not an object")
    return tree


def verify_decisions(
    plan: Mapping[str, Any],
    found: Iterable[DerivedSetting],
    sink: Sink,
    artifacts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Report each setting in ``found`` whose value differs from the value in ``plan`` (A14).

    The diagnostic points to the line of the setting in its file. If the file is in ``artifacts``,
    the diagnostic also shows the text of this line.
    """
    for one in found:
        expected = planned_value(plan, one.path)
        if not _matches_plan(expected, one):
            message = difference_sentence(one, expected, artifacts.get(one.file, ""))
            sink.report("A14", message, span=Span(one.file, one.line, 1))


def _matches_plan(expected: Any, found: DerivedSetting) -> bool:
    if found.needed is not None or expected is _ABSENT:
        return False
    return is_same_value(expected, found.value) or _is_accepted(expected, found)


def difference_sentence(one: DerivedSetting, planned: Any, text: str) -> str:
    """Return a sentence with the name of a setting, its value in a file, and its planned value.

    ``text`` is the content of the file.
    """
    setting = _setting_in_file(one, text)
    if one.needed is not None:
        found, needed = cut_to_difference(str(one.value), one.needed)
        if not found:
            return f"{one.path}: the plan needs {needed}, which is not in {one.file}"
        if not needed:
            return f"{one.path}: line {one.line} has {found}, which the plan does not need"
        shown = setting if str(one.value) in setting else found
        return f"{one.path}: line {one.line} has {shown}, the plan needs {needed}"
    place = f"on line {one.line}: {setting}" if setting else f"in {one.file}"
    if planned is _ABSENT:
        return f"{PLAN} has no {one.path}, which is set {place}"
    found, expected = cut_to_difference(_value_text(one.value), _value_text(planned))
    return f"{one.path} is {expected} in {PLAN}, but {found} {place}"


def _setting_in_file(one: DerivedSetting, text: str) -> str:
    """Return the line of ``text`` that contains a setting; empty if the file omits the setting.

    If the line is too long for a finding, return the shortened setting instead.
    """
    if not one.setting and one.line == 1:
        return ""
    line = next(islice(text.split("\n"), one.line - 1, None), "").strip()
    return line if 0 < len(line) <= CONTEXT else shorten_for_finding(one.setting)


def planned_value(plan: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of ``plan``; ``_ABSENT`` if the plan has no such path."""
    value: Any = plan
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def is_same_value(expected: Any, found: Any) -> bool:
    """Return True if two JSON values are equal.

    Numbers are equal if they differ by at most ``RELATIVE_TOLERANCE``. If ``found`` is a frozenset,
    it is enough that one of its items equals ``expected``.
    """
    if isinstance(found, frozenset):
        return any(is_same_value(expected, one) for one in found)
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        try:
            return math.isclose(expected, found, rel_tol=RELATIVE_TOLERANCE)
        except OverflowError:  # an integer of several hundred digits in a damaged file
            return expected == found
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(is_same_value, expected, found))
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return expected.keys() == found.keys() and all(
            is_same_value(value, found[name]) for name, value in expected.items()
        )
    return bool(expected == found)


def _is_accepted(expected: Any, found: DerivedSetting) -> bool:
    """Return True if the planned value ``expected`` has the same effect as ``found``."""
    try:
        return found.accepts is not None and found.accepts(expected)
    except TypeError:  # a damaged plan.json, in which the value has another type
        return False


def _value_text(value: Any) -> str:
    return "not set" if value is None else repr(value)
