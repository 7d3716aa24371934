"""Options of ``parc lint``: facts about a launch that its file does not contain.

``describe_missing_fact`` returns the words for such a fact, and the option that supplies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LintOptions:
    """Options as the user gives them; None or empty means unknown."""

    framework: str = "auto"
    """Backend that the file starts; none: check only the launch lines; auto: detect it."""
    model: str | None = None
    """Catalog name, or path to a config.json."""
    cluster: str | None = None
    """Catalog name of a cluster or of a node type."""
    gpus: int | None = None
    """Number of GPUs of the job."""
    version: str = ""
    """Version of the framework; empty: its default."""
    folder: Path | None = None
    """Folder that the path of a model is relative to."""


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that was not checked, because it needs an unknown fact."""

    code: str
    fact: str
    """The unknown fact: ``the value of --micro-batch-size``, ``the GPU type``."""
    option: str = ""
    """Option of ``parc lint`` that supplies the fact; empty if none does."""

    @property
    def reason(self) -> str:
        """The fact, and how to supply it."""
        advice = f" Pass {self.option}." if self.option else ""
        return f"{self.fact} is unknown.{advice}"


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
