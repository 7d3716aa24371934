"""Words for facts that a launch file does not contain, and the option that supplies each."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS = {"Layout": "layout", "ServingLayout": "layout", "Job": "job", "Model": "model"}
"""IR type -> section of the spec that has keys of the same names as its fields."""
FACTS = {
    "Attention.latent": ("the type of attention", "--model"),
    "Cluster.fabric": ("the network", "--cluster"),
    "Cluster.gpu": ("the GPU type", "--cluster"),
    "Cluster.racks": ("the number of GPUs", "--gpus"),
    "Job.precision": ("the precision", ""),
    "Layout.dp_replicate": ("the number of GPUs", "--gpus"),
    "Layout.dp_shard": ("the number of GPUs", "--gpus"),
    "Layout.recompute": ("the activation recomputation", ""),
    "Layout.schedule": ("the pipeline schedule", ""),
    "Layout.split": ("the split of layers into stages", ""),
    "Layout.zero_stage": ("the ZeRO stage", ""),
    "Model.attention": ("the number of attention heads", "--model"),
    "Model.experts": ("the number of experts", "--model"),
    "Model.ffn": ("the MLP width", "--model"),
    "NodeType.gpus": ("the number of GPUs per host", "--cluster"),
    "NodeType.nvlink_domain": ("the size of an NVLink domain", "--cluster"),
    "ServingProblem.goals": ("the memory share of the engine", ""),
    "ServingProblem.service": ("a format of weights or cache, or the context length", ""),
    "ServingSetup.block": ("the block size of weight scales", ""),
}
"""Field of an IR type -> what it is, and the option of ``parc lint`` that supplies it if any."""
CLUSTER_TYPES = ("Cluster", "NodeType", "Gpu", "Fabric")
"""IR types that ``--cluster`` supplies; ``--model`` supplies the other ones."""


def describe_missing_fact(field: str, flags: Mapping[str, str]) -> tuple[str, str]:
    """Return what ``field`` (``Model.heads``) is, and the option that supplies it if there is one.

    Args:
        field: IR type and field.
        flags: spec field -> the flag that sets it in a launch file.
    """
    if field in FACTS:
        return FACTS[field]
    ir_type, _, name = field.partition(".")
    flag = flags.get(f"{SECTIONS.get(ir_type, '')}.{name}")
    if flag is not None:
        return f"the value of {flag}", "--model" if ir_type == "Model" else ""
    if ir_type in CLUSTER_TYPES:
        return "the cluster", "--cluster"
    return "the model", "--model"
