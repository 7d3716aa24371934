"""The parser of JSON texts gives the events of ruamel.yaml."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ruamel.yaml
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.reading import yaml_tree
from parc.compiler.spec.reading.json_events import json_events
from tests.property_settings import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
PIECES = [
    *('"a"', '"k": ', '"k":', "1", "-2.5e-3", "1e5", "01", "-", "true", "null", "Null", "1:2", "x"),
    *("{", "}", "[", "]", ", ", ",", ": ", ":", " ", "\n", "\n ", "\t", "#", " # x", "&a ", "*a"),
    *('"\\u00e9"', '"\\ud83d\\ude00"', '"\\/"', '"\\x41"', '"\u00e9"', '"a\nb"', "---", "\ufeff"),
]


def fields_of(event: Any) -> tuple[object, ...]:
    marks = (event.start_mark, event.end_mark)
    names = ("value", "style", "tag", "anchor", "flow_style")
    values = tuple(getattr(event, name, None) for name in names)
    return type(event).__name__, *((mark.line, mark.column) for mark in marks), *values


def events_of_ruamel(text: str) -> list[Any]:
    events = ruamel.yaml.YAML(typ="safe", pure=True).parse(text)
    return [one for one in events if not type(one).__name__.startswith(("Stream", "Document"))]


def assert_same_events(text: str) -> None:
    found = json_events(text)
    if found is not None:
        assert [*map(fields_of, found)] == [*map(fields_of, events_of_ruamel(text))]


@examples(30)
@given(VALUES.map(lambda value: {"root": value}), st.sampled_from((None, 0, 1, 4)))
def test_any_json_text_has_the_events_of_ruamel(value: Any, indent: int | None) -> None:
    assert_same_events(json.dumps(value, indent=indent))


@examples(75)
@given(st.sampled_from("{["), st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_any_text_has_the_events_of_ruamel_or_is_left_to_it(first: str, text: str) -> None:
    assert_same_events(f"{first}{text}{'}' if first == '{' else ']'}")


@pytest.mark.parametrize("text", ['{"a": 1}\n', '[\n "\\u00e9\\n", -2.5e-3, {"a": {}}\n]'])
def test_json_is_read_without_ruamel(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.delattr(ruamel.yaml, "YAML")
    tree = yaml_tree.read_tree(text, "spec.json", Sink())
    assert tree is not None
    assert tree.value == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"a":1}',
            '{"a": 1,}',
            '{"a": \t1}',
            '{"a": 01}',
            '{"a": .5}',
            '{"\u00e9": 1}',
            '{"a" 1}',
        ),
        *('{"a": "\\ud83d\\ude00"}', "{a: 1}", '{"a": 1} # x', '{"a": 1}{', "a: 1", "[" * 100_000),
    ],
)
def test_other_texts_are_left_to_ruamel(text: str) -> None:
    assert json_events(text) is None
