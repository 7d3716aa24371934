"""Options of ``parc lint``, and descriptions of facts that a launch file does not contain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parc.compiler.ir.frozen import frozen


@frozen
class LintOptions:
    """Options of ``parc lint``; None or an empty text if the user did not set the option."""

    framework: str = "auto"
    """Backend that the file starts. ``auto``: detect it; ``none``: check only the launch lines."""
    model: str | None = None
    """Catalog name of the model, or path of its ``config.json``."""
    cluster: str | None = None
    """Catalog name of a cluster or of a node type."""
    gpus: int | None = None
    """Number of GPUs of the job."""
    gpus_per_node: int | None = None
    """Number of GPUs per host that the script requests; no option of ``parc lint`` sets it."""
    version: str = ""
    """Version of the framework; empty for the default version of the backend."""
    allow_unknown: bool = False
    """True if a file that PARC cannot check at all is accepted."""
    folder: Path | None = None
    """Folder that the path of a model is relative to."""


@frozen
class SkippedRule:
    """Rule that was not checked because it needs an unknown fact."""

    code: str
    """Code of the rule; empty for all rules on the layout."""
    fact: str
    """The unknown fact: ``the value of --micro-batch-size``, ``the GPU type``."""
    option: str = ""
    """Option of ``parc lint`` that supplies the fact; empty if none does."""

    @property
    def reason(self) -> str:
        """Reason why the rule is skipped, as sentences for a message."""
        advice = f" Pass {self.option}." if self.option else ""
        return f"{self.fact} is unknown.{advice}"


SECTIONS = {
    **{"Layout": "layout", "ServingLayout": "layout", "Job": "job", "Model": "model"},
    "Experts": "model.experts",
}
"""IR type -> section of the spec whose keys have the names of the type's fields."""
# Facts for which the name of the field is not the usual term, or that no flag sets.
FACTS = {
    "Attention.latent": ("the type of attention", "--model"),
    "Cluster.fabric": ("the network", "--cluster"),
    "Cluster.gpu": ("the GPU type", "--cluster"),
    "Cluster.racks": ("the number of GPUs", "--gpus"),
    "Job.precision": ("the precision", ""),
    "Layout.dp_replicate": ("the number of GPUs", "--gpus"),
    "Layout.dp_shard": ("the number of GPUs", "--gpus"),
    "Layout.gtp": ("the generalized tensor parallel size", ""),
    "Layout.recompute": ("the activation recomputation", ""),
    "Layout.schedule": ("the pipeline schedule", ""),
    "Layout.split": ("the split of layers into stages", ""),
    "Layout.zero_stage": ("the ZeRO stage", ""),
    "Model.attention": ("the number of attention heads", "--model"),
    "Model.experts": ("the number of experts", "--model"),
    "Model.ffn": ("the MLP width", "--model"),
    "NodeType.gpus": ("the number of GPUs per host", "--cluster"),
    "NodeType.nvlink_domain": ("the size of an NVLink domain", "--cluster"),
    "Plan.placement": ("the number of GPUs", "--gpus"),
    "ServingPlan.limits": ("the number of tokens per step", ""),
    "ServingPlan.placement": ("the number of GPUs", "--gpus"),
    "ServingProblem.goals": ("the memory share of the engine", ""),
    "ServingProblem.pins": ("the backend of the expert exchange", ""),
    "ServingProblem.service": (
        "the format of the weights or the cache, or the context length,",
        "",
    ),
    "ServingSetup.block": ("the block size of weight scales", ""),
}
"""Field of an IR type -> (description, option of ``parc lint`` that supplies it or empty)."""
CLUSTER_TYPES = ("Cluster", "NodeType", "Gpu", "Fabric")
"""IR types that ``--cluster`` supplies; ``--model`` supplies the other IR types."""


OF_MODELS = ("Model", "Attention", "Experts", "Ffn")
PLANNED = ("Layout", "Job", "Plan", "ServingLayout", "ServingPlan", "Endpoint", "Pins")
"""IR types that no option of ``parc lint`` supplies."""


def describe_missing_fact(field: str, flags: Mapping[str, str]) -> tuple[str, str]:
    """Return (description of a fact, option that supplies the fact).

    The fact is the value of ``field``, which is unknown. The option is empty if no command-line
    option can supply the value.

    Args:
        field: IR type and field, such as ``Model.heads``.
        flags: spec field -> flag of the launch file that sets the field.
    """
    if field in FACTS:
        return FACTS[field]
    ir_type, _, name = field.partition(".")
    if ir_type in ("Service", "ServingSetup"):
        return FACTS["ServingProblem.service"]
    flag = flags.get(f"{SECTIONS.get(ir_type, '')}.{name}")
    if flag is not None:
        return f"the value of {flag}", "--model" if ir_type in OF_MODELS else ""
    if ir_type in CLUSTER_TYPES:
        return "the cluster", "--cluster"
    if ir_type in PLANNED:
        return "a setting of the launch", ""
    return "the model", "--model"
