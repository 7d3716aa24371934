"""Writer of output directories: a directory is replaced as a whole or not at all.

The new tree is written next to the directory, as ``.NAME.new-PID-N``, and the two are exchanged in
one system call. If a run is killed, the directory has either the old or the new output, never a
mixture. A hidden folder may remain, which the next run removes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from parc.backends.built_in import BUILT_IN
from parc.backends.registry import find_backend_declaration
from parc.compiler.ir import Artifact

MARKER = "parc.lock"
"""Name of a file that marks a directory as written by PARC."""
PARC_NAMES = {
    "parc",
    "plan",
    "report",
    "prefill",
    "decode",
    "router",
    *(one.name for one in BUILT_IN),
}
"""Names at the top of an output directory, without suffixes, that PARC writes.

Plugins are looked up only if a directory contains other names."""
_MAX_LISTED = 3
AT_FDCWD = -100
"""Value for renameat2(2), from linux/fcntl.h: relative paths start at the working directory."""
RENAME_EXCHANGE = 2
"""Flag of renameat2(2), from linux/fs.h: exchange two existing paths atomically."""


class WriteRefused(OSError):
    """Error of a file or directory that cannot or must not be replaced, with the reason."""


def write_artifacts(artifacts: Sequence[Artifact], directory: Path) -> None:
    """Replace the content of ``directory`` by ``artifacts``.

    Missing parent directories are created. If ``directory`` is a link to a directory, the link
    stays and its target is replaced.

    Raises:
        WriteRefused: a path is outside the directory or occurs twice, the directory contains
            files that PARC did not write, or the directory cannot be written.
    """
    paths = check_paths(artifacts)
    try:
        target = _resolve_target(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        _check_target(target, directory, paths)
        with _temporary_directory(target) as new:
            for artifact in artifacts:
                _write_file_synced(new / artifact.path, artifact)
            # Flushed before the exchange, so that a power failure cannot leave empty
            # files.
            _sync_folders(new)
            _move_into_place(new, target)
        _sync_folder(target.parent)
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WriteRefused(f"{directory.as_posix()} cannot be written: {reason}") from error


def differing_paths(artifacts: Sequence[Artifact], directory: Path) -> list[str]:
    """Return the paths under ``directory`` that writing ``artifacts`` would change, sorted.

    These are files whose content or mode differs, missing files, and files that are not in
    ``artifacts``.
    """
    wanted = {artifact.path: artifact for artifact in artifacts}
    present = {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        # A link to a folder counts as one path, because PARC writes no links.
        if not path.is_dir() or path.is_symlink()
    }
    changed = {path for path in present & set(wanted) if _file_differs(directory, wanted[path])}
    return sorted(changed | (present ^ set(wanted)))


def names_not_from_parc(names: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return the items of ``names`` that PARC would never overwrite, sorted.

    ``names`` are the entries of an output directory; ``paths`` are the files to write there.
    """
    own = PARC_NAMES | {PurePosixPath(path).parts[0].partition(".")[0] for path in paths}
    others = (name for name in names if name.partition(".")[0] not in own)
    return sorted(
        name for name in others if find_backend_declaration(name.partition(".")[0]) is None
    )


def check_paths(artifacts: Sequence[Artifact]) -> set[str]:
    """Return the set of paths of ``artifacts``.

    Raises:
        WriteRefused: a path is not a plain relative path, occurs twice, or is also the folder
            of another path.
    """
    paths: set[str] = set()
    for artifact in artifacts:
        text = artifact.path
        path = PurePosixPath(text)
        plain = path.as_posix() == text and not re.search(r"[\\:\x00-\x1f]", text)
        if not plain or path.is_absolute() or text == "." or ".." in path.parts:
            raise WriteRefused(f"{text!r} is not a path inside the output directory")
        if text in paths:
            raise WriteRefused(f"two output files have the path {text!r}")
        paths.add(text)
    for text in paths:
        if any(folder.as_posix() in paths for folder in PurePosixPath(text).parents):
            raise WriteRefused(f"the folder of {text!r} is also the path of a file")
    return paths


def _resolve_target(directory: Path) -> Path:
    """Return ``directory`` with all links resolved.

    Raises:
        WriteRefused: ``directory`` is a broken link or the root of the file system.
    """
    if directory.is_symlink() and not directory.exists():
        raise WriteRefused(f"{directory.as_posix()} is a broken link")
    target = directory.resolve()
    if not target.name:
        raise WriteRefused(f"{directory.as_posix()} is the root of the file system")
    return target


def _check_target(target: Path, directory: Path, paths: set[str]) -> None:
    """Raise WriteRefused if ``target`` is a file or contains files that PARC did not write."""
    if not target.exists():
        return
    shown = directory.as_posix()
    if not target.is_dir():
        raise WriteRefused(f"{shown} is a file, not a directory")
    names = sorted(entry.name for entry in target.iterdir())
    if names and MARKER not in names:
        raise WriteRefused(
            f"{shown} is not empty and was not written by PARC (it has no {MARKER}). "
            "Empty this directory, or choose another one with -o."
        )
    foreign = names_not_from_parc(names, paths)
    if foreign:
        more = f" and {len(foreign) - _MAX_LISTED} more" if len(foreign) > _MAX_LISTED else ""
        listed = ", ".join(foreign[:_MAX_LISTED]) + more
        raise WriteRefused(
            f"{shown} contains {listed}, which PARC did not write. "
            "Move these files elsewhere, or choose another directory with -o."
        )


