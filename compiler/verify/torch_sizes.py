"""Mesh sizes that the files of torch's frameworks ask for, read as those frameworks read them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parc.compiler.verify.read_emitted import LARGEST, Malformed

FSDP = "fsdp/config.json"
TITAN = "torchtitan/parc_titan.py"
ACCELERATE = "accelerate/config.yaml"


@dataclass(frozen=True, slots=True)
class TorchSizes:
    """One device mesh."""

    framework: str
    file: str
    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    ep: int = 1

    @property
    def world(self) -> int:
        """Ranks."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp


def fsdp_sizes(text: str) -> TorchSizes:
    """The mesh of ``fsdp/config.json``; Malformed for any other text."""
    try:
        mesh = json.loads(text)["mesh"]
        sizes = {name: mesh[name] for name in ("dp_replicate", "dp_shard", "tp")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Malformed(FSDP, 1, "it has no mesh") from None
    return TorchSizes("fsdp", FSDP, **_positive(FSDP, {"pp": 1, "cp": 1, **sizes}))


TITAN_NAMES = {
    "pp": "pipeline_parallel_degree",
    "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree",
    "cp": "context_parallel_degree",
    "tp": "tensor_parallel_degree",
    "ep": "expert_parallel_degree",
}


def titan_sizes(text: str) -> TorchSizes:
    """The keywords of the one call of ``ParallelismConfig``; what is not said is 1."""
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        named = [one for one in calls if getattr(one.func, "id", "") == "ParallelismConfig"]
        given = (word for word in named[0].keywords if word.arg in TITAN_NAMES.values())
        words = {word.arg: ast.literal_eval(word.value) for word in given}
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        raise Malformed(TITAN, 1, "it has no ParallelismConfig of plain values") from None
    sizes = {name: words.get(word, 1) for name, word in TITAN_NAMES.items()}
    return TorchSizes("torchtitan", TITAN, **_positive(TITAN, sizes))


def accelerate_sizes(text: str) -> TorchSizes:
    """What ``accelerate launch`` makes of its file; Malformed for any other text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe", pure=True).load(text)
        config = tree.get("parallelism_config") or {}
        ranks = tree["num_processes"]
    except (YAMLError, KeyError, AttributeError, RecursionError, ValueError):
        raise Malformed(ACCELERATE, 1, "it has no num_processes") from None
    names = ("dp_replicate", "dp_shard", "cp", "tp")
    sizes = {name: config.get(f"parallelism_config_{name}_size", 1) for name in names}
    sequence = config.get("parallelism_config_sp_size", 1)
    if not config:  # DDP, or FSDP over all processes
        sharded = tree.get("distributed_type") == "FSDP"
        sizes["dp_shard" if sharded else "dp_replicate"] = ranks
    found = _positive(ACCELERATE, {"pp": 1, **sizes, "sp": sequence})
    found["cp"] *= found.pop("sp")
    return TorchSizes("accelerate", ACCELERATE, **found)


def _positive(file: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """``sizes`` where all are numbers above 0; Malformed where one is not."""
    for name, size in sizes.items():
        if type(size) is not int or not 0 < size <= LARGEST:
            raise Malformed(file, 1, f"{name} is {size!r:.60}, must be a number > 0")
    return dict(sizes)
