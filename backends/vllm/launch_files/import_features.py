"""Import of vLLM's flags for adapters, speculative decoding and copies of the cache."""

from __future__ import annotations

import re

from parc.backends.shared.serving.import_features import (
    LoraFlags,
    json_object,
    known_flags,
    read_lora,
    set_speculative,
    without,
)
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field
from parc.compiler.topology.readers.reader_state import Reading

LORA = LoraFlags(
    "--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank", 1, host="--max-cpu-loras"
)
"""Flags of LoRA; the default of --max-loras is 1 (config/lora.py)."""
SPECULATIVE, HOST_CACHE = "--speculative-config", "--kv-offloading-size"
METHODS = {
    **{name: name for name in ("mtp", "eagle", "eagle3", "ngram")},
    "draft_model": "draft-model",
}
"""Value of ``method`` in --speculative-config -> method of a spec."""
_OF_FAMILY = re.compile(r"\w+_mtp")
"""Matches a name of the method mtp that contains the family (config/speculative.py)."""
_OF_DRAFT = ("method", "num_speculative_tokens", "model")


def read_features(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set the fields of ``job`` for optional features; return the flags without a field."""
    rest = read_lora(flags, LORA, reading)
    known = known_flags(rest)
    if SPECULATIVE in known and _read_draft(known[SPECULATIVE], reading):
        rest = without(rest, [SPECULATIVE])
    size = known.get(HOST_CACHE)
    if size is not None and re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", size.value):
        set_spec_field(reading, "job.kv_offload", {"size": f"{size.value}GiB"}, size)
        rest = without(rest, [HOST_CACHE])
    return rest


def _read_draft(flag: LaunchFlag, reading: Reading) -> bool:
    """Set ``job.speculative``; report other keys. Return False if there is no known method."""
    tree = json_object(flag.value) or {}
    name, tokens, draft = (tree.pop(key, None) for key in _OF_DRAFT)
    method = METHODS.get(str(name), "mtp" if _OF_FAMILY.fullmatch(str(name)) else None)
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    if method is None or not is_count or not isinstance(draft, str | None):
        return False
    set_speculative(method, tokens, draft, flag, reading)
    for key, value in tree.items():
        reading.leave_out(f"{flag.name} {key}: {value}", flag.word.span)
    return True
