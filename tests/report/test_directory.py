"""What the commands that read an output directory get to see of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from parc.compiler.report.directory import read_directory, read_written, texts


def test_two_levels_are_read_and_deeper_what_the_lock_lists(tmp_path: Path) -> None:
    for name in ("plan.json", "a/b", "chart/templates/job.yaml", "logs/1/huge.log", "../out.of.it"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff")
    (tmp_path / "out" / "link").symlink_to("plan.json")
    listed = ["plan.json", "chart/templates/job.yaml", "chart/gone/x", "chart/x/../../../out.of.it"]
    listed += ["/etc/hosts/x", os.fspath(tmp_path / "out.of.it"), "", "x/\0/y", "y/" * 5000]
    lock = json.dumps({"files": dict.fromkeys(listed)})
    (tmp_path / "out" / "parc.lock").write_text(lock)
    found = read_directory(tmp_path / "out")
    assert list(found) == ["a/b", "chart/templates/job.yaml", "parc.lock", "plan.json"]
    assert texts(found)["a/b"] == "\ufffd"
    assert set(read_written(tmp_path / "out")) == set(found) - {"a/b"}


@pytest.mark.parametrize("lock", ["", "[]", "{}", '{"files": 3}', "[" * 100_000])
def test_whatever_stands_in_place_of_the_lock_lists_nothing(tmp_path: Path, lock: str) -> None:
    (tmp_path / "parc.lock").write_text(lock)
    assert list(read_directory(tmp_path)) == list(read_written(tmp_path)) == ["parc.lock"]


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        read_directory(tmp_path / "missing")
