"""What the tests of the house look at: its files, their imports and their functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("compiler", "backends", "templates", "schemas")
"""Top-level folders that are installed as ``parc.<room>``."""
LIVED_IN = (*ROOMS, "parc", "examples", "tests", "docs", "benchmarks", ".ci", ".github")
SKIPPED = ("__pycache__", ".cache", ".hypothesis")


def files(*folders: str, pattern: str = "*") -> Iterator[Path]:
    """Every regular file under ``folders`` of the checkout, in a fixed order; links are left."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob(pattern)):
            inside = path.relative_to(ROOT)
            if path.is_file() and not path.is_symlink() and not set(inside.parts) & set(SKIPPED):
                yield path


def python_files(*folders: str) -> list[Path]:
    """The Python sources under ``folders``, those of the tests and benchmarks included."""
    return list(files(*(folders or (*ROOMS, "tests", "benchmarks")), pattern="*.py"))


def module(path: Path) -> str:
    """``compiler/ir/plan.py`` -> ``parc.compiler.ir.plan``; only for files of the rooms."""
    inside = path.relative_to(ROOT).with_suffix("")
    parts = inside.parts[:-1] if inside.name == "__init__" else inside.parts
    return ".".join(("parc", *parts))


def imported(path: Path) -> set[str]:
    """Full names of the ``parc`` modules (and of what is taken from them) that ``path`` imports.

    Imports inside functions count; those for the type checker alone do too, as they are knowledge.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "parc"}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(``file:line name``, lines from ``def`` to the end) of every function of ``path``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines
