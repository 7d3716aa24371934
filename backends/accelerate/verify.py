"""Verifier of ``accelerate/config.yaml``, which it reads as ``accelerate launch`` does."""

from __future__ import annotations

from parc.backends.verifier import FileDependencies, LauncherNumber
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.read_emitted import Malformed

CONFIG = "accelerate/config.yaml"
LAUNCHER = (
    LauncherNumber("--num_machines", r"--num_machines=(\d+)", "nodes"),
    LauncherNumber("--num_processes", r"--num_processes=(\d+)", "world"),
)


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh that ``config.yaml`` configures.

    Without ``parallelism_config`` every process is a replica under DDP, and all processes form one
    shard under FSDP.

    Raises:
        Malformed: the text is not YAML with a number of processes, or a size is not a positive
            integer.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe", pure=True).load(text)
        config = tree.get("parallelism_config") or {}
        ranks = tree["num_processes"]
    except (YAMLError, KeyError, AttributeError, RecursionError, ValueError):
        raise Malformed(CONFIG, 1, "it is not YAML with the key num_processes") from None
    names = ("dp_replicate", "dp_shard", "cp", "tp")
    sizes = {name: config.get(f"parallelism_config_{name}_size", 1) for name in names}
    sequence = config.get("parallelism_config_sp_size", 1)
    if not config:
        sharded = tree.get("distributed_type") == "FSDP"
        sizes["dp_shard" if sharded else "dp_replicate"] = ranks
    found = positive_sizes(CONFIG, {"pp": 1, **sizes, "sp": sequence})
    # Both axes split the sequence; PARC emits no sp, but the config of a user may have it.
    found["cp"] *= found.pop("sp")
    return MeshSizes(**found)


VERIFIER = DeviceMeshVerifier(
    file=CONFIG,
    builder="accelerate",
    read_sizes=read_sizes,
    columns=("dp-replicate", "dp-shard", "cp", "tp"),
    other_families=("dp", "dp-shard-cp", "dp-cp"),
    files=FileDependencies(
        references={
            CONFIG: "/accelerate/config.yaml",
            "accelerate/train.py": "/accelerate/train.py",
        },
        required_by=(("accelerate/job.json", "accelerate/train.py"),),
    ),
    launcher=LAUNCHER,
)
