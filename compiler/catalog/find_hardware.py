"""Names that people, schedulers and clouds use for hardware -> entries of the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from parc.compiler.catalog.catalog_files import catalog_entry, catalog_names

_COMMON = ("hgx-", "dgx-", "mi")
"""Prefixes of node types that are the usual host of a GPU, in order of preference."""
_SXM = {"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm3", "hbm3e"}
"""Words in names of NVIDIA's drivers for GPUs on an SXM board."""
_VENDOR_WORDS = {"nvidia", "amd", "tesla", "instinct", "geforce", "gpu", "oam"}
_DRIVER_NAMES = {"nvidia h200": "h200-sxm-141gb", "nvidia gh200 480gb": "gh200-96gb"}
"""Names of drivers without the board or memory of the GPU: 480 GB is the memory of the CPU."""
_MEMORY = re.compile(r"(?<![0-9])([0-9]+)(?:g|gb|gib)$|mem([0-9]+)$")
"""Word of a site that may state the memory of a GPU."""


def find_gpu(text: str) -> str | None:
    """Return the catalog name of a GPU, such as ``h100-sxm-80gb``; None if ``text`` names none.

    If several variants of a GPU match, the result is the one with the usual board and memory.
    """
    return next(iter(find_gpus(text)), None)


@cache
def find_gpus(text: str) -> tuple[str, ...]:
    """Return the catalog names of all GPUs that ``text`` can mean, the usual one first.

    Valid texts are catalog names, names of drivers (NVIDIA-H100-80GB-HBM3) and the types in Slurm's
    gres (h100, nvidia_a100_80gb). The result is empty for a GPU with a board or memory that no GPU
    of the catalog has, and for a part of a GPU (MIG, a100_3g.20gb).
    """
    names = catalog_names("gpus")
    if text in names:
        return (text,)
    in_order = re.findall(r"[a-z0-9]+", text.lower())
    if known := _DRIVER_NAMES.get(" ".join(in_order)):
        return (known,)
    if is_part_of_gpu(text):
        return ()
    words = {_memory_word(word) for word in set(in_order) - _VENDOR_WORDS}
    words |= {word.removeprefix("rtx") for word in words}
    if words & _SXM:
        words = (words - _SXM) | {"sxm"}
    found = [(_match_score(name.split("-"), words), name) for name in names]
    best = max(score for score, _ in found)
    if best <= 0:
        return ()
    return tuple(sorted((name for score, name in found if score == best), key=_usual_first))


def is_part_of_gpu(text: str) -> bool:
    """Return True for the name of an MIG profile, such as ``a100_3g.20gb``."""
    return re.search(r"(^|[^a-z0-9])(mig|\dg[._]\d+gb)", text.lower()) is not None


def narrow_gpus(names: tuple[str, ...], features: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``names`` that agree with the memory and the board that ``features`` state.

    Features are free words of a site, such as ``gpu80gb``, ``hbm40g``, ``gmem80`` or ``sxm4``. If
    they contradict each other or all names, they are ignored.
    """
    words = {word for one in features for word in re.findall(r"[a-z0-9]+", one.lower())}
    # The words of other GPUs and of the host, such as 512gb, occur in no name.
    stated = {f"{found[1] or found[2]}gb" for word in words if (found := _MEMORY.search(word))}
    boards = {"sxm" if word in _SXM else word for word in words}
    if "nvlink" in words:
        boards |= {"sxm", "nvl"}
    for parts in (stated, boards & {"sxm", "pcie", "nvl"}):
        kept = tuple(name for name in names if parts & set(name.split("-")))
        same = len({part for part in parts if any(part in name.split("-") for name in names)}) == 1
        if kept and (same or "nvlink" in words):
            names = kept
    return names


@cache
def _memory_sizes() -> frozenset[str]:
    return frozenset(name.rpartition("-")[2] for name in catalog_names("gpus"))


def _memory_word(word: str) -> str:
    """Return ``80gb`` for 80g, 80gib and 80; other words are unchanged."""
    found = re.fullmatch(r"([0-9]+)(g|gib)", word)
    if found is not None:
        return f"{found[1]}gb"
    return f"{word}gb" if f"{word}gb" in _memory_sizes() else word


def _match_score(parts: list[str], words: set[str]) -> int:
    """Return how many parts of a catalog name are in ``words``.

    The score is 0 if the GPU model is missing, or if the words state another board or memory.
    """
    model = [part for part in parts if not re.fullmatch(r"[0-9]+gb|sxm|pcie|nvl", part)]
    # The word rtx may be absent, as in the gres type a6000.
    missing = [part for part in model if part not in words and part != "rtx"]
    if missing or (len(model) == 1 and model[0] not in words):
        return 0
    boards = {"sxm", "pcie", "nvl"}
    memory = next((part for part in parts if part.endswith("gb")), "")
    other_memory = any(re.fullmatch(r"[0-9]+gb", word) for word in words - {memory})
    other_board = boards & set(parts) and (boards & words) - set(parts)
    if other_memory or other_board:
        return 0
    return 10 * len(model) + 2 * len(words & set(parts))


def _usual_first(name: str) -> tuple[int, str]:
    """Return a sort key that puts GPUs of common hosts first, then GPUs with more memory."""
    nodes = _nodes_by_gpu().get(name, ())
    ranks = [index for index, start in enumerate(_COMMON) for one in nodes if one.startswith(start)]
    board = 0 if "-sxm-" in name or "-" not in name.rpartition("-")[0] else 1
    digits = int(re.sub(r"\D", "", name.rpartition("-")[2]) or 0)
    return (10 * min(ranks, default=8 if nodes else 9) + board, f"{9999 - digits:04d}{name}")


@cache
def _nodes_by_gpu() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in catalog_names("nodes"):
        gpu = catalog_entry("nodes", name)["gpu"]
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

    def similarity(node: str) -> tuple[bool, bool, int]:
        other = catalog_entry("nodes", node)["gpu"]
        same = (
            catalog_entry("gpus", other)["generation"] == catalog_entry("gpus", gpu)["generation"]
        )
        # Hosts with SXM boards have NVLink and more NICs than hosts with PCIe cards.
        return ("sxm" in other) == ("sxm" in gpu), same, _common_length(other, gpu)

    return max(catalog_names("nodes"), key=similarity), False


def _common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
