"""Import several files of one kind, or about one cluster, as one fragment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.registry import OF_CLUSTERS, import_formats, read_files
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.registry import sniff

MOST_BYTES = 64 * 1024 * 1024
"""Largest file; the node list of 16,384 hosts has about 40 MB."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Fragment that was read from the files."""

    fragment: Fragment
    kinds: str
    """Distinct kinds of the files: ``scontrol-nodes and slurm-topology``."""


def import_files(kind: str, files: Sequence[tuple[str, str]], sink: Sink) -> Imported | None:
    """Return the fragment of (text, name) pairs; ``auto`` detects the kind of each from its text.

    Reports I06 for a text above MOST_BYTES, I05 for an unknown kind or a mix of kinds that cannot
    be combined, and the findings of the readers. Returns None after an error.
    """
    kinds = [kind if kind != "auto" else _detect_kind(text, name, sink) for text, name in files]
    for text, name in files:
        if _bytes(text) > MOST_BYTES:
            finding = Finding(f"{name} is larger than {MOST_BYTES} bytes")
            sink.report("I06", finding, span=Span(name, 1, 1))
    different = sorted({one for one in kinds if one is not None})
    if len(different) > 1 and set(different) - OF_CLUSTERS:
        finding = Finding(
            f"files of these kinds cannot be combined: {', '.join(different)}",
            help="import them one by one; only files about the same cluster can be combined",
        )
        sink.report("I05", finding, span=Span(files[0][1], 1, 1))
    if sink.failed():
        return None
    named = [(one, *file) for one, file in zip(kinds, files, strict=True) if one is not None]
    fragment = read_files(named, sink)
    return None if fragment is None else Imported(fragment, " and ".join(different))


def _detect_kind(text: str, name: str, sink: Sink) -> str | None:
    kind = sniff(text, import_formats())
    if kind is None:
        kinds = ", ".join(import_formats())
        finding = Finding(f"cannot detect the format of {name}", help=f"parc import KIND: {kinds}")
        sink.report("I05", finding, span=Span(name, 1, 1))
    return kind


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
