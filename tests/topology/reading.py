"""Reading of a text as ``parc import`` does, for the tests of readers."""

from __future__ import annotations

from parc.compiler.diagnostics import Sink, SpecPositions
from parc.compiler.tools.importers.format_fragment import fragment_yaml
from parc.compiler.tools.importers.import_files import read_files

FILE = "given"


def read(kind: str, *texts: str) -> tuple[str, Sink]:
    """Return (fragment as YAML without its first line, sink); an empty text after an error."""
    names = [FILE if index == 0 else f"{FILE}{index + 1}" for index in range(len(texts))]
    lines = {name: tuple(text.splitlines()) for name, text in zip(names, texts, strict=True)}
    sink = Sink(SpecPositions(FILE, lines=lines))
    files = [(kind, text, name) for text, name in zip(texts, names, strict=True)]
    fragment = read_files(files, sink)
    text = fragment_yaml(fragment, kind, sink) if fragment is not None else ""
    return ("" if sink.failed() else text.partition("\n")[2]), sink


def finding_lines(sink: Sink) -> list[str]:
    """Return ``CODE line:column message | label`` of every finding."""
    found = []
    for one in sink.diagnostics:
        assert one.span is not None
        place = f"{one.span.line}:{one.span.column}"
        label = f" | {one.finding.label}" if one.finding.label else ""
        found.append(f"{one.code.removeprefix('PARC-')} {place} {one.finding.message}{label}")
    return found
