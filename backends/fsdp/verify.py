"""Verifier of ``fsdp/config.json``, which it reads as the emitted program does."""

from __future__ import annotations

import json

from parc.backends.verifier import FileDependencies
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.read_emitted import Malformed

CONFIG = "fsdp/config.json"


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh in ``config.json``.

    Raises:
        Malformed: the text has no mesh, or a size is not a positive integer.
    """
    try:
        mesh = json.loads(text)["mesh"]
        sizes = {name: mesh[name] for name in ("dp_replicate", "dp_shard", "tp")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Malformed(
            CONFIG, 1, "it has no object mesh with dp_replicate, dp_shard and tp"
        ) from None
    return MeshSizes(**positive_sizes(CONFIG, {"pp": 1, "cp": 1, **sizes}))


VERIFIER = DeviceMeshVerifier(
    file=CONFIG,
    builder="fsdp",
    read_sizes=read_sizes,
    columns=("dp-replicate", "dp-shard", "tp"),
    other_families=("dp",),
    files=FileDependencies(
        references={"fsdp/train.py": "/fsdp/train.py"},
        required_by=(
            (CONFIG, "fsdp/parallelize.py"),
            (CONFIG, "fsdp/train.py"),
            ("fsdp/parallelize.py", "fsdp/train.py"),
            ("fsdp/model.py", "fsdp/train.py"),
        ),
    ),
)
