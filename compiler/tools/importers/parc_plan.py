"""Import of an output of PARC: the spec in its plan.json, and files that were changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.topology.readers.document import read_document
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.verify.verify_checksums import files_with_changed_digest

FILE_KEYS = frozenset(
    ("model", "base", "topology", "calibration", "gpu", "node", "fabric", "generation")
)
"""Keys of a spec whose text can be the path of a file."""
FILE_ENDS = (".json", ".yaml", ".yml", ".conf", ".txt", ".csv", ".lst")


def read_parc_plan(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec in the text of a ``plan.json``; None if it contains no spec.

    A compile of this spec writes the same files again. Each file that the spec names is listed in a
    note, because its path is relative to the folder of the original spec.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    spec = root.mapping("spec")
    if spec is None:
        finding = Finding(
            "this file does not contain the section spec",
            help="plan.json of older versions of PARC lacks it: use the original spec, or import "
            "the launch files one by one",
        )
        reading.report_error("I02", finding, reading.span())
        return None
    for path, file in _named_files(spec.value, ""):
        reading.notes.append(f"{path} names the file {file}, relative to the original spec")
    return Fragment(spec=spec.value, notes=tuple(reading.notes), whole=True)


def _named_files(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Yield (spec path, value) of each value in the model and the cluster that names a file."""
    for key, value in tree.items():
        path = f"{above}.{key}" if above else key
        if isinstance(value, dict) and (above or key in ("model", "cluster")):
            yield from _named_files(value, path)
        elif key in FILE_KEYS and isinstance(value, str):
            file = value.partition("#")[0]
            if "/" in file or file.endswith(FILE_ENDS):
                yield path, value


def report_changed_files(contents: Mapping[str, bytes], folder: str, sink: Sink) -> None:
    """Report each file of an output folder that was changed after the compile (I08).

    The imported spec does not contain such a change.

    Args:
        contents: path in the folder -> bytes of the file.
        folder: name of the folder, for positions.
        sink: receives the findings.
    """
    for file in files_with_changed_digest(contents):
        finding = Finding(
            f"{file} was changed after PARC wrote it, and the imported spec lacks the change",
            help="parc import KIND FILE reads a single launch file",
        )
        sink.report("I08", finding, span=Span(f"{folder}/{file}", 1, 1))
