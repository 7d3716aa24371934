"""Base class of the backends fsdp, torchtitan and accelerate."""

from __future__ import annotations

from typing import ClassVar

from parc.backends.plain_framework import PlainFramework
from parc.backends.shared.pipeline_split import explain_no_pipeline, single_stage_split
from parc.backends.shared.render import render
from parc.backends.shared.torch import memory as torch_memory
from parc.backends.shared.torch import mesh as torch_mesh
from parc.backends.shared.torch.variants import torch_variants
from parc.compiler.diagnostics import CodedFinding
from parc.compiler.ir import (
    Artifact,
    ContextComm,
    GradientExchange,
    GroupFamily,
    KernelStack,
    Layout,
    LayoutVariant,
    Mesh,
    PipelineSplit,
    Problem,
    ProgramMemory,
)


def learning_rate_file(folder: str) -> Artifact:
    """Return the file ``<folder>/learning_rate.py``, a module that the emitted program imports."""
    return Artifact(f"{folder}/learning_rate.py", render("torch", "learning_rate.py.j2", {}))


class TorchFramework(PlainFramework):
    """A framework with a device mesh and fully sharded data parallelism, but no pipeline."""

    orders = (torch_mesh.ORDER,)
    # Tokens are permuted by index operators of torch (torchtitan, token_dispatcher.py).
    stack = KernelStack("torch-native", properties={"fused_routing": False})
    # The emitted programs call FSDP2's set_requires_all_reduce, so replicas reduce once per step.
    gradient_exchange = GradientExchange(
        reduces_replicas_once=True, scatters_accumulated_format=True
    )
    cp_comm: ClassVar[ContextComm]
    """Context parallel communication if the spec does not set ``cp_comm``."""
    axes: ClassVar[tuple[str, ...]]
    """Names of the group families; those with a column in the rank map come first."""

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return the sharding variants to try: FSDP, hybrid sharding, ZeRO-2 and DDP."""
        return torch_variants(problem, (3, 2, 0), self.cp_comm)

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return (device mesh of the dense layers, device mesh of the experts)."""
        return torch_mesh.dense_and_expert_mesh(layout)

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of process groups.

        A family contains all groups along the same mesh axes.
        """
        return torch_mesh.families_with_names(*self.axes)

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return the split into one stage with all layers; None if ``pp`` or ``vpp`` is above 1."""
        return single_stage_split(problem.model, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why pp and vpp must be 1."""
        return explain_no_pipeline(self.name, pp, vpp)

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the decoder program that PARC emits, under FSDP2 or DDP."""
        return torch_memory.emitted_decoder_memory()

    def padded_vocab(self, problem: Problem, tp: int) -> int:
        """Return the model's vocabulary size, because these frameworks do not pad the embedding."""
        return problem.model.vocab
