"""Verifier of ``torchtitan/parc_titan.py``, which it reads without executing the module."""

from __future__ import annotations

import ast

from parc.backends.verifier import FileDependencies
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.read_emitted import Malformed

MODULE = "torchtitan/parc_titan.py"
KEYWORDS = {
    "pp": "pipeline_parallel_degree",
    "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree",
    "cp": "context_parallel_degree",
    "tp": "tensor_parallel_degree",
    "ep": "expert_parallel_degree",
}
"""Axis of the mesh -> keyword of torchtitan's ``ParallelismConfig``."""


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh, from the first call of ``ParallelismConfig``.

    Sizes that the call does not pass are 1.

    Raises:
        Malformed: the module has no such call, or its arguments are not literals.
    """
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        named = [one for one in calls if getattr(one.func, "id", "") == "ParallelismConfig"]
        given = (word for word in named[0].keywords if word.arg in KEYWORDS.values())
        words = {word.arg: ast.literal_eval(word.value) for word in given}
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        raise Malformed(MODULE, 1, "it has no ParallelismConfig of literal values") from None
    # A size that is not passed is 1: torchtitan's other default, -1 for dp_shard, is never emitted.
    sizes = {name: words.get(word, 1) for name, word in KEYWORDS.items()}
    return MeshSizes(**positive_sizes(MODULE, sizes))


VERIFIER = DeviceMeshVerifier(
    file=MODULE,
    builder="torchtitan",
    read_sizes=read_sizes,
    columns=("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp"),
    other_families=("dp", "dp-shard-cp", "dp-cp"),
    files=FileDependencies(references={MODULE: "/torchtitan"}),
)
