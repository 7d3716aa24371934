"""Compiled templates are stored beside the byte code of modules, and used for the same source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment, FileSystemLoader

from parc.backends.shared.compiled_templates import CompiledTemplates


def render(folder: Path, options: str = "") -> str:
    """Render the template in ``folder`` with a new environment; "other" trims blocks."""
    cache = CompiledTemplates(options)
    is_other = options == "other"
    jinja = Environment(
        loader=FileSystemLoader(folder), bytecode_cache=cache, trim_blocks=is_other, autoescape=True
    )
    return jinja.get_template("a.txt.j2").render(x=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt.j2").write_text("{% if x %}\na{{ x }}{% endif %}")
    return source


def stored(folder: Path) -> list[Path]:
    return [path for path in (folder.parent / "cache").rglob("*") if path.is_file()]


def test_a_stored_template_is_not_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert render(folder) == "\na1"
    assert len(stored(folder)) == 1
    monkeypatch.setattr(Environment, "compile", None)
    assert render(folder) == "\na1"


def test_a_changed_template_or_option_is_compiled_again(folder: Path) -> None:
    assert render(folder) == "\na1"
    assert render(folder, "other") == "a1"
    (folder / "a.txt.j2").write_text("b{{ x }}")
    assert render(folder) == "b1"


@pytest.mark.parametrize("content", [b"", b"j2", b"\0" * 100])
def test_a_damaged_file_is_compiled_again(folder: Path, content: bytes) -> None:
    render(folder)
    stored(folder)[0].write_bytes(content)
    assert render(folder) == "\na1"


def test_nothing_is_stored_where_python_stores_no_byte_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render(folder) == "\na1"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(folder / "a.txt.j2"))  # not a folder
    assert render(folder) == "\na1"
    assert not stored(folder)


def test_templates_without_a_file_are_compiled(folder: Path) -> None:
    cache = CompiledTemplates("")
    jinja = Environment(loader=DictLoader({"b": "{{ x }}"}), bytecode_cache=cache, autoescape=True)
    assert jinja.get_template("b").render(x=2) == "2"
