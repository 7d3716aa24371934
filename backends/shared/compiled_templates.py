"""Cache of compiled Jinja templates, beside the byte code of Python modules."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket


class CompiledTemplates(BytecodeCache):
    """Compiled templates in files of ``__pycache__`` folders, or under ``PYTHONPYCACHEPREFIX``.

    As for Python's own byte code, a file is used only for the same source, and folders that cannot
    be written to are left alone.
    """

    def __init__(self, options: str) -> None:
        """Create the cache for templates that are compiled with ``options``."""
        self._options = options

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of the compiled template."""
        return cache_from_source(filename or name)

    def get_source_checksum(self, source: str) -> str:
        """Return the checksum of the options and the text of a template."""
        return super().get_source_checksum(f"{self._options}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the compiled template; do nothing if there is none for the same source."""
        try:
            with Path(bucket.key).open("rb") as file:
                bucket.load_bytecode(file)
        except OSError:
            return

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store the compiled template, unless Python must not write byte code."""
        if sys.dont_write_bytecode:
            return
        path = Path(bucket.key)
        written = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(bucket.bytecode_to_string())
            # Another process never reads a file that is half written.
            written.replace(path)
        except OSError:
            with suppress(OSError):
                written.unlink()
