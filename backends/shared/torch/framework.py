"""What PyTorch's own frameworks answer alike: fsdp, torchtitan and accelerate extend this class."""

from __future__ import annotations

from typing import ClassVar

from parc.backends.shared.plain_split import one_stage, why_not_one_stage
from parc.backends.shared.render import render
from parc.backends.shared.torch import memory as torch_memory
from parc.backends.shared.torch import mesh as torch_mesh
from parc.backends.shared.torch.variants import variants
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    NO_RECOMPUTE,
    Artifact,
    ContextComm,
    Family,
    GradientExchange,
    Layout,
    Mesh,
    Model,
    Plan,
    Problem,
    ProgramMemory,
    Recompute,
    Split,
    Stack,
    Variant,
)


def learning_rate_file(folder: str) -> Artifact:
    """``learning_rate.py``, which emitted programs import from beside them."""
    return Artifact(f"{folder}/learning_rate.py", render("torch", "learning_rate.py.j2", {}))


class TorchFramework:
    """A device mesh, fully sharded data parallelism over it, and no pipeline."""

    name: ClassVar[str]
    stack = Stack("torch-native")
    gradient_exchange = GradientExchange(reduces_replicas_once=True)
    cp_comm: ClassVar[ContextComm]
    """How context ranks see all keys, where the spec does not say."""
    axes: ClassVar[tuple[str, ...]]
    """Families of the mesh, those of the columns of the rank map first."""

    def default_program(self, model: Model, version: str) -> str:
        """None: ``emit`` writes one."""
        return ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The order of ``init_device_mesh``."""
        return (torch_mesh.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """FSDP, hybrid shards, weights that stay gathered, DDP."""
        return variants(problem, (3, 2, 0), self.cp_comm)

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, or every layer."""
        return (NO_RECOMPUTE, Recompute("full", (), "uniform", 1))

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """The device mesh, and that of experts where there are some."""
        return torch_mesh.meshes(layout)

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Axes of the mesh, and the flattened ones."""
        return torch_mesh.families(*self.axes)

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Everything on one stage."""
        return one_stage(problem.model, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Pipelines are not this framework's."""
        return why_not_one_stage(self.name, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Nothing beside what every run of torch has."""
        return ()

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the emitted decoder under FSDP2 or DDP."""
        return torch_memory.plain_fsdp2()

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Nothing is padded."""
        return model.vocab

    def check(self, plan: Plan, sink: Sink) -> None:
        """The rules say all there is."""
