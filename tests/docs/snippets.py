"""Runner of the snippets of a page: files that it shows, and commands with their output.

A ``yaml`` or ``text`` block after ``<!-- file: NAME -->`` is written to the file NAME. The commands
of a ``console`` block run in order: parc in this process, cat and ls as small functions, with
``> FILE`` or ``| head -n N`` behind them. Programs of ``ELSEWHERE`` are only shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cli.specs import parc

BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- file: (?P<file>\S+) -->\n\s*)?```(?P<kind>[a-z]+)\n"
    r"(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
ELSEWHERE = ("cd", "hf", "make", "pipx", "sbatch", "scontrol", "uvx")
"""Programs that need a network, a cluster or a checkout."""
REDIRECTS = re.compile(r"^(?P<command>.*?)(?: > (?P<file>\S+)| \| head -n (?P<lines>\d+))?$")


def run_page(text: str, run: Callable[[str], str] | None = None) -> str:
    """Run the snippets of a page in the current folder; return the page with the new output.

    Args:
        text: the page.
        run: function that runs a command line and returns its output, instead of this module's.

    Raises:
        AssertionError: A command fails because its usage is wrong or because of a bug.
    """
    return BLOCK.sub(lambda block: _run_block(block, run or _output), text)


def _run_block(block: re.Match[str], run: Callable[[str], str]) -> str:
    indent, body = block["indent"], block["body"]
    if block["file"]:
        lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
        Path(block["file"]).write_text("".join(lines), "utf-8")
    if block["kind"] != "console":
        return block[0]
    new = "".join(f"{indent}{line}".rstrip(" ") for line in _session(body, run))
    start = block.start("body") - block.start()
    return block[0][:start] + new + block[0][start + len(body) :]


def _session(body: str, run: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines of a console block, with the output of each command that can run."""
    for line in body.splitlines():
        command = line.strip().removeprefix("$ ")
        if line.strip().startswith("$ "):
            yield f"$ {command}\n"
            yield from run(command.partition("  #")[0].rstrip()).splitlines(keepends=True)


def _output(line: str) -> str:
    """Run a command of a page; return what a terminal would show."""
    parts = REDIRECTS.match(line)
    assert parts
    words = shlex.split(parts["command"])
    if words[0] in ELSEWHERE:
        return ""
    output = _RUNNERS[words[0]](words[1:])
    if parts["file"]:
        Path(parts["file"]).write_text(output, "utf-8")
        return ""
    lines = output.splitlines(keepends=True)
    return "".join(lines[: int(parts["lines"])] if parts["lines"] else lines)


def _run_parc(words: list[str]) -> str:
    result = parc(*words)
    assert result.exit_code in (0, 1, 3), f"parc {shlex.join(words)}: {result.output}"
    return result.output


def _show_files(words: list[str]) -> str:
    return "".join(Path(name).read_text("utf-8") for name in words)


def _list_folder(words: list[str]) -> str:
    names = sorted(path.name for path in Path(*words).iterdir())
    return "".join(f"{name}\n" for name in names)


_RUNNERS = {"parc": _run_parc, "cat": _show_files, "ls": _list_folder}
