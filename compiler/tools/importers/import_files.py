"""Files of one kind, or of several that say something about one cluster, to a fragment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.registry import OF_CLUSTERS, import_formats, read_files
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.registry import sniff

MOST_BYTES = 64 * 1024 * 1024
"""The node list of 16,384 hosts has some 40 MB."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of the files."""

    fragment: Fragment
    kinds: str
    """Kinds of the files, each once: ``scontrol-nodes and slurm-topology``."""


def import_files(kind: str, files: Sequence[tuple[str, str]], sink: Sink) -> Imported | None:
    """A fragment of (text, name) pairs; with ``auto`` the kind of each is seen from its content.

    I06 for a text over MOST_BYTES, I05 for one of no known kind, or for kinds that do not go
    together; then what the readers say.
    """
    kinds = [kind if kind != "auto" else _seen(text, name, sink) for text, name in files]
    for text, name in files:
        if _bytes(text) > MOST_BYTES:
            finding = Finding(f"{name} has more than {MOST_BYTES} bytes")
            sink.report("I06", finding, span=Span(name, 1, 1))
    different = sorted({one for one in kinds if one is not None})
    if len(different) > 1 and set(different) - OF_CLUSTERS:
        finding = Finding(
            f"the files are of kinds that do not go together: {', '.join(different)}",
            help="import them one by one; several files about a cluster go together",
        )
        sink.report("I05", finding, span=Span(files[0][1], 1, 1))
    if sink.failed():
        return None
    named = [(one, *file) for one, file in zip(kinds, files, strict=True) if one is not None]
    fragment = read_files(named, sink)
    return None if fragment is None else Imported(fragment, " and ".join(different))


def _seen(text: str, name: str, sink: Sink) -> str | None:
    kind = sniff(text, import_formats())
    if kind is None:
        kinds = ", ".join(import_formats())
        finding = Finding(f"nothing shows what wrote {name}", help=f"parc import KIND: {kinds}")
        sink.report("I05", finding, span=Span(name, 1, 1))
    return kind


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
