"""Write artifacts to disk: the directory is replaced all at once or not at all.

The new tree is written next to the directory, to ``.NAME.new-PID-N``, then one system call swaps
the two. A killed run leaves the old output or the new one, never a mixture, and at most a hidden
folder that the next run removes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path, PurePosixPath

from parc.backends.registry import BUILT_IN, find
from parc.compiler.ir import Artifact
from parc.compiler.swap import exchange

MARKER = "parc.lock"
"""File that marks a directory as written by PARC."""
OWN = {"parc", "plan", "report", *(one.name for one in BUILT_IN)}
"""First parts of the names that PARC writes at the top of an output directory; backends of plugins
are looked up only if a directory has other names."""
_SHOWN = 3


class WriteRefused(Exception):
    """The directory cannot or must not be replaced; the message has the reason."""


def write_artifacts(artifacts: Sequence[Artifact], directory: Path) -> None:
    """Replace the contents of ``directory`` by ``artifacts``; create its parents.

    A link to a directory is followed, so that the link itself is kept.

    Raises:
        WriteRefused: a path leaves the directory or occurs twice; the directory contains files
            that PARC did not write; a file cannot be written.
    """
    paths = check_paths(artifacts)
    try:
        target = _resolved(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean(target)
        _check_target(target, directory, paths)
        with _new_directory(target) as new:
            for artifact in artifacts:
                _write(new / artifact.path, artifact)
            _sync_folders(new)
            _swap(new, target)
        _sync(target.parent)
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WriteRefused(f"{directory.as_posix()} cannot be written: {reason}") from error


def stale_paths(artifacts: Sequence[Artifact], directory: Path) -> list[str]:
    """Return the paths under ``directory`` that differ from ``artifacts``, sorted.

    Missing and additional files count as different; empty if a write would have no effect.
    """
    wanted = {artifact.path: artifact for artifact in artifacts}
    present = {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    changed = {path for path in present & set(wanted) if _differs(directory, wanted[path])}
    return sorted(changed | (present ^ set(wanted)))


def foreign_names(names: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return those of ``names`` that PARC would never overwrite, sorted.

    ``names`` are at the top of an output directory, ``paths`` are the files to be written there.
    """
    own = OWN | {PurePosixPath(path).parts[0].partition(".")[0] for path in paths}
    others = (name for name in names if name.partition(".")[0] not in own)
    return sorted(name for name in others if find(name.partition(".")[0]) is None)


def check_paths(artifacts: Sequence[Artifact]) -> set[str]:
    """Return the paths of ``artifacts``.

    Raises:
        WriteRefused: a path is not relative, has special parts, occurs twice, or is also the
            folder of another path.
    """
    paths: set[str] = set()
    for artifact in artifacts:
        text = artifact.path
        path = PurePosixPath(text)
        plain = path.as_posix() == text and not re.search(r"[\\:\x00-\x1f]", text)
        if not plain or path.is_absolute() or text == "." or ".." in path.parts:
            raise WriteRefused(f"{text!r} is not a path inside the output directory")
        if text in paths:
            raise WriteRefused(f"{text!r} would be written twice")
        paths.add(text)
    for text in paths:
        if any(folder.as_posix() in paths for folder in PurePosixPath(text).parents):
            raise WriteRefused(f"{text!r} is in a folder that is also a file")
    return paths


def _resolved(directory: Path) -> Path:
    if directory.is_symlink() and not directory.exists():
        raise WriteRefused(f"{directory.as_posix()} is a dangling link")
    target = directory.resolve()
    if not target.name:
        raise WriteRefused(f"{directory.as_posix()} is the root of a file system")
    return target


