"""Tests of the readers of an output directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from parc.compiler.report.json.output_directory import (
    MAX_UNLISTED_BYTES,
    decode_files,
    read_directory,
    read_locked_files,
)


def test_known_files_and_files_of_the_lock_are_read(
    tmp_path: Path,
) -> None:
    names = ("plan.json", "slurm/b", "chart/templates/job.yaml", "slurm/1/x.log", "logs/huge.log")
    for name in (*names, "notes.txt", "../out.of.it"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff")
    (tmp_path / "out" / "link").symlink_to("plan.json")
    listed = ["plan.json", "chart/templates/job.yaml", "chart/gone/x", "chart/x/../../../out.of.it"]
    listed += ["/etc/hosts/x", os.fspath(tmp_path / "out.of.it"), "", "x/\0/y", "y/" * 5000]
    lock = json.dumps({"files": dict.fromkeys(listed)})
    (tmp_path / "out" / "parc.lock").write_text(lock)
    found = read_directory(tmp_path / "out")
    assert list(found) == ["chart/templates/job.yaml", "parc.lock", "plan.json", "slurm/b"]
    assert decode_files(found)["slurm/b"] == "\ufffd"
    assert set(read_locked_files(tmp_path / "out")) == set(found) - {"slurm/b"}


@pytest.mark.parametrize("lock", ["", "[]", "{}", '{"files": 3}', "[" * 100_000])
def test_an_invalid_lock_lists_nothing(tmp_path: Path, lock: str) -> None:
    (tmp_path / "parc.lock").write_text(lock)
    assert list(read_directory(tmp_path)) == list(read_locked_files(tmp_path)) == ["parc.lock"]


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        read_directory(tmp_path / "missing")


def test_a_large_file_outside_the_lock_is_listed_without_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    with (tmp_path / "vllm/core.1234").open("wb") as file:
        file.truncate(MAX_UNLISTED_BYTES + 1)
    assert read_directory(tmp_path) == {"vllm/core.1234": b""}


def test_an_unreadable_folder_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "parc.lock").write_text('{"files": {"vllm/serve.sh": ""}}')
    real = Path.is_file

    def hidden(path: Path) -> bool:
        if path.parent.name == "vllm":
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", hidden)
    with pytest.raises(PermissionError):
        read_directory(tmp_path)
    assert list(read_locked_files(tmp_path)) == ["parc.lock"]
