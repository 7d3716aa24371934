"""A field that a rule asked for and nobody told, in the words of who wrote the script."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS = {"Layout": "layout", "ServingLayout": "layout", "Job": "job", "Model": "model"}
"""Noun -> section of the spec whose keys its fields are called like."""
FIELDS = {
    "Attention.latent": "whether attention is latent (--model)",
    "Cluster.fabric": "the network (--cluster)",
    "Cluster.gpu": "the kind of GPU (--cluster)",
    "Cluster.racks": "the number of GPUs (--gpus)",
    "Job.precision": "the precision",
    "Layout.dp_replicate": "the number of GPUs (--gpus)",
    "Layout.dp_shard": "the number of GPUs (--gpus)",
    "Layout.recompute": "what is recomputed",
    "Layout.schedule": "the virtual stages of a pipeline",
    "Layout.split": "how layers are cut into stages",
    "Layout.zero_stage": "whether the optimizer is sharded",
    "Model.attention": "the attention heads (--model)",
    "Model.experts": "whether the model has experts (--model)",
    "Model.ffn": "the width of the MLP (--model)",
    "NodeType.gpus": "the GPUs of a host (--cluster)",
    "NodeType.nvlink_domain": "the GPUs that NVLink joins (--cluster)",
    "ServingProblem.goals": "the memory that the engine leaves alone",
    "ServingProblem.service": "formats and lengths, in numbers",
    "ServingSetup.block": "the blocks of the scales",
}
OPTION_OF_TYPE = {
    "Cluster": "cluster",
    "NodeType": "cluster",
    "Gpu": "cluster",
    "Fabric": "cluster",
}
"""Noun -> option of ``parc lint`` that says it; the others say the model."""


def in_words(field: str, flags: Mapping[str, str]) -> str:
    """What would have to be known for ``field`` (``Model.heads``).

    Args:
        field: noun and field, as ``asked`` found them.
        flags: path of the spec -> the flag that says it.
    """
    noun, _, name = field.partition(".")
    flag = flags.get(f"{SECTIONS.get(noun, '')}.{name}")
    if field in FIELDS:
        return FIELDS[field]
    if flag is not None:
        return f"{flag} (--model)" if noun == "Model" else flag
    option = OPTION_OF_TYPE.get(noun, "model")
    return f"the {option} (--{option})"
