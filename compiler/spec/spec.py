"""Root models of the spec, version 1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parc.compiler.spec.base import NotBool, Strict
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.job_spec import GoalsSpec, JobSpec
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import LayoutSpec
from parc.compiler.spec.model_spec import ModelSpec

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Name of a run, which must be a valid folder name: neither a path nor a dot."""


class TaskSpec(Strict):
    """Common part of training and serving specs."""

    parc: Annotated[Literal[1], NotBool]
    """Version of the spec language. Valid value: 1."""
    name: RunName
    """Name of the run, and of the output folder. Valid characters: letters, digits, dot, dash,
    underscore."""
    model: str | ModelSpec
    """Catalog name, path to a Hugging Face config.json, or a mapping (with base: to change one)."""
    cluster: str | ClusterSpec
    """Catalog name of a cluster, or a mapping."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Target version per backend: {megatron: "0.19", slurm: "24.11"}. If absent, the default
    version that `parc backends` lists."""
    emit: tuple[str, ...] | None = None
    """Backends whose files are written. If absent, megatron, preflight, rankmap, slurm and torchrun
    for a training job, rankmap and vllm for a serving job."""


class Spec(TaskSpec):
    """Spec of a training job: model, hardware, run, layout, launch, and backends to emit."""

    job: JobSpec
    """Training run: kind, batch, precision, hyperparameters, data and checkpoints."""
    goals: GoalsSpec = GoalsSpec()
    """Objective of the search, memory headroom, and limits on parallel sizes."""
    layout: LayoutSpec = LayoutSpec()
    """Pinned values of the layout. The search decides all other values."""
    launch: LaunchSpec = LaunchSpec()
    """Program, extra arguments, environment, and settings of the schedulers."""
