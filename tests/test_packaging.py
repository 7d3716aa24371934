"""The packages in pyproject.toml, the folders, the links and a built wheel agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.project_files import PACKAGE_FOLDERS, ROOT, build_wheel, files, python_files

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
DATA = (".yaml", ".json", ".j2", ".lines")


def packages_of_the_checkout() -> set[str]:
    """Return ``parc`` and the name of each package below the top-level folders."""
    inits = [path.parent for path in python_files(*PACKAGE_FOLDERS) if path.name == "__init__.py"]
    return {"parc"} | {".".join(("parc", *path.relative_to(ROOT).parts)) for path in inits}


def test_every_package_of_the_checkout_is_listed_in_pyproject() -> None:
    assert packages_of_the_checkout() == set(SETUPTOOLS["packages"])


def test_the_list_of_packages_is_sorted_and_without_duplicates() -> None:
    assert SETUPTOOLS["packages"] == sorted(set(SETUPTOOLS["packages"]))


def test_a_folder_with_modules_is_a_package() -> None:
    loose = [
        path
        for path in python_files(*PACKAGE_FOLDERS)
        if not (path.parent / "__init__.py").is_file()
    ]
    assert not loose


def test_every_top_level_package_is_mapped_to_its_folder() -> None:
    mapped = {"parc": "parc"} | {f"parc.{folder}": folder for folder in PACKAGE_FOLDERS}
    assert SETUPTOOLS["package-dir"] == mapped


@pytest.mark.skipif(os.name == "nt", reason="links need a POSIX file system")
@pytest.mark.parametrize("folder", PACKAGE_FOLDERS)
def test_the_folder_parc_has_a_link_to_every_top_level_package(folder: str) -> None:
    link = ROOT / "parc" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from a copy of the checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_module_and_every_data_file(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("parc/")}
    here = [
        *python_files(*PACKAGE_FOLDERS),
        *(path for path in files(*PACKAGE_FOLDERS) if path.suffix in DATA),
    ]
    expected = {f"parc/{path.relative_to(ROOT).as_posix()}" for path in here}
    assert expected | {"parc/__init__.py", "parc/__main__.py", "parc/py.typed"} <= packed
    assert {name for name in packed if not name.endswith((".py", ".typed", *DATA))} == set()


def test_the_wheel_contains_the_license_and_the_command(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "parc = parc.compiler.cli:main" in archive.read(entry_points).decode()
    assert any(name.endswith("LICENSE") for name in names)


def test_a_wheel_compiles_an_example_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where = "import parc.compiler, parc.backends; print(parc.compiler.__file__)"
    found = python_with(tmp_path / "site", "-c", where)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path / "site")
    spec = shutil.copy(ROOT / "examples" / "gpt2-small" / "spec.yaml", tmp_path)
    out = tmp_path / "out"
    done = python_with(tmp_path / "site", "-m", "parc", "compile", str(spec), "-o", str(out))
    assert done.returncode == 0, done.stdout
    assert (out / "rankmap.csv").read_text("utf-8").count("\n") == 9


def python_with(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with ``site`` before all installed packages."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
