"""The whole spec, version 1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parc.compiler.spec.base import Strict
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.job_spec import GoalsSpec, JobSpec
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.layout_spec import LayoutSpec
from parc.compiler.spec.model_spec import ModelSpec
from parc.compiler.spec.numbers import NotBool

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""It names a folder, so it can be neither a path nor a dot."""


class TaskSpec(Strict):
    """What training and serving have in common: names, and what to emit."""

    parc: Annotated[Literal[1], NotBool]
    """Version of the spec language."""
    name: RunName
    """Name of the run: letters, digits, dot, dash, underscore; it names the output folder."""
    model: str | ModelSpec
    """Catalog name, path to a Hugging Face config.json, or a mapping with base: and changes."""
    cluster: str | ClusterSpec
    """Catalog name of a cluster, or a mapping."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Target versions: {megatron: "0.19", slurm: "24.11"}; absent: the default that
    `parc backends` shows."""
    emit: tuple[str, ...] | None = None
    """Backends whose files are written; absent: megatron, preflight, rankmap, slurm and
    torchrun for a training job, rankmap and vllm for one that serves."""


class Spec(TaskSpec):
    """What to train, on what, how, and what to emit."""

    job: JobSpec
    """The run: what kind, how long the sequences, how large the batch, in which precision."""
    goals: GoalsSpec = GoalsSpec()
    """What decides between layouts, and how much memory stays free."""
    layout: LayoutSpec = LayoutSpec()
    """Pins; what is not pinned is decided."""
    launch: LaunchSpec = LaunchSpec()
    """The program, its extra arguments and environment, and the Slurm directives."""
