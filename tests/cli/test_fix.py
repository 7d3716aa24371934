"""Tests of ``parc check --fix``, ``--diff`` and ``--watch``."""

from __future__ import annotations

from pathlib import Path

import pytest

from parc.compiler.cli.commands.check import _watch
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.fix_spec import fix_spec
from tests.cli.specs import parc, write_spec

BAD = (
    ("layout: {tp: 8,", "layout: {tp: 3,"),
    ("model: llama-3-8b\n", "model: lama-3-8b   # ours\n"),
)
FIXED = (BAD[0], ("model: llama-3-8b\n", "model: llama-3-8b   # ours\n"))


def test_fix_writes_all_fixes_and_keeps_comments(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, *BAD)
    Path(spec).chmod(0o600)
    result = parc("check", spec, "--fix")
    text = Path(spec).read_text("utf-8")
    assert result.exit_code == 0, result.output
    assert f"fixed {spec}:3 [PARC-K01]: model: llama-3-8b\n" in result.stdout
    assert "[PARC-D01]: layout.tp: " in result.stdout
    assert "model: llama-3-8b   # ours\n" in text
    assert "tp: 3" not in text
    assert Path(spec).stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["spec.yaml"]
    assert parc("check", spec).exit_code == 0


def test_a_renamed_key_keeps_its_place_its_quotes_and_its_comment(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, ("  node: dgx-h100\n", "  nod: dgx-h100   # ours\n"))
    text = Path(spec).read_text("utf-8")
    assert parc("check", spec, "--fix").exit_code == 0
    assert Path(spec).read_text("utf-8") == text.replace("  nod: ", "  node: ")


def test_diff_shows_the_fixes_and_writes_nothing(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, *BAD)
    before = Path(spec).read_text("utf-8")
    result = parc("check", spec, "--diff")
    assert result.exit_code == 1
    assert "-model: lama-3-8b   # ours\n+model: llama-3-8b   # ours\n" in result.stdout
    assert Path(spec).read_text("utf-8") == before
    good = write_spec(tmp_path)
    assert parc("check", good, "--diff").exit_code == 0
    assert parc("check", good, "--diff").stdout == ""


def test_errors_without_a_fix_remain(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, BAD[1], ("model: lama-3-8b", "model: no-such-model"))
    before = Path(spec).read_text("utf-8")
    result = parc("check", spec, "--fix")
    assert result.exit_code == 1
    assert "error[PARC-K01]" in result.stdout
    assert Path(spec).read_text("utf-8") == before


@pytest.mark.parametrize("words", [("-", "--fix"), ("x.yaml", "--fix", "--set", "layout.tp=1")])
def test_fix_needs_a_file_that_contains_all_settings(words: tuple[str, ...]) -> None:
    assert parc("check", *words).exit_code == 2


def test_fixes_that_undo_each_other_end(tmp_path: Path) -> None:
    """Two findings whose fixes cause the other finding: each text is tried once."""

    def check(source: SpecSource) -> Sink:
        sink = Sink()
        code, path, value = ("D01", "a", 2) if "a: 1" in source.text else ("D02", "b", 1)
        sink.report(code, Finding("bad", fix=f"a: {value}"), at=path)
        return sink

    found = fix_spec(SpecSource("s", "a: 1\n", tmp_path), check)
    assert found.text == "a: 2\n"
    assert [one.code for one in found.fixed] == ["PARC-D01"]
    assert [one.code for one in found.remaining.diagnostics] == ["PARC-D02"]


def test_watch_checks_again_after_each_change(tmp_path: Path) -> None:
    spec = Path(write_spec(tmp_path))
    changes = iter([lambda: None, lambda: spec.write_text("parc: 1\n"), lambda: spec.unlink()])
    seen: list[bool] = []

    def sleep(_: float) -> None:
        change = next(changes, None)
        if change is None:
            raise KeyboardInterrupt
        change()

    _watch([str(spec)], lambda: seen.append(spec.exists()), sleep)
    assert seen == [True, True, False]
