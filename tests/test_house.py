"""The house keeps its own rules: who may import whom, sizes, and no trace of one machine."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from tests.house import LIVED_IN, ROOMS, ROOT, files, functions, imported, module, python_files

IR = "parc.compiler.ir"
DIAGNOSTICS = "parc.compiler.diagnostics"
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "parc.compiler.ir": ("parc.compiler.diagnostics.finding",),
    "parc.compiler.diagnostics": (IR,),
    "parc.compiler.topology": (
        IR,
        DIAGNOSTICS,
        "parc.compiler.spec.tree_builder",
        "parc.compiler.spec.yaml_tree",
    ),
    "parc.compiler.cost": (IR, "parc.compiler.topology", "parc.backends.base"),
    "parc.compiler.spec": (IR, DIAGNOSTICS),
    "parc.compiler.catalog": ("parc.compiler.spec", DIAGNOSTICS),
    "parc.compiler.passes": (
        IR,
        DIAGNOSTICS,
        "parc.compiler.catalog",
        "parc.compiler.cost",
        "parc.compiler.spec",
        "parc.compiler.topology",
        "parc.backends.base",
        "parc.backends.registry",
        "parc.backends.strategies",
    ),
    "parc.compiler.writer": (
        IR,
        DIAGNOSTICS,
        "parc.compiler.swap",
        "parc.backends.registry",
    ),
    "parc.backends": (IR, DIAGNOSTICS, "parc.compiler.topology"),
    "parc.templates": (),
    "parc.schemas": (),
}
"""Room -> what its modules may import besides the room itself. The front rooms (pipeline, api,
report, cli) see everything behind them."""


def within(name: str, package: str) -> bool:
    """Whether ``name`` is ``package`` or something in it."""
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_behind_it(room: str) -> None:
    allowed = (room, "parc.__version__", *MAY_IMPORT[room])
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in python_files(*ROOMS)
        if within(module(path), room)
        for name in sorted(imported(path))
        if not any(within(name, package) for package in allowed)
    ]
    assert not wrong


def test_every_room_of_the_table_exists() -> None:
    modules = {module(path) for path in python_files(*ROOMS)}
    assert set(MAY_IMPORT) <= modules


def test_nobody_imports_the_command_line() -> None:
    wrong = [
        path.name
        for path in python_files(*ROOMS)
        if not within(module(path), "parc.compiler.cli")
        and any(within(name, "parc.compiler.cli") for name in imported(path))
    ]
    assert not wrong


def test_a_backend_never_reaches_into_another_backend() -> None:
    names = [path.parent.name for path in files("backends", pattern="backend.py")]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for own in names
        for path in python_files(f"backends/{own}")
        for name in sorted(imported(path))
        for other in names
        if other != own and within(name, f"parc.backends.{other}")
    ]
    assert len(names) >= 4
    assert not wrong


def test_no_file_is_longer_than_400_lines_and_half_are_under_120() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert {path.name: lines for path, lines in lengths.items() if lines > 400} == {}
    assert median(lengths.values()) <= 120


def test_no_function_is_longer_than_60_lines_and_half_are_under_12() -> None:
    lengths = [found for path in python_files() for found in functions(path)]
    assert [(name, lines) for name, lines in lengths if lines > 60] == []
    assert median(lines for _, lines in lengths) <= 12


def test_no_module_is_named_after_nothing() -> None:
    empty_names = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert [path for path in python_files() if path.stem in empty_names] == []


TEXT = (".py", ".yaml", ".yml", ".json", ".j2", ".md", ".sh", ".sbatch", ".csv", ".txt", ".conf")


def texts() -> list[tuple[Path, str]]:
    """Every text file of the checkout that people or tools read."""
    top = [path for path in sorted(ROOT.iterdir()) if path.is_file() and path.suffix in TEXT]
    return [(path, path.read_text("utf-8")) for path in (*top, *files(*LIVED_IN)) if readable(path)]


def readable(path: Path) -> bool:
    """Whether a file is text by its name."""
    return path.suffix in TEXT or path.name in ("Makefile", "run")


def test_no_file_names_a_place_on_one_machine() -> None:
    homes = re.compile(r"(?<![\w.])/(?:home|root|Users)/\w+|[A-Z]:\\Users")
    here = f"{ROOT}/" if len(ROOT.parts) > 2 else "\0"
    wrong = [
        str(path.relative_to(ROOT)) for path, text in texts() if homes.search(text) or here in text
    ]
    assert not wrong


def test_no_file_carries_the_day_it_was_written() -> None:
    day = re.compile(r"\b20[0-3]\d-[01]\d-[0-3]\d\b")
    wrong = [
        str(path.relative_to(ROOT))
        for path, text in texts()
        if "tests" not in path.relative_to(ROOT).parts  # which give dates to the YAML reader
        and day.search(text)
    ]
    assert not wrong


def test_text_files_end_in_one_newline_and_have_no_carriage_return() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in (*files(*ROOMS, "examples", "docs"), *python_files("tests"))
        if readable(path)
        and (raw := path.read_bytes())
        and (b"\r" in raw or not raw.endswith(b"\n") or raw.endswith(b"\n\n"))
    ]
    assert not wrong
