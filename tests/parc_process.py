"""``parc`` in a separate process that is forked from one that has imported PARC already.

A new interpreter needs about half a CPU second for its imports. As a program, this module is the
process that is forked: it reads one request per line from stdin and prints the exit code of each.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from io import FileIO, TextIOWrapper
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = (
    *(f"cli.commands.{name}" for name in ("check", "compile", "verify")),
    *("pipeline", "serving_pipeline", "tools.importers.import_files", "tools.lint.lint_file"),
)
"""Imported modules of the compiler: none that looks for plugins on import."""


def run_parc(
    *words: str | Path, cwd: Path = ROOT, packages: Path | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``parc WORDS`` in ``cwd`` with stdin ``given``, and return its outputs.

    ``packages`` is a folder of installed packages that precedes all others.
    """
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(given, encoding="utf-8")
        request = {
            "words": [*map(str, words)],
            "cwd": str(cwd),
            "packages": None if packages is None else str(packages),
            "streams": [*map(str, streams)],
        }
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        out, error = (path.read_text("utf-8") for path in streams[1:])
        return subprocess.CompletedProcess(request["words"], code, out, error)


@cache
def _server() -> subprocess.Popen[str]:
    """Start the process that is forked. It ends when its stdin is closed: with this process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.parc_process"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve() -> None:
    """Run the requests of stdin, each in a forked process."""
    for module in MODULES:
        import_module(f"parc.compiler.{module}")
    plugins = import_module("parc.backends.plugins")
    assert not plugins.plugin_entry_points.cache_info().currsize
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_run(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(words: list[str], cwd: str, packages: str | None, streams: list[str]) -> int:
    """Run ``python -m parc`` with the files ``streams`` as standard streams; return its code."""
    for descriptor, path in enumerate(streams):
        mode = os.O_WRONLY | os.O_CREAT if descriptor else os.O_RDONLY
        os.dup2(os.open(path, mode, 0o600), descriptor)
    sys.stdin = TextIOWrapper(FileIO(0), encoding="utf-8")  # the old one has read ahead
    os.chdir(cwd)
    if packages is not None:
        sys.path.insert(0, packages)
    sys.argv = ["parc", *words]
    try:
        runpy.run_module("parc", run_name="__main__", alter_sys=True)
        code: int | str | None = 0
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    _serve()
