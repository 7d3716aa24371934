"""The face of the fsdp backend: torch alone."""

from __future__ import annotations

from parc.backends import torch_mesh
from parc.backends.base import Start
from parc.backends.fsdp.files import FOLDER, emit
from parc.backends.fsdp.rules import rules
from parc.backends.plain_split import one_stage, why_not_one_stage
from parc.backends.render import shell_word
from parc.backends.torch_variants import variants
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    NO_RECOMPUTE,
    Artifact,
    Family,
    Layout,
    Mesh,
    Model,
    Plan,
    Problem,
    Recompute,
    Split,
    Variant,
)
from parc.compiler.ir.rule import Rule


class Fsdp:
    """DDP, FSDP2 and tensor parallelism of PyTorch, in a program that is emitted or the user's."""

    name = "fsdp"
    versions = ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13")
    """PyTorch releases."""
    default_version = "2.13"
    strategies = {  # noqa: RUF012
        "dp": "mesh axis dp_replicate",
        "zero-2": "reshard_after_forward=False",
        "zero-3": "fully_shard",
        "hsdp": "fully_shard on dp_replicate x dp_shard",
        "tp": "parallelize_module",
        "sp": "SequenceParallel",
        "recompute-full": "checkpoint_wrapper",
    }
    runtime = "fsdp2"
    stack = "fsdp"
    default_program = ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The order of ``init_device_mesh``."""
        return (torch_mesh.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """FSDP, hybrid shards, weights that stay gathered, DDP."""
        return variants(problem, (3, 2, 0), "p2p")

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, or every layer."""
        return (NO_RECOMPUTE, Recompute("full", (), "uniform", 1))

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """The device mesh; there are no experts apart."""
        return torch_mesh.meshes(layout)

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Axes of the mesh, and all data-parallel ranks together."""
        return torch_mesh.families("dp-replicate", "dp-shard", "tp", "dp")

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Everything on one stage."""
        return one_stage(problem.model, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Pipelines are not this backend's."""
        return why_not_one_stage(self.name, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Nothing beside what every run of torch has."""
        return ()

    def start(self, plan: Plan) -> Start:
        """train.py as emitted, or the user's program, which can import what is emitted."""
        words = " ".join(map(shell_word, plan.problem.launch.args))
        own = plan.problem.launch.program
        if not own:
            return Start(program=f'"$here/../{FOLDER}/train.py"', args=words)
        path = f'export PYTHONPATH="$here/../{FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"'
        return Start(program=shell_word(own), args=words, before=(path,))

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Nothing is padded."""
        return model.vocab

    def check(self, plan: Plan, sink: Sink) -> None:
        """The rules say all there is."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """``fsdp/config.json`` and the Python that reads it."""
        return emit(plan)


BACKEND = Fsdp()
