"""Import the model of a Hugging Face ``config.json``."""

from __future__ import annotations

from parc.compiler.catalog.huggingface.config import (
    model_name_of,
    model_spec_from_config,
    split_config_path,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import read_document
from parc.compiler.topology.readers.reader_state import Fragment, Reading


def read_hf_config(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return a spec fragment with the model that a Hugging Face config describes; None on errors.

    Report keys of the config that are unsupported or ignored (K02 to K06).
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    path, part = split_config_path(name)
    found = model_spec_from_config(root.value, model_name_of(path, root.value), part)
    above = tuple(part.split(".")) if part else ()
    # The path in a note starts at the part of the config that was read, not at the root.
    for note in found.notes:
        finding = Finding(note.message, help=note.help)
        reading.report(note.code, finding, root.document.find((*above, *note.path)))
    if found.failed:
        return None
    reading.spec = {"model": found.mapping}
    return reading.fragment()
