from pathlib import Path

import pytest

from parc.compiler.catalog.catalog_files import KINDS
from parc.compiler.catalog.library import LIMIT_BYTES, Library


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_names_in_order(kind: str) -> None:
    names = Library().names(kind)
    assert names
    assert list(names) == sorted(names)


@pytest.mark.parametrize("name", ["", "nothing", "../gpus/l4-24gb", "H100", "l4-24gb.yaml", "a\0b"])
def test_an_unknown_name_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        Library().entry("gpus", name)


@pytest.mark.parametrize("kind", ["", "..", "secrets"])
def test_an_unknown_kind_has_no_names_and_no_entries(kind: str) -> None:
    assert Library().names(kind) == ()
    with pytest.raises(KeyError):
        Library().entry(kind, "l4-24gb")


def test_changing_an_entry_does_not_change_the_catalog() -> None:
    Library().entry("gpus", "l4-24gb")["peak_tflops"].clear()
    assert Library().entry("gpus", "l4-24gb")["peak_tflops"]


def test_a_file_is_read_relative_to_the_folder_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"é": 1}', "utf-8")
    assert Library(tmp_path).text("config.json") == '{"é": 1}'
    assert Library(Path("/")).text(str(tmp_path / "config.json")) == '{"é": 1}'


def test_a_file_that_cannot_be_read_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "long").write_bytes(b" " * (LIMIT_BYTES + 1))
    for path in ("absent", ".", "latin", "long", "/dev/zero", "a\0b"):
        with pytest.raises(OSError, match=r"."):
            Library(tmp_path).text(path)
