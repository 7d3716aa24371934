"""Files of the checkout, their imports and functions, for tests about the project itself."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDERS = ("compiler", "backends", "templates", "schemas")
"""Top-level folders that are installed as ``parc.<folder>``."""
TEXT_FOLDERS = (
    *PACKAGE_FOLDERS,
    "parc",
    "examples",
    "tests",
    "docs",
    "benchmarks",
    ".ci",
    ".github",
)
SKIPPED = ("__pycache__", ".cache", ".hypothesis")


def files(*folders: str, pattern: str = "*") -> Iterator[Path]:
    """Yield the regular files under ``folders`` in a fixed order; symbolic links are skipped."""
    for folder in folders:
        yield from _files_of_folder(folder, pattern)


@cache
def _files_of_folder(folder: str, pattern: str) -> tuple[Path, ...]:
    """Return the regular files under ``folder``, which a test run does not change."""
    return tuple(
        path
        for path in sorted((ROOT / folder).rglob(pattern))
        if path.is_file()
        and not path.is_symlink()
        and not set(path.relative_to(ROOT).parts) & set(SKIPPED)
    )


def python_files(*folders: str) -> list[Path]:
    """Return the Python files under ``folders``; without folders those of the whole project."""
    return list(files(*(folders or (*PACKAGE_FOLDERS, "tests", "benchmarks")), pattern="*.py"))


def module(path: Path) -> str:
    """Return the module name of an installed file: ``parc.compiler.ir.plan`` for a plan.py."""
    inside = path.relative_to(ROOT).with_suffix("")
    parts = inside.parts[:-1] if inside.name == "__init__" else inside.parts
    return ".".join(("parc", *parts))


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the parsed file; several tests walk the same trees."""
    return ast.parse(path.read_text("utf-8"))


@cache
def syntax_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of the parsed file."""
    return tuple(ast.walk(syntax_tree(path)))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the full names of the ``parc`` modules and objects that ``path`` imports.

    Imports inside functions and under ``TYPE_CHECKING`` count as well: they are dependencies too.
    """
    names: set[str] = set()
    for node in syntax_nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] == "parc")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (``file:line name``, number of lines) per function of ``path``."""
    for node in syntax_nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines


def build_wheel(work: Path) -> Path:
    """Build a wheel in the folder ``work``, from a source archive of a copy without links."""
    source = work / "source"
    for folder in (*PACKAGE_FOLDERS, "parc"):
        shutil.copytree(ROOT / folder, source / folder, ignore=_links_and_caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(work / "dist")]
    subprocess.run([*build, str(source)], check=True, capture_output=True, text=True)
    (built,) = (work / "dist").glob("*.whl")
    return built


def _links_and_caches(folder: str, names: list[str]) -> set[str]:
    """Return the names that a zip download of the checkout does not contain."""
    return {name for name in names if name == "__pycache__" or (Path(folder) / name).is_symlink()}