@contextmanager
def _temporary_directory(target: Path) -> Iterator[Path]:
    """Create an empty directory next to ``target``, yield its path, and remove it at the end.

    The directory is locked while in use. If the caller has exchanged it with ``target``, the path
    leads to the old content of ``target``, which is then removed.
    """
    path, lock = next(filter(None, (_create_locked(target, number) for number in count())))
    try:
        if target.exists():
            shutil.copymode(target, path)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _create_locked(target: Path, number: int) -> tuple[Path, int] | None:
    """Create and lock a directory next to ``target``. Return (path, file descriptor with the lock).

    Return None if the name with ``number`` is taken, or if another run removed the directory before
    it was locked.
    """
    path = target.parent / f".{target.name}.new-{os.getpid()}-{number}"
    try:
        path.mkdir()
    except FileExistsError:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
        if _try_lock(descriptor, path) is not False:
            return path, descriptor
        os.close(descriptor)
    except FileNotFoundError:
        pass
    return None


def _try_lock(descriptor: int, path: Path) -> bool | None:
    """Lock the open directory ``path``; return True if this succeeds.

    Return False if another process has the lock, or if ``path`` has become a different directory.
    Return None if the file system does not support locks.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # Lustre mounted without flock
        return None


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary directories that killed runs left next to ``target``.

    If ``target`` is missing because a run was killed while replacing it, the old content is
    restored first.
    """
    leftover = re.compile(rf"\.{re.escape(target.name)}\.new-\d+-\d+")
    old = target.parent / f".{target.name}.old"
    if old.exists() and not target.exists():
        old.rename(target)
    for path in sorted(target.parent.iterdir()):
        ours = path == old or leftover.fullmatch(path.name) is not None
        if ours and path.is_dir() and not path.is_symlink():
            _remove_unused(path)


def _remove_unused(path: Path) -> None:
    """Remove the directory ``path`` if it can be locked. A directory in use is locked already."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        if _try_lock(descriptor, path):
            shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _write_file_synced(path: Path, artifact: Artifact) -> None:
    """Write one file and flush it to disk; the umask applies to its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o777 if artifact.executable else 0o666
    # O_EXCL, because the directory is new: an existing file would be a bug.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(artifact.text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def _sync_folders(root: Path) -> None:
    """Flush the entries of all folders under ``root`` to disk."""
    for folder, _, _ in os.walk(root):
        _sync_folder(Path(folder))


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk.

    Errors are ignored, because some network file systems cannot flush folders.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _move_into_place(new: Path, target: Path) -> None:
    """Move the directory ``new`` to ``target``, replacing the directory that is there.

    If the file system can exchange two paths, the old directory is at ``new`` afterwards. Otherwise
    the old directory is removed.
    """
    with suppress(OSError):
        new.rename(target)  # succeeds if target is missing or an empty directory
        return
    if exchange_paths(new, target):
        return
    # Between the two renames the directory is absent. If a run is killed here, the next run
    # restores the old tree (_remove_leftovers).
    old = target.parent / f".{target.name}.old"
    target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _file_differs(directory: Path, artifact: Artifact) -> bool:
    """Return True if ``artifact`` and its file in ``directory`` differ in content or mode."""
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


def exchange_paths(first: Path, second: Path) -> bool:
    """Exchange two existing paths of one file system atomically.

    Return False if the system or the file system does not support the exchange.

    Raises:
        OSError: the exchange is supported but failed for these paths.
    """
    import ctypes
    import errno

    rename = _renameat2()
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if rename(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV}:
        return False  # old kernels, and file systems without support such as NFS
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def _renameat2() -> Any:
    """Return the function renameat2 of the C library; None if the library lacks it."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "renameat2", None)
    if function is not None:
        number, path = ctypes.c_int, ctypes.c_char_p
        function.argtypes = (number, path, number, path, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def write_file(path: Path, text: str, head: str, by: str = "parc calibrate") -> None:
    """Write ``text`` to ``path`` atomically. The folder of ``path`` must exist.

    An existing file is replaced only if it starts with ``head``, the beginning of ``text``. A wrong
    path therefore does not destroy a file of the user. ``by`` is the name of the command, for the
    error message.

    Raises:
        WriteRefused: the existing file does not start with ``head``, or the file cannot be
            written.
    """
    target = path.resolve()
    new = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        if target.exists() and not _file_starts_with(target, head):
            raise WriteRefused(f"{path} was not written by {by}; it is not overwritten")
        new.write_text(text, encoding="utf-8", newline="\n")
        if target.exists():
            shutil.copymode(target, new)
        new.replace(target)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise WriteRefused(f"{path} cannot be written: {reason}") from error


def _file_starts_with(path: Path, head: str) -> bool:
    """Return True if ``path`` is a file that starts with ``head``."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(head.encode())) == head.encode()