def _check_target(target: Path, directory: Path, paths: set[str]) -> None:
    """Raise WriteRefused if ``target`` is not a directory that only PARC wrote."""
    if not target.exists():
        return
    shown = directory.as_posix()
    if not target.is_dir():
        raise WriteRefused(f"{shown} is a file, not a directory")
    names = sorted(entry.name for entry in target.iterdir())
    if names and MARKER not in names:
        raise WriteRefused(
            f"{shown} is not empty and was not written by PARC (no {MARKER} in it): "
            "empty it, or choose another directory"
        )
    foreign = foreign_names(names, paths)
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        listed = ", ".join(foreign[:_SHOWN]) + more
        raise WriteRefused(
            f"{shown} contains {listed}, not written by PARC: "
            "move it away, or choose another directory"
        )


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """Create an empty, locked directory next to ``target``, and remove it at the end.

    After the swap the old tree is at its path, and is removed in the same way.
    """
    path, lock = next(filter(None, (_claim(target, number) for number in count())))
    try:
        if target.exists():
            shutil.copymode(target, path)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _claim(target: Path, number: int) -> tuple[Path, int] | None:
    """Create and lock one directory; None if the name is taken or another run removed it."""
    path = target.parent / f".{target.name}.new-{os.getpid()}-{number}"
    try:
        path.mkdir()
    except FileExistsError:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
        if _locked(descriptor, path) is not False:
            return path, descriptor
        os.close(descriptor)
    except FileNotFoundError:
        pass
    return None


def _locked(descriptor: int, path: Path) -> bool | None:
    """Lock the open directory ``path`` and return True; None if the file system has no locks.

    False if another process has locked it, or if ``path`` is another directory by now.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # Lustre mounted without flock
        return None


def _clean(target: Path) -> None:
    """Remove the folders of killed runs; first restore an old tree that was not replaced."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.new-\d+-\d+")
    old = target.parent / f".{target.name}.old"
    if old.exists() and not target.exists():
        old.rename(target)
    for path in sorted(target.parent.iterdir()):
        ours = path == old or leftover.fullmatch(path.name) is not None
        if ours and path.is_dir() and not path.is_symlink():
            _remove_unused(path)


def _remove_unused(path: Path) -> None:
    """Remove the directory ``path`` unless another process has locked it, or might have."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        if _locked(descriptor, path):
            shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _write(path: Path, artifact: Artifact) -> None:
    """Write one file and flush it to disk; its mode follows the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o777 if artifact.executable else 0o666
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(artifact.text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        _sync(Path(folder))


def _sync(folder: Path) -> None:
    """Flush the entries of a folder; some network file systems do not support this."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _swap(new: Path, target: Path) -> None:
    """Swap the directories ``new`` and ``target``; ``target`` may be missing."""
    with suppress(OSError):
        new.rename(target)  # succeeds if target is missing or an empty directory
        return
    if exchange(new, target):
        return
    # Between these two renames the directory is absent; _clean of the next run restores it.
    old = target.parent / f".{target.name}.old"
    target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _differs(directory: Path, artifact: Artifact) -> bool:
    path = directory / artifact.path
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would block
            return True
        text = path.read_bytes()
    except OSError:
        return True
    executable = bool(mode & stat.S_IXUSR)
    encoded = artifact.text.encode("utf-8", "surrogatepass")
    return executable != artifact.executable or text != encoded


def write_file(path: Path, text: str, head: str, by: str = "parc calibrate") -> None:
    """Write ``text``, which starts with ``head``, to ``path`` atomically; its folder must exist.

    An existing file is only replaced if it starts with ``head``, so that a wrong path does not
    destroy a file of the user.

    Raises:
        WriteRefused: the existing file does not start with ``head``, or the file cannot be written.
    """
    target = path.resolve()
    new = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        if target.exists() and not _starts_with(target, head):
            raise WriteRefused(f"{path} was not written by {by}; it is not overwritten")
        new.write_text(text, encoding="utf-8", newline="\n")
        new.replace(target)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise WriteRefused(f"{path} cannot be written: {reason}") from error


def _starts_with(path: Path, head: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(head.encode())) == head.encode()
