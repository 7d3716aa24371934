"""Read the settings of emitted files, and compare them with those in ``plan.json``.

A verifier reads each setting that it recognizes. ``unread_settings`` then returns all other
settings of the file, so that an unknown key is reported. The comparison only looks up and compares.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError, read_json
from parc.compiler.verify.verify_program import CONTEXT, cut_to_difference, shorten_for_finding

PLAN = "plan.json"
RELATIVE_TOLERANCE = 1e-9
"""Tolerance for a number that a file contains in another notation: 1e-08 for 0.00000001."""
_ABSENT = object()
FOREIGN = "problem.launch.args"
"""Path of the plan in reports about a setting for which the plan has no field."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]|[^\s{}\[\],:"]+')
SHOWN_CHARACTERS = 50
NESTED = "another value"
"""Text of a value that is too long for a finding."""


class EmittedSettings:
    """Settings of one file by dotted path, such as ``optimizer.params.lr``.

    A list is a single value. The object records which settings were read, so that
    ``unread_settings`` can report the others.
    """

    def __init__(self, file: str, tree: Mapping[str, Any], lines: Mapping[str, int]) -> None:
        """Store the settings in ``tree``, which is nested. ``lines`` maps dotted paths to lines."""
        self.file = file
        self.values = dict(_flatten_settings(tree, ""))
        self.lines = lines
        self._read: set[str] = set()

    def __contains__(self, path: str) -> bool:
        """Return True if the file sets ``path`` or a setting below it."""
        return path in self.values or any(one.startswith(f"{path}.") for one in self.values)

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value of the setting ``path``, and record that the setting was read.

        Return ``default`` if the file omits the setting.
        """
        self._read.add(path)
        return self.values.get(path, default)

    def positive_integer(self, path: str, default: int | None = None) -> int:
        """Return the value of the setting ``path``, which must be a positive integer.

        Raises:
            MalformedFileError: the value is not a positive integer.
        """
        value = self.get(path, default)
        if type(value) is not int or not 0 < value <= LARGEST:
            raise MalformedFileError(
                self.file, self.line(path), f"{path} is {value!r:.40}, must be a number > 0"
            )
        return value

    def line(self, path: str) -> int:
        """Return the line of the setting ``path``.

        If this line is unknown, return the line of the innermost known section around it, or else
        1.
        """
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 1)

    def text(self, path: str) -> str:
        """Return the setting ``path`` as text for findings, such as ``path = 1``.

        The text is empty if the file omits the setting.
        """
        if path not in self.values:
            return ""
        shown = f"{path} = {self.values[path]!r}"
        return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[: SHOWN_CHARACTERS - 3]}..."

    def derive(
        self,
        path: str,
        value: Any,
        setting: str = "",
        accepts: Callable[[Any], bool] | None = None,
    ) -> DerivedSetting:
        """Return a derived setting: the file implies ``value`` for ``path`` of the plan.

        Args:
            path: dotted path in the plan.
            value: value that the file implies for ``path``.
            setting: setting from which ``value`` was derived; findings point to this setting.
            accepts: returns True for other planned values with the same effect in the target.
        """
        return DerivedSetting(
            path, value, self.file, self.line(setting), self.text(setting), accepts
        )

    def derive_from(self, path: str, setting: str, default: Any = None) -> DerivedSetting:
        """Return a derived setting: ``path`` of the plan has the value of ``setting``.

        Args:
            path: dotted path in the plan.
            setting: dotted path in the file.
            default: value that the target uses if the file omits the setting.
        """
        return self.derive(path, self.get(setting, default), setting)

    def require(self, setting: str, expected: Any, default: Any = None) -> Iterator[DerivedSetting]:
        """Yield a report if the value of ``setting`` is not ``expected``.

        Use this method for a setting for which the plan has no field.
        """
        value = self.get(setting, default)
        if type(value) is not type(expected) or value != expected:
            yield self.unexpected_setting(setting, f"{setting} = {expected!r}")

    def unexpected_setting(self, setting: str, needed: str = "") -> DerivedSetting:
        """Return a report on ``setting``, which the file should not contain with this value.

        The plan has no field for this setting. ``needed`` is the setting that the file needs
        instead, if it is known.
        """
        text = self.text(setting)
        needed = needed or ("" if text else setting)
        return DerivedSetting(FOREIGN, text, self.file, self.line(setting), text, needed=needed)

    def unread_settings(self) -> Iterator[DerivedSetting]:
        """Yield a report for each setting in the file that the verifier has not read."""
        for setting in self.values:
            if setting not in self._read:
                yield self.unexpected_setting(setting)


def translate_name(names: Mapping[Any, Any], value: Any) -> Any:
    """Return the name that a plan uses for ``value``.

    ``names`` maps values in the file to names in the plan. Return ``value`` unchanged if ``names``
    does not contain it.
    """
    # Lists and mappings of a damaged file cannot be keys; False must not be looked up as 0.
    return names.get(value, value) if isinstance(value, str) else value


def product_of_numbers(*values: Any) -> float | None:
    """Return the product of ``values``.

    Return None if a value is not a number or if the product overflows.
    """
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in values):
        return None
    try:
        return math.prod(map(float, values))
    except OverflowError:
        return None


def json_settings(file: str, text: str) -> EmittedSettings:
    """Return the settings of a JSON file; raise MalformedFileError if it is not an object."""
    return EmittedSettings(file, read_json(file, text), json_lines(text))


def yaml_settings(file: str, text: str) -> EmittedSettings:
    """Return the settings of a YAML file, read as YAML 1.1, which Python programs support.

    Raises:
        MalformedFileError: the text is not YAML, or not a mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    try:
        node = yaml.compose(text)
        # ruamel warns of 1e-5, which has no dot and is therefore no number in YAML 1.1.
        with warnings.catch_warnings(action="ignore"):
            tree = yaml.constructor.construct_document(node) if node is not None else None
    except (YAMLError, RecursionError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        reason = error.problem if isinstance(error, MarkedYAMLError) else type(error).__name__
        line = mark.line + 1 if mark is not None else 1
        raise MalformedFileError(file, line, f"the text is not YAML: {reason}") from None
    if not isinstance(tree, dict):
        raise MalformedFileError(file, 1, "the text is not a YAML mapping")
    return EmittedSettings(file, tree, dict(_yaml_lines(node, "")))


def _yaml_lines(node: Any, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted path, line) of all keys of a mapping node."""
    for key, value in node.value:
        path = f"{prefix}{_field_name_in_path(str(key.value))}"
        yield path, key.start_mark.line + 1
        if isinstance(value.value, list) and value.value and isinstance(value.value[0], tuple):
            yield from _yaml_lines(value, f"{path}.")


def _flatten_settings(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        path = f"{prefix}{_field_name_in_path(str(name))}"
        if isinstance(value, Mapping) and value:
            yield from _flatten_settings(value, f"{path}.")
        else:
            yield path, value


def _field_name_in_path(name: str) -> str:
    # Quoted, because {"a.b": 1} and {"a": {"b": 1}} are different settings.
    return repr(name) if "." in name else name


def json_lines(text: str) -> dict[str, int]:
    """Return the line of each key in ``text``, by dotted path; ``text`` must be valid JSON.

    Keys inside lists are left out, because a list is a single setting.
    """
    found: dict[str, int] = {}
    # Per open object its path so far; None for an object or list inside a list.
    open_paths: list[str | None] = []
    line, key = 1, ""
    previous = ""
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
            continue
        if token in "{[":
            parent = open_paths[-1] if open_paths else ""
            inside = None if parent is None else f"{parent}.{key}".lstrip(".") if key else parent
            open_paths.append(inside if token == "{" else None)
            key = ""
        elif token in "}]":
            open_paths.pop()
        elif token == ":" and open_paths[-1] is not None:
            key = _field_name_in_path(json.loads(previous))
            found[f"{open_paths[-1]}.{key}".lstrip(".")] = line
        previous = token
    return found


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


def verify_settings(
    plan: Mapping[str, Any],
    settings: Iterable[DerivedSetting],
    sink: Sink,
    artifacts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Report each of ``settings`` whose value differs from the value in ``plan`` (A14).

    The diagnostic points to the line of the setting in its file. If the file is in ``artifacts``,
    the diagnostic also shows the text of this line.
    """
    for setting in settings:
        expected = planned_value(plan, setting.path)
        if not _matches_plan(expected, setting):
            message = difference_sentence(setting, expected, artifacts.get(setting.file, ""))
            is_foreign = setting.path == FOREIGN or expected is _ABSENT
            name = "it" if is_foreign else _spec_path(setting.path)
            finding = Finding(message, help=f"to change {name}, edit the spec and compile again")
            sink.report("A14", finding, span=Span(setting.file, setting.line, 1))


def _matches_plan(expected: Any, setting: DerivedSetting) -> bool:
    if setting.needed is not None or expected is _ABSENT:
        return False
    return is_same_value(expected, setting.value) or _is_accepted(expected, setting)


def difference_sentence(setting: DerivedSetting, planned: Any, text: str) -> str:
    """Return a sentence with the name of a setting, its value in a file, and its planned value.

    ``text`` is the content of the file.
    """
    written = _setting_in_file(setting, text)
    if setting.needed is not None:
        # The plan has no field for a setting of the target itself.
        field = "" if setting.path == FOREIGN else f"{_spec_path(setting.path)}: "
        found, needed = cut_to_difference(str(setting.value), setting.needed)
        if not found:
            return f"{field}the plan needs {needed}, which is not in {setting.file}"
        if not needed:
            return f"{field}line {setting.line} has {found}, which the plan does not need"
        shown = written if str(setting.value) in written else found
        return f"{field}line {setting.line} has {shown}, the plan needs {needed}"
    if planned is _ABSENT:
        place = f"on line {setting.line}: {written}" if written else f"in {setting.file}"
        return f"{PLAN} has no {setting.path}, which is set {place}"
    place = f"line {setting.line} has {written}" if written else f"{setting.file} does not set it"
    found, expected = cut_to_difference(_value_text(setting.value), _value_text(planned))
    if setting.stated and NESTED in (found, expected):
        return f"{_spec_path(setting.path)}: the value in {setting.file} differs from the plan"
    if setting.stated:
        return f"{_spec_path(setting.path)}: {setting.file} has {found}, the plan has {expected}"
    word = re.escape(found.strip("'\""))
    is_shown = re.search(rf"(?<![\w.-]){word}(?![\w-])", written) is not None
    means = "" if is_shown else f" (meaning {found})"
    return f"{_spec_path(setting.path)}: {place}{means}, the plan has {expected}"


def _spec_path(path: str) -> str:
    """Return the path in ``plan.json`` as in the spec, such as ``job.learning_rate``."""
    return path.removeprefix("problem.")


def _setting_in_file(setting: DerivedSetting, text: str) -> str:
    """Return the line of ``text`` that contains a setting; empty if the file omits the setting.

    If the line is too long for a finding, return the shortened setting instead.
    """
    if not setting.setting and setting.line == 1:
        return ""
    line = next(islice(text.split("\n"), setting.line - 1, None), "").strip().rstrip(",")
    return line if 0 < len(line) <= CONTEXT else shorten_for_finding(setting.setting)


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


def _is_accepted(expected: Any, setting: DerivedSetting) -> bool:
    """Return True if the planned value ``expected`` has the same effect as ``setting``."""
    try:
        return setting.accepts is not None and setting.accepts(expected)
    except (TypeError, KeyError, ValueError):  # a damaged plan.json
        return False


def _value_text(value: Any) -> str:
    """Return a value as text; nested values, such as the split into stages, are only named."""
    if value is None:
        return "not set"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    nested = isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and any(isinstance(one, list | Mapping) for one in value)
    )
    return NESTED if nested else repr(value)
