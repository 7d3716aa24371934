"""Names that people, schedulers and clouds use for hardware -> entries of the catalog."""

from __future__ import annotations

import re
from functools import cache

from parc.compiler.catalog.library import Library

_COMMON = ("hgx-", "dgx-", "mi")
"""Prefixes of node types that are the usual host of a GPU, in order of preference."""
_SXM = {"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm3", "hbm3e"}
"""Words in names of NVIDIA's drivers for GPUs on an SXM board."""
_VENDOR_WORDS = {"nvidia", "amd", "tesla", "instinct", "geforce", "gpu", "oam"}


def find_gpu(text: str) -> str | None:
    """Return the catalog name of a GPU, such as ``h100-sxm-80gb``; None if ``text`` names none.

    Valid texts are catalog names, names of drivers (NVIDIA-H100-80GB-HBM3) and the types in Slurm's
    gres (h100, nvidia_a100_80gb). If several variants of a GPU match, the result is the one with
    the usual board and memory.
    """
    library = Library()
    names = library.names("gpus")
    if text in names:
        return text
    words = set(re.findall(r"[a-z0-9]+", text.lower())) - _VENDOR_WORDS
    words |= {word.removeprefix("rtx") for word in words}
    if words & _SXM:
        words = (words - _SXM) | {"sxm"}
    found = [(_match_score(name.split("-"), words), name) for name in names]
    best = max(score for score, _ in found)
    if best <= 0:
        return None
    return min((name for score, name in found if score == best), key=_usual_first)


def _match_score(parts: list[str], words: set[str]) -> int:
    """Return how many parts of a catalog name are in ``words``; 0 if the GPU model is missing."""
    model = [part for part in parts if not re.fullmatch(r"[0-9]+gb|sxm|pcie|nvl", part)]
    # The word rtx may be absent, as in the gres type a6000.
    missing = [part for part in model if part not in words and part != "rtx"]
    if missing or (len(model) == 1 and model[0] not in words):
        return 0
    contradicted = {"sxm", "pcie", "nvl"} & (words - set(parts))
    memory = next((part for part in parts if part.endswith("gb")), "")
    other_memory = any(re.fullmatch(r"[0-9]+gb", word) for word in words - {memory})
    return max(1, 10 * len(model) + 2 * len(words & set(parts)) - 3 * bool(contradicted)) - (
        4 if other_memory else 0
    )


def _usual_first(name: str) -> tuple[int, str]:
    """Return a sort key that puts GPUs of common hosts first, then GPUs with more memory."""
    nodes = _nodes_by_gpu().get(name, ())
    ranks = [index for index, start in enumerate(_COMMON) for one in nodes if one.startswith(start)]
    board = 0 if "-sxm-" in name or "-" not in name.rpartition("-")[0] else 1
    digits = int(re.sub(r"\D", "", name.rpartition("-")[2]) or 0)
    return (10 * min(ranks, default=8 if nodes else 9) + board, f"{9999 - digits:04d}{name}")


@cache
def _nodes_by_gpu() -> dict[str, tuple[str, ...]]:
    library = Library()
    found: dict[str, tuple[str, ...]] = {}
    for name in library.names("nodes"):
        gpu = library.entry("nodes", name)["gpu"]
        found[gpu] = (*found.get(gpu, ()), name)
    return found


def nodes_with_gpu(gpu: str) -> tuple[str, ...]:
    """Return the node types of the catalog whose GPU is ``gpu``, the usual ones first."""
    nodes = _nodes_by_gpu().get(gpu, ())
    usual = [one for start in _COMMON for one in nodes if one.startswith(start)]
    return tuple(dict.fromkeys((*usual, *nodes)))


def node_for_gpu(gpu: str) -> tuple[str, bool]:
    """Return (node type of the catalog for hosts with ``gpu``, True if its GPU is ``gpu``).

    For a GPU without a node type, the result is a node type with a similar GPU and link.
    """
    if nodes := nodes_with_gpu(gpu):
        return nodes[0], True
    library = Library()

    def similarity(node: str) -> tuple[bool, bool, int]:
        other = library.entry("nodes", node)["gpu"]
        same = (
            library.entry("gpus", other)["generation"] == library.entry("gpus", gpu)["generation"]
        )
        # Hosts with SXM boards have NVLink and more NICs than hosts with PCIe cards.
        return ("sxm" in other) == ("sxm" in gpu), same, _common_length(other, gpu)

    return max(library.names("nodes"), key=similarity), False


def _common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
