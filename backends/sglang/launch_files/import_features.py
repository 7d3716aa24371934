"""Import of SGLang's flags for adapters, speculative decoding and copies of the cache."""

from __future__ import annotations

from parc.backends.sglang.computed_settings import ALGORITHMS
from parc.backends.shared.serving.import_features import (
    LoraFlags,
    known_flags,
    method_of,
    read_lora,
    set_speculative,
    without,
)
from parc.compiler.tools.importers.flags import LaunchFlag, set_spec_field, whole_number
from parc.compiler.topology.readers.reader_state import Reading

LORA = LoraFlags(
    "--enable-lora",
    "--lora-paths",
    "--max-loras-per-batch",
    "--max-lora-rank",
    default_active=8,
    without_adapter=1,
)
"""Flags of LoRA (server_args.py). Requests without an adapter take one of the places."""
ALGORITHM, DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
STEPS, TOKENS = "--speculative-num-steps", "--speculative-num-draft-tokens"
CHAIN = ("--speculative-eagle-topk", "--speculative-ngram-max-bfs-breadth")
"""Flags that are 1 for a draft that is a chain of tokens, as PARC plans it."""
OTHER_NAMES = {"NEXTN": "EAGLE"}
"""Other names of algorithms (speculative/spec_info.py)."""
HOST_CACHE, HOST_SIZE = "--enable-hierarchical-cache", "--hicache-size"


def read_features(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set the fields of ``job`` for optional features; return the flags without a field.

    ``reading`` must contain the parallel sizes.
    """
    rest = _read_draft(read_lora(flags, LORA, reading), reading)
    known = known_flags(rest)
    size = known.get(HOST_SIZE)
    per_gpu = None if size is None else whole_number(size.value)
    layout = reading.spec.get("layout", {})
    if HOST_CACHE not in known or not per_gpu or size is None or not {"tp", "pp"} <= layout.keys():
        return rest
    total = per_gpu * layout["tp"] * layout["pp"]
    set_spec_field(reading, "job.kv_offload", {"size": f"{total}GB"}, size)
    return without(rest, [HOST_CACHE, HOST_SIZE])


def _read_draft(flags: list[LaunchFlag], reading: Reading) -> list[LaunchFlag]:
    """Set ``job.speculative``; return the flags without a field."""
    known = known_flags(flags)
    algorithm = known.get(ALGORITHM)
    if algorithm is None:
        return flags
    method = method_of(ALGORITHMS, OTHER_NAMES.get(algorithm.value, algorithm.value))
    if method is None:
        return flags
    draft = known[DRAFT].value if DRAFT in known else None
    # SGLang has one name for both methods; the draft of mtp has no checkpoint.
    if ALGORITHMS[method] == "EAGLE":
        method = "eagle" if draft else "mtp"
    steps, tokens = (
        whole_number(known[one].value) if one in known else None for one in (STEPS, TOKENS)
    )
    count = steps or (tokens - 1 if tokens else None)
    set_speculative(method, count or None, draft, algorithm, reading)
    if count is None:
        reading.notes.append(
            "set job.speculative.tokens: SGLang chooses the number of draft tokens"
        )
    chain = [one for one in CHAIN if one in known and known[one].value == "1"]
    same = [TOKENS] if count and tokens == count + 1 else []
    return without(flags, [ALGORITHM, DRAFT, *([STEPS] if steps else []), *same, *chain])
