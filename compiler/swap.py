"""Swap two paths in one system call, if the operating system supports it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

AT_FDCWD = -100
RENAME_EXCHANGE = 2
"""linux/fs.h: renameat2(2), atomically exchange two paths that both exist."""


def exchange(first: Path, second: Path) -> bool:
    """Swap two existing paths of one file system; False if the system has no such call.

    Raises:
        OSError: the system has the call, but it failed for these paths.
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
        return False  # an old kernel, or a file system that does not support it (NFS)
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def _renameat2() -> Any:
    """Return the C function ``renameat2``; None if the C library lacks it."""
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
