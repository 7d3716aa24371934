import io
from types import SimpleNamespace

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES, UnreadableFileError, read_source


def test_a_file_is_read_with_its_folder(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: \xc3\xa9\r\n")
    source = read_source(str(path))
    assert (source.name, source.text, source.folder) == (str(path), "name: é\r\n", tmp_path)


def test_a_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"parc: 1")))
    source = read_source("-")
    assert (source.name, source.text) == ("<stdin>", "parc: 1")


@pytest.mark.parametrize("name", ["missing.yaml", "", "folder", "nul\0.yaml"])
def test_the_error_for_an_unreadable_file_is_a_single_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableFileError) as caught:
        read_source(name)
    assert len(str(caught.value).splitlines()) == 1


def test_reading_stops_above_the_size_limit(monkeypatch):
    endless = SimpleNamespace(read=lambda size: b"a" * size)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=endless))
    assert len(read_source("-").text) == MAX_TEXT_BYTES + 1


def test_bytes_that_are_not_utf8_are_reported_with_line_and_column(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"parc: 1\nname: \xff\n")
    sink = Sink()
    assert load_spec(read_source(str(path)), (), sink) is None
    (found,) = sink.diagnostics
    assert (found.code, found.finding.message) == ("PARC-X06", "these bytes are not valid UTF-8")
    assert (found.span.line, found.span.column) == (2, 7)


def test_a_long_text_of_wide_characters_is_rejected_and_not_cut(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("# " + "é" * (MAX_TEXT_BYTES // 2) + "\nname: lost\n", encoding="utf-8")
    sink = Sink()
    assert load_spec(read_source(str(path)), (), sink) is None
    assert [found.code for found in sink.diagnostics] == ["PARC-X14"]
