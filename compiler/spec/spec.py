"""Root models of a spec, version 1 of the spec language."""

from typing import Annotated, Literal

from pydantic import Field

from parc.compiler.spec.base import NotBool, StrictModel
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.job_spec import GoalsSpec, JobSpec
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import LayoutSpec
from parc.compiler.spec.model_spec import ModelSpec

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Name of a run, which must be a valid folder name: it contains no slash and does not start with a
dot."""


class TaskSpec(StrictModel):
    """Keys that training specs and serving specs share."""

    parc: Annotated[Literal[1], NotBool]
    """Version of the spec language. The only valid value is 1."""
    name: RunName
    """Name of the run and of its output folder. Valid characters: letters, digits, dot, dash,
    underscore; the first one must be a letter or a digit."""
    model: str | ModelSpec
    """Model: a catalog name, the path of a Hugging Face config.json, the id of a model of the
    Hugging Face hub (ORG/NAME) that was downloaded or is in the catalog, or a mapping. A mapping
    with base changes some values of another model."""
    cluster: str | ClusterSpec
    """Cluster: a catalog name, or a mapping. A list of clusters makes PARC plan the job on each of
    them and choose the best one by goals.maximize."""
    site: str | None = None
    """Settings of the computing site, which several specs share: a preset that `parc catalog sites`
    lists, or the path of a site file. `parc schema site` prints the keys of the file. Values of the
    spec take precedence."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Target version of each backend: {megatron: "0.19", slurm: "24.11"}. A backend that is not
    listed has the default version that `parc backends` prints."""
    # None instead of a list, because the default depends on the kind of the job.
    emit: tuple[str, ...] | None = None
    """Targets: the frameworks, engines, launchers and reports to write files for. If absent:
    megatron, preflight, rankmap, slurm and torchrun for a training job; rankmap and vllm for a
    serving job."""


class Spec(TaskSpec):
    """Spec of a training job: model, hardware, run, layout, launch, and backends to emit."""

    job: JobSpec
    """Training run: kind, batch, precision, hyperparameters, data and checkpoints."""
    goals: GoalsSpec = GoalsSpec.with_defaults()
    """Objective of the search, memory headroom, and limits on parallel sizes."""
    layout: LayoutSpec = LayoutSpec.with_defaults()
    """Fixed values of the layout. The search decides all other values."""
    launch: LaunchSpec = LaunchSpec.with_defaults()
    """Program, extra arguments, environment, and settings of the schedulers."""
