"""Implementation of ``parc import``: list the formats, and import files as one spec fragment.

The formats describe topologies, launches, models and measurements. Files that are imported together
must have the same format or describe the same cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.diagnostics.secret_values import hide_secrets
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.formats import (
    declared_importers,
    importable_launches,
    importers_by_backend,
    targets_of_launch,
)
from parc.compiler.tools.importers.hf_config import read_hf_config
from parc.compiler.tools.importers.import_manifest import import_manifest
from parc.compiler.tools.importers.manifests import read_manifest
from parc.compiler.tools.importers.nccl_tests import read_nccl_tests, read_outputs
from parc.compiler.tools.importers.parc_plan import read_parc_plan
from parc.compiler.tools.importers.script_commands import launch_command
from parc.compiler.tools.importers.service_files import read_service_file
from parc.compiler.tools.importers.slurm import read_sbatch
from parc.compiler.tools.shell.code_blocks import keep_shell_blocks
from parc.compiler.topology.readers.cluster_section import merge_fragments
from parc.compiler.topology.readers.fragment_secrets import without_secrets
from parc.compiler.topology.readers.reader_state import UNCHANGED, Fragment, HostFilter
from parc.compiler.topology.readers.registry import (
    DETECTED_IN,
    FORMATS,
    FileFormat,
    detect_format,
)
from parc.compiler.topology.readers.squeue import read_squeue

INVALID = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffc\U00010000-\U0010ffff]"
)
"""Characters that no value of a spec may contain: YAML 1.2.2, section 5.1, and line breaks."""
OWN: dict[str, FileFormat] = {
    # First, because plan.json also contains names that are signs of other formats.
    "parc-plan": FileFormat(
        read_parc_plan,
        "plan.json of PARC, or the output folder",
        (r'\A\s*\{\s*"(?:basis|estimate)"\s*:',),
    ),
    **FORMATS,
    "squeue": FileFormat(
        read_squeue,
        "squeue --json, scontrol show job --json",
        (r'"accrue_time"\s*:', r'"job_state"\s*:'),
    ),
    "nccl-tests": FileFormat(
        read_nccl_tests,
        "output of nccl-tests",
        (r"(?m)^# nccl-tests version", r"(?m)^#[ \t]+Rank[ \t]+[0-9]+[ \t]+Group"),
    ),
    "sbatch": FileFormat(
        read_sbatch, "batch script of Slurm with its launch line", (r"(?m)^#SBATCH[ \t]",)
    ),
}
"""Formats that do not depend on a framework, in the order in which ``auto`` tries them."""
HF_CONFIG = FileFormat(
    read_hf_config, "config.json of Hugging Face", (r'"model_type"\s*:', r'"architectures"\s*:')
)
OF_CLUSTERS = FORMATS.keys() | {"squeue"}
"""Formats that can be combined, because they describe hosts of one cluster."""


@cache
def import_formats() -> dict[str, FileFormat]:
    """Return (KIND argument -> import format), in the order in which ``auto`` tries the formats.

    Formats of frameworks come after batch scripts, so that a batch script with flags of a framework
    is recognized as a batch script. The model config comes last, because a config of a framework
    might also contain a model type.
    """
    found = dict(OWN)
    for one in importers_by_backend():
        found |= one.formats
    return found | {"hf-config": HF_CONFIG}


def read_files(
    files: Sequence[tuple[str, str, str]], sink: Sink, keep: HostFilter | None = None
) -> Fragment | None:
    """Read files, given as (kind, text, name), into one spec fragment; None after an error.

    Hosts that ``keep`` does not accept are left out.
    """
    # One fit uses all outputs of nccl-tests, so their fragments cannot be merged one by one.
    if {kind for kind, _, _ in files} == {"nccl-tests"}:
        return read_outputs([(text, name) for _, text, name in files], sink)
    formats = import_formats()
    fragments = [
        _with_targets(kind, _read_file(formats[kind], (text, name), sink, keep))
        for kind, text, name in files
    ]
    read = [without_secrets(fragment) for fragment in fragments if fragment is not None]
    if len(read) < len(files) or sink.failed():
        return None
    if read[0].whole and len(read) == 1:
        return read[0]
    if any(one.whole for one in read):
        finding = Finding(
            "an output of PARC contains a complete spec, which other files cannot extend",
            help="import this output alone",
        )
        sink.report("I05", finding, span=Span(files[1][2], 1, 1))
        return None
    merged = merge_fragments(read, sink)
    if merged is not None:
        _check_characters(merged.spec, "", (merged.spans, Span(files[0][2], 1, 1)), sink)
    return None if sink.failed() else merged


def _read_file(
    form: FileFormat, file: tuple[str, str], sink: Sink, keep: HostFilter | None
) -> Fragment | None:
    if keep is None or form.selecting_reader is None:
        own = form in OWN.values()
        manifest = None if own else read_manifest(*file) or read_service_file(*file)
        if manifest is not None:
            return import_manifest(manifest, file, sink, form.reader)
        text, name = file
        return form.reader(text if own else keep_shell_blocks(text), name, sink)
    return form.selecting_reader(*file, sink, keep)


def _with_targets(kind: str, fragment: Fragment | None) -> Fragment | None:
    """Return ``fragment`` with ``emit``, if its file belongs to a backend that needs it."""
    backend = next((one for one, of in declared_importers() if kind in of.formats), None)
    targets = targets_of_launch(fragment.spec, backend) if fragment and backend else []
    if not targets or fragment is None:
        return fragment
    return replace(fragment, spec={**fragment.spec, "emit": targets})


def _check_characters(
    tree: Any, path: str, where: tuple[Mapping[str, Span], Span], sink: Sink
) -> None:
    """Report texts with control characters (I02), which could break a line of an emitted script.

    Args:
        tree: part of the imported spec fragment.
        path: spec path of ``tree``.
        where: pair of (positions of spec fields, position to report for all other fields).
        sink: receives the findings.
    """
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, Mapping):
        inner = tree.items()
    elif isinstance(tree, list | tuple):
        path, _, name = path.rpartition(".")
        inner = ((name, value) for value in tree)
    elif isinstance(tree, str) and (bad := INVALID.search(tree)):
        spans, first = where
        finding = Finding(
            f"{path} contains the character U+{ord(bad[0]):04X}",
            help="use only printable characters",
        )
        sink.report("I02", finding, at=path, span=spans.get(path, first))
    # Keys come from the files as well, so they are checked like values.
    for key, value in inner:
        below = f"{path}.{key}" if path else str(key)
        _check_characters(key, below, where, sink)
        _check_characters(value, below, where, sink)


_NODES = re.compile(r"(?m)^\s*(?:- )?kind:\s*[\"']?(?:Node|List|NodeList)\b")
"""Matches the kind of a Kubernetes object that lists nodes."""
_TOML = re.compile(r"(?m)^\[[\w.-]+\][ \t]*(?:#.*)?$")
"""Matches the name of a section in TOML."""
MOST_BYTES = 64 * 1024 * 1024
"""Maximum file size in bytes; the node list of 16,384 hosts has about 40 MB."""


@frozen
class ImportResult:
    """Spec fragment that was read from files, and the formats of the files."""

    fragment: Fragment
    kinds: str
    """Distinct formats of the files, such as ``scontrol-nodes and slurm-topology``."""


def import_files(
    kind: str,
    files: Sequence[tuple[str, str]],
    sink: Sink,
    keep: HostFilter | None = None,
    expected: str = "",
) -> ImportResult | None:
    """Import files, given as (text, name), as one spec fragment; return None after an error.

    If ``kind`` is ``auto``, the format of each file is detected from its text. Report a text above
    MOST_BYTES (I06), an unknown format or formats that cannot be combined (I05), and the findings
    of the file readers. Hosts in node lists that ``keep`` does not accept are left out.
    ``expected`` is the advice for a file of unknown format, if only some formats make sense.
    """
    kinds = [
        kind if kind != "auto" else _detect_kind(text, name, sink, expected) for text, name in files
    ]
    for text, name in files:
        if _byte_count(text) > MOST_BYTES:
            finding = Finding(f"{name} is larger than {MOST_BYTES} bytes")
            sink.report("I06", finding, span=Span(name, 1, 1))
    different = sorted({one for one in kinds if one is not None})
    if len(different) > 1 and set(different) - OF_CLUSTERS:
        finding = Finding(
            f"files of these kinds cannot be combined: {', '.join(different)}",
            help="import the files one by one; only files about the same cluster can be combined",
        )
        sink.report("I05", finding, span=Span(files[0][1], 1, 1))
    if sink.failed():
        return None
    named = [(one, *file) for one, file in zip(kinds, files, strict=True) if one is not None]
    fragment = read_files(named, sink, keep)
    return None if fragment is None else ImportResult(fragment, " and ".join(different))


def _detect_kind(text: str, name: str, sink: Sink, expected: str) -> str | None:
    manifest = re.search(r"(?m)^apiVersion:", text) and not _NODES.search(text)
    formats = dict(import_formats())
    if manifest:  # the signs of a list of nodes also match other objects of Kubernetes
        del formats["k8s-nodes"]
    objects = read_manifest(text, name) if manifest else read_service_file(text, name)
    kind = detect_format(keep_shell_blocks(text) if objects is None else objects.script, formats)
    if kind is None:
        command, line = ("", 1) if _TOML.search(text) else launch_command(text, name)
        kinds = ", ".join(import_formats())
        message = f"cannot detect the format of {name}"
        hint = expected or f"name the format as KIND of parc import; valid values: {kinds}"
        if not text.strip():
            message = f"{name} is empty"
            hint = expected or "the command that wrote the file printed nothing: run it again"
        elif re.search("[\0\ufffd]", text[:DETECTED_IN]):
            message = f"{name} is not a text file in UTF-8"
            hint = expected or UNCHANGED
        elif expected:
            pass
        elif command:
            shown = hide_secrets(" ".join(command.split()))[:80]
            message = f"{name} starts a program that PARC cannot import: {shown}"
            hint = f"PARC can import {importable_launches()}"
        elif manifest:
            hint = "copy the command of a container into a script, and import the script"
        sink.report("I05", Finding(message, help=hint), span=Span(name, line, 1))
    return kind


def _byte_count(text: str) -> int:
    # Most files are ASCII; encoding a text of 64 MiB only to count its bytes takes time and memory.
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
