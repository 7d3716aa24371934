"""Reader of YAML documents as plain values, with the line of each value, and their comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError

Path = tuple[str | int, ...]
ABSENT = object()
_TAG = "tag:yaml.org,2002:"
_QUANTITY = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:[eE]([-+]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


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
            # A value may start on a later line than its key.
            lines[(*path, key.value)] = key.start_mark.line + 1
        return found
    if node.id == "sequence":
        return [
            _node_value(file, item, (*path, place), lines) for place, item in enumerate(node.value)
        ]
    if _is_quantity(path):
        return node.value
    return _scalar_value(node.tag.removeprefix(_TAG), node.value)


def _is_quantity(path: Path) -> bool:
    """Return True if Kubernetes reads a quantity at ``path``, which may be a number or a text."""
    return path[-1:] == ("sizeLimit",) or (
        path[-3:-2] == ("resources",) and path[-2] in ("limits", "requests")
    )


def quantity(text: Any) -> Fraction | None:
    """Return the number that a quantity such as ``64Gi`` or ``500m`` stands for; None if none.

    Source: Kubernetes API reference, Quantity.
    """
    found = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    number = Fraction(found[1])
    if found[2] is not None:
        return number * Fraction(10) ** int(found[2])
    suffix = found[3] or ""
    if suffix.endswith("i"):
        return number * Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    return number * Fraction(10) ** _DECIMAL[suffix]


def same_quantities(found: Any) -> Callable[[Any], bool]:
    """Return a function that returns True for planned quantities equal to those of ``found``.

    ``found`` is a quantity, or a list of pairs [name, quantity].
    """

    def meaning(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [meaning(one) for one in value]
        number = quantity(value)
        return value if number is None else number

    return lambda planned: bool(meaning(planned) == meaning(found))


def _scalar_value(tag: str, text: str) -> Any:
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    if tag == "int" and re.fullmatch(r"0|[1-9][0-9]{0,8}", text):
        return int(text)
    # Kubernetes reads YAML 1.1, in which 0555 is an octal number.
    if tag == "int" and re.fullmatch(r"0o?[0-7]{1,9}", text):
        return int(text.replace("o", ""), 8)
    # Other numbers, such as 1e3, occur in no manifest and stay text.
    return text


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
