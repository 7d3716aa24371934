"""Tests of the writer: outputs are replaced as a whole, and only if PARC wrote them."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import time
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

from parc.compiler import writer
from parc.compiler.ir import Artifact
from parc.compiler.writer import WriteRefused, differing_paths, write_artifacts


def tree(turn: int) -> tuple[Artifact, ...]:
    """Return files with the content ``turn``; the name of one of them contains it too."""
    names = ("parc.lock", "plan.json", "slurm/job.sbatch", "megatron/args.sh", f"vllm/{turn}")
    return tuple(Artifact(name, f"{turn}\n" * 50, name.endswith("sh")) for name in names)


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def expected(turn: int) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in tree(turn)}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_write_replaces_the_output_and_leaves_no_hidden_folder(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    write_artifacts(tree(1), out)
    write_artifacts(tree(2), out)
    assert contents(out) == expected(2)
    assert hidden(out.parent) == []


def test_modes_follow_the_artifact(tmp_path: Path) -> None:
    write_artifacts(tree(1), tmp_path / "out")
    assert (tmp_path / "out/megatron/args.sh").stat().st_mode & 0o111
    assert not (tmp_path / "out/plan.json").stat().st_mode & 0o111


def test_without_atomic_exchange_two_renames_replace_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "exchange_paths", lambda first, second: False)
    write_artifacts(tree(1), tmp_path / "out")
    write_artifacts(tree(2), tmp_path / "out")
    assert contents(tmp_path / "out") == expected(2)
    assert hidden(tmp_path) == []


def test_an_exchange_swaps_two_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for path in (first, second):
        path.mkdir()
        (path / path.name).touch()
    if not writer.exchange_paths(first, second):
        pytest.skip("this file system has no atomic exchange")
    assert (first / "b").exists()
    assert (second / "a").exists()


def test_an_exchange_with_a_missing_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="No such file"):
        writer.exchange_paths(tmp_path / "a", tmp_path / "b")


def test_an_old_tree_without_a_successor_is_restored(tmp_path: Path) -> None:
    write_artifacts(tree(1), tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.old")
    with pytest.raises(WriteRefused):
        write_artifacts((*tree(2), Artifact("nul\udc00", "x\n")), tmp_path / "out")
    assert contents(tmp_path / "out") == expected(1)


def test_only_leftovers_of_killed_runs_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.new-1-0" / "x").mkdir(parents=True)
    (tmp_path / ".out.other").mkdir()
    (tmp_path / ".outer.new-1-0").mkdir()
    write_artifacts(tree(1), tmp_path / "out")
    assert sorted(hidden(tmp_path)) == [".out.other", ".outer.new-1-0"]


@pytest.mark.parametrize(
    "path",
    ["../x", "/x", "a/../x", "", ".", "a//b", "./a", "a\\b", "C:x", "a\nb", "a/", "parc.lock/x"],
)
def test_a_path_that_may_leave_the_directory_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(WriteRefused):
        write_artifacts((*tree(1), Artifact(path, "x\n")), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_duplicate_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(WriteRefused, match="two output files"):
        write_artifacts(tree(1) + tree(1), tmp_path / "out")


def test_a_directory_that_parc_did_not_write_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(WriteRefused, match=r"has no parc\.lock"):
        write_artifacts(tree(1), tmp_path)
    assert contents(tmp_path) == {"thesis.tex": "years of work"}


def test_logs_in_an_output_directory_are_not_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_artifacts(tree(1), out)
    (out / "logs").mkdir()
    with pytest.raises(WriteRefused, match="contains logs, which PARC did not write"):
        write_artifacts(tree(2), out)
    assert (out / "logs").is_dir()


def test_an_empty_directory_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_artifacts(tree(1), tmp_path / "out")
    assert contents(tmp_path / "out") == expected(1)


def test_a_file_instead_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(WriteRefused, match="is a file"):
        write_artifacts(tree(1), tmp_path / "out")


def test_a_file_as_parent_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteRefused, match="cannot be written"):
        write_artifacts(tree(1), tmp_path / "file" / "out")


def test_the_root_is_rejected() -> None:
    with pytest.raises(WriteRefused, match="root"):
        write_artifacts(tree(1), Path("/"))


def test_a_link_to_a_directory_stays_a_link(tmp_path: Path) -> None:
    write_artifacts(tree(1), tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    write_artifacts(tree(2), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == expected(2)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder without write access")
def test_a_folder_without_write_access_is_refused() -> None:
    with pytest.raises(WriteRefused, match="cannot be written"):
        write_artifacts(tree(0), Path("/proc/parc-output"))


def test_without_file_locks_the_directories_of_other_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> NoReturn:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    other = tmp_path / ".run.new-1-0"
    other.mkdir()
    for turn in range(2):
        write_artifacts(tree(turn), tmp_path / "run")
        assert contents(tmp_path / "run")["plan.json"].startswith(f"{turn}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "run"]


@pytest.mark.parametrize("goal", ["nowhere", "link"])
def test_a_broken_link_is_refused(tmp_path: Path, goal: str) -> None:
    (tmp_path / "link").symlink_to(goal)
    with pytest.raises(WriteRefused, match="is a broken link"):
        write_artifacts(tree(1), tmp_path / "link")


def test_a_failed_write_leaves_the_old_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_artifacts(tree(1), out)
    with pytest.raises(WriteRefused):
        write_artifacts((*tree(2), Artifact("plan.long" + "x" * 300, "x\n")), out)
    assert contents(out) == expected(1)
    assert hidden(tmp_path) == []


def test_stale_paths_are_the_paths_that_a_write_changes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert differing_paths(tree(1), out) == sorted(expected(1))
    write_artifacts(tree(1), out)
    assert differing_paths(tree(1), out) == []
    (out / "plan.json").write_text("changed")
    (out / "extra").write_text("too much")
    (out / "megatron/args.sh").chmod(0o644)
    (out / "slurm/job.sbatch").unlink()
    assert differing_paths(tree(1), out) == [
        "extra",
        "megatron/args.sh",
        "plan.json",
        "slurm/job.sbatch",
    ]


def test_a_pipe_instead_of_a_file_is_stale_and_does_not_block(tmp_path: Path) -> None:
    write_artifacts(tree(1), tmp_path / "out")
    (tmp_path / "out/plan.json").unlink()
    os.mkfifo(tmp_path / "out/plan.json")
    assert differing_paths(tree(1), tmp_path / "out") == ["plan.json"]


def write_for_ever(out: Path) -> NoReturn:
    for turn in count():
        write_artifacts(tree(turn), out)
    raise AssertionError("not reached")


def kill_a_writer(out: Path, after_seconds: float) -> None:
    """Start a process that writes all the time, and kill it."""
    child = os.fork()
    if child == 0:
        try:
            write_for_ever(out)
        finally:
            os._exit(1)
    time.sleep(after_seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer failed before it was killed"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_writer_killed_at_any_moment_leaves_the_old_output_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    if not atomic:
        monkeypatch.setattr(writer, "exchange_paths", lambda first, second: False)
    out = tmp_path / "out"
    moments = random.Random(7)
    write_artifacts(tree(-1), out)
    for _ in range(20):
        kill_a_writer(out, moments.uniform(0, 0.03))
        if not atomic and not out.exists():
            with pytest.raises(WriteRefused):  # the next run restores the old tree first
                write_artifacts((Artifact("plan.long" + "x" * 300, "x\n"),), out)
        found = contents(out)
        assert found == expected(int(found["plan.json"].split()[0]))
    write_artifacts(tree(0), out)
    assert hidden(tmp_path) == []
