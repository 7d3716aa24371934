"""Formats of ``parc import``: topologies, launches, models and measurements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.formats import importers
from parc.compiler.tools.importers.hf_config import read_hf_config
from parc.compiler.tools.importers.nccl_tests import read_nccl_tests, read_outputs
from parc.compiler.tools.importers.sbatch import read_sbatch
from parc.compiler.tools.importers.squeue import read_squeue
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.racks import merge
from parc.compiler.topology.readers.registry import FORMATS, Format

INVALID = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffc\U00010000-\U0010ffff]"
)
"""Characters that no value of a spec may contain: YAML 1.2.2, section 5.1, and line breaks."""
OWN: dict[str, Format] = {
    **FORMATS,
    "squeue": Format(
        read_squeue,
        "squeue --json, scontrol show job --json",
        (r'"accrue_time"\s*:', r'"job_state"\s*:'),
    ),
    "nccl-tests": Format(
        read_nccl_tests,
        "output of nccl-tests",
        (r"(?m)^# nccl-tests version", r"(?m)^#[ \t]+Rank[ \t]+[0-9]+[ \t]+Group"),
    ),
    "hf-config": Format(
        read_hf_config, "config.json of Hugging Face", (r'"model_type"\s*:', r'"architectures"\s*:')
    ),
    "sbatch": Format(
        read_sbatch, "batch script of Slurm with its launch line", (r"(?m)^#SBATCH[ \t]",)
    ),
}
"""Formats that belong to no framework, in the order in which ``auto`` tries them."""
OF_CLUSTERS = FORMATS.keys() | {"squeue"}
"""Kinds that can be combined, because they describe one cluster."""


@cache
def import_formats() -> dict[str, Format]:
    """Return KIND -> format.

    Formats of frameworks come last, so that a batch script with their flags is a batch script.
    """
    found = dict(OWN)
    for one in importers():
        found |= one.formats
    return found


def read_files(files: Sequence[tuple[str, str, str]], sink: Sink) -> Fragment | None:
    """Return one fragment of (kind, text, name) triples; None after an error."""
    if {kind for kind, _, _ in files} == {"nccl-tests"}:
        return read_outputs([(text, name) for _, text, name in files], sink)
    formats = import_formats()
    fragments = [formats[kind].reader(text, name, sink) for kind, text, name in files]
    read = [fragment for fragment in fragments if fragment is not None]
    if len(read) < len(files) or sink.failed():
        return None
    merged = merge(read, sink)
    if merged is not None:
        _check_text(merged.spec, "", (merged.spans, Span(files[0][2], 1, 1)), sink)
    return None if sink.failed() else merged


def _check_text(tree: Any, path: str, where: tuple[Mapping[str, Span], Span], sink: Sink) -> None:
    """Report I02 for text with control characters, which could break lines of emitted scripts."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, Mapping):
        inner = tree.items()
    elif isinstance(tree, list | tuple):
        inner = ((path.rpartition(".")[2], value) for value in tree)
        path = path.rpartition(".")[0]
    elif isinstance(tree, str) and (bad := INVALID.search(tree)):
        spans, first = where
        finding = Finding(
            f"{path} contains the character U+{ord(bad[0]):04X}", help="use printable text"
        )
        sink.report("I02", finding, at=path, span=spans.get(path, first))
    for key, value in inner:
        below = f"{path}.{key}" if path else str(key)
        _check_text(key, below, where, sink)
        _check_text(value, below, where, sink)
