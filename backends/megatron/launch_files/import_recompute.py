"""Import of activation recomputation from Megatron's flags, including those of older versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.topology.readers.reader_state import Reading

FULL_BEFORE = ("--activations-checkpoint-method", "--checkpoint-activations")
"""Flags of Megatron-LM up to 2.6 that recompute whole layers (megatron/arguments.py)."""
GRANULARITY = "--recompute-granularity"


def derive_older_recompute(flags: Collection[LaunchFlag], reading: Reading) -> None:
    """Set full recomputation if a flag of Megatron-LM 2 turns it on.

    In these versions, ``--activations-checkpoint-method`` alone recomputes whole layers. Newer
    versions recompute nothing without ``--recompute-granularity``.
    """
    names = {flag.name: flag for flag in flags}
    old = next((names[name] for name in FULL_BEFORE if name in names), None)
    if old is None or GRANULARITY in names:
        return
    recompute = reading.spec.setdefault("layout", {}).setdefault("recompute", {})
    recompute.setdefault("granularity", "full")
    reading.spans.setdefault("layout.recompute.granularity", old.word.span)


def shorten_recompute(layout: dict[str, Any], opened: Collection[str]) -> None:
    """Write ``layout.recompute`` as a single word if only its granularity is set.

    The word is ``none`` if there are no recompute flags, unless the recomputation is in ``opened``.
    """
    recompute = layout.get("recompute", {})
    if "granularity" in recompute:
        if len(recompute) == 1:
            layout["recompute"] = recompute["granularity"]
    elif "layout.recompute" in opened or "layout.recompute.granularity" in opened:
        layout.pop("recompute", None)
    else:
        layout["recompute"] = "none"


def complete_recompute(reading: Reading) -> None:
    """Add the sizes of full recomputation that older versions of Megatron-LM use without flags.

    They recompute units of one layer; versions without these defaults reject the launch.
    """
    layout = reading.spec.get("layout", {})
    recompute = layout.get("recompute")
    if recompute == "full":
        recompute = {"granularity": "full"}
    elif not isinstance(recompute, dict) or recompute.get("granularity") != "full":
        return
    paths = [f"layout.recompute.{name}" for name in ("method", "layers")]
    if all(name.rpartition(".")[2] in recompute for name in paths):
        return
    old = reading.spans.get("layout.recompute.granularity")
    if "method" not in recompute and (old is None or "checkpoint" not in _text_at(old, reading)):
        return
    layout["recompute"] = {"method": "uniform", "layers": 1, **recompute}
    reading.notes.append(
        "full recomputation in units of 1 layer, the default of older versions of Megatron-LM"
    )


def _text_at(span: Any, reading: Reading) -> str:
    """Return the text of the file that starts at a position."""
    lines = reading.text.split("\n")
    return lines[span.line - 1][span.column - 1 :][:40] if span.line <= len(lines) else ""
