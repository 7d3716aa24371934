"""Reader of YAML documents as plain values, with the line of each value, and their comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError

Path = tuple[str | int, ...]
ABSENT = object()
_TAG = "tag:yaml.org,2002:"


@frozen
class YamlDocument:
    """A YAML document as JSON types, and the line of each value."""

    value: Any
    lines: Mapping[Path, int]

    def value_at(self, *path: str | int) -> Any:
        """Return the value at ``path``; None if there is none."""
        value = self.value
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def line(self, *path: str | int) -> int:
        """Return the line of the value at ``path``, or of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


@lru_cache(maxsize=2)
def read_documents(file: str, text: str) -> tuple[YamlDocument, ...]:
    """Return the documents of the YAML text ``text``, the content of ``file``.

    The last results are cached, because several checks of the verifier read the same documents.

    Raises:
        MalformedFileError: ``text`` is not valid YAML, or repeats a key.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        nodes = list(YAML(typ="safe", pure=True).compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise MalformedFileError(file, line, f"the text is not YAML: {error.problem}") from None
    except (YAMLError, ValueError, IndexError, RecursionError) as error:
        raise MalformedFileError(file, 1, f"the text is not YAML: {error}") from None
    documents = []
    for node in nodes:
        lines: dict[Path, int] = {}
        documents.append(YamlDocument(_node_value(file, node, (), lines), lines))
    return tuple(documents)


def _node_value(file: str, node: Any, path: Path, lines: dict[Path, int]) -> Any:
    """Return the value of a YAML node; store the line of each nested value in ``lines``."""
    lines[path] = node.start_mark.line + 1
    if node.id == "mapping":
        found: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key.value, str) or key.value in found:
                raise MalformedFileError(
                    file, key.start_mark.line + 1, f"{key.value!r:.60} is repeated"
                )
            found[key.value] = _node_value(file, item, (*path, key.value), lines)
        return found
    if node.id == "sequence":
        return [
            _node_value(file, item, (*path, place), lines) for place, item in enumerate(node.value)
        ]
    return _scalar_value(node.tag.removeprefix(_TAG), node.value)


def _scalar_value(tag: str, text: str) -> Any:
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    plain = re.fullmatch(r"0|[1-9][0-9]{0,8}", text)
    # Other numbers, such as 1e3, occur in no manifest and stay text.
    return int(text) if tag == "int" and plain else text


def positive_integer_or_zero(value: Any) -> int:
    """Return ``value`` if it is an integer from 1 to ``LARGEST``, else 0."""
    return value if type(value) is int and 0 < value <= LARGEST else 0


def iterate_value_differences(
    expected: Any, found: Any, path: Path = ()
) -> Iterator[tuple[Path, Any, Any]]:
    """Yield (path, expected value, found value) of each difference.

    ABSENT stands for a missing value.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            yield from iterate_value_differences(
                expected.get(key, ABSENT), found.get(key, ABSENT), (*path, key)
            )
    elif isinstance(expected, list) and isinstance(found, list):
        pairs = zip_longest(expected, found, fillvalue=ABSENT)
        for place, (wanted, present) in enumerate(pairs):
            yield from iterate_value_differences(wanted, present, (*path, place))
    elif type(expected) is not type(found) or expected != found:
        yield path, expected, found
