"""The fast parser of PARC's own tables gives the same result as ruamel."""

from __future__ import annotations

from pathlib import Path

import pytest
import ruamel.yaml
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.property_settings import examples

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(
    path for package in ("backends", "compiler") for path in (ROOT / package).rglob("*.yaml")
)
PIECES = [
    *("a", "key", "1", "0.5", "2e-6", "07", "1_0", "2024-04-18", "0x1f", "true", "null", "~", ".5"),
    *(": ", ":", ", ", "[", "]", "{", "}", '"', "'", "#", " #", "- ", "-", ">-", "|", "\n", "\n  "),
    *("&x ", "*x", "!", "%", "=", "<<", "?", "...", "---", "\\", "\u00e9", " ", "\t"),
]


def read_by_ruamel(text: str) -> object:
    return ruamel.yaml.YAML(typ="safe", pure=True).load(text)


def outcome(text: str, read: object) -> str:
    """Return the value that a reader returns for ``text``, or "refused" if it raises."""
    try:
        return repr(read(text))  # type: ignore[operator]
    except Exception:
        return "refused"


def test_every_table_is_read_as_ruamel_reads_it() -> None:
    assert len(TABLES) > 200
    for path in TABLES:
        text = path.read_text("utf-8")
        assert repr(parse_table(text)) == repr(read_by_ruamel(text)), path


def test_no_table_needs_ruamel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ruamel.yaml, "YAML")
    for path in TABLES:
        parse_table(path.read_text("utf-8"))


@examples(100)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text_is_read_as_ruamel_reads_it(text: str) -> None:
    assert outcome(text, parse_table) == outcome(text, read_by_ruamel)


@examples(100)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_any_value_of_a_key_is_read_as_ruamel_reads_it(text: str) -> None:
    assert outcome(f"key: {text}\n", parse_table) == outcome(f"key: {text}\n", read_by_ruamel)
