"""The face of the accelerate backend."""

from __future__ import annotations

from parc.backends import torch_mesh
from parc.backends.accelerate.files import emit
from parc.backends.accelerate.launch import environment, start
from parc.backends.accelerate.rules import rules
from parc.backends.base import Start
from parc.backends.plain_split import one_stage, why_not_one_stage
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


class Accelerate:
    """Hugging Face Accelerate with FSDP2 and its ParallelismConfig."""

    name = "accelerate"
    versions = ("1.12", "1.13", "1.14", "1.15")
    default_version = "1.15"
    strategies = {  # noqa: RUF012
        "dp": "distributed_type: MULTI_GPU",
        "zero-2": "fsdp_reshard_after_forward: false",
        "zero-3": "fsdp_version: 2",
        "hsdp": "parallelism_config_dp_replicate_size x _dp_shard_size",
        "tp": "parallelism_config_tp_size",
        "cp-p2p": "parallelism_config_cp_comm_strategy: alltoall",
        "cp-all-gather": "parallelism_config_cp_comm_strategy: allgather",
        "recompute-full": "fsdp_activation_checkpointing: true",
    }
    runtime = "fsdp2"
    stack = "fsdp"
    default_program = ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The order of ParallelismConfig."""
        return (torch_mesh.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """FSDP, hybrid shards, weights that stay gathered, DDP; what the gradients allow."""
        return variants(problem, (3, 2, 0), "all_gather")

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, or every layer."""
        return (NO_RECOMPUTE, Recompute("full", (), "uniform", 1))

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """The mesh of ParallelismConfig; there are no experts apart."""
        return torch_mesh.meshes(layout)

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Axes of the mesh, and the flattened ones."""
        axes = ("dp-replicate", "dp-shard", "cp", "tp")
        return torch_mesh.families(*axes, "dp", "dp-shard-cp", "dp-cp")

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Everything on one stage."""
        return one_stage(problem.model, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Pipelines are not this backend's."""
        return why_not_one_stage(self.name, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """How many micro-batches a step has: the config file has no word for it."""
        return environment(plan)

    def start(self, plan: Plan) -> Start:
        """``accelerate launch`` on every host, each with its machine rank."""
        return start(plan)

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Nothing is padded."""
        return model.vocab

    def check(self, plan: Plan, sink: Sink) -> None:
        """The rules say all there is."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """``accelerate/config.yaml``, ``job.json`` and, without a program, ``train.py``."""
        return emit(plan)


BACKEND = Accelerate()
