"""The face of the torchtitan backend."""

from __future__ import annotations

from parc.backends import torch_mesh
from parc.backends.base import Start
from parc.backends.render import shell_word
from parc.backends.torch_variants import variants
from parc.backends.torchtitan.module_file import FOLDER, MODULE, module_file
from parc.backends.torchtitan.rules import OPERATORS, rules
from parc.backends.torchtitan.split import find_split, why_no_split
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


class Torchtitan:
    """torchtitan, started with a module that holds its configuration."""

    name = "torchtitan"
    versions = ("0.3.0",)
    """Releases of PyPI. The form of the configuration changes with each of them."""
    default_version = "0.3.0"
    strategies = {  # noqa: RUF012
        "dp": "data_parallel_replicate_degree",
        "zero-2": 'fsdp_reshard_after_forward="never"',
        "zero-3": "data_parallel_shard_degree",
        "hsdp": "data_parallel_replicate_degree x data_parallel_shard_degree",
        "tp": "tensor_parallel_degree",
        "sp": "enable_sequence_parallel",
        "cp-all-gather": "context_parallel_degree",
        "gpipe": "pipeline_parallel_schedule GPipe",
        "1f1b": "pipeline_parallel_schedule 1F1B",
        "interleaved": "pipeline_parallel_schedule Interleaved1F1B",
        "zb-h1": "pipeline_parallel_schedule InterleavedZeroBubble",
        "zb-v": "pipeline_parallel_schedule ZBVZeroBubble",
        "dualpipe-v": "pipeline_parallel_schedule DualPipeV",
        "ep": "expert_parallel_degree",
        "recompute-selective": "SelectiveAC",
        "recompute-full": "FullAC",
    }
    runtime = "fsdp2"
    stack = "fsdp"
    default_program = ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The order of ParallelDims."""
        return (torch_mesh.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """FSDP, hybrid shards, weights that stay gathered, replicas."""
        return variants(problem, (3, 2, 0), "all_gather")

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, operators, every layer."""
        selective = Recompute("selective", OPERATORS)
        return (NO_RECOMPUTE, selective, Recompute("full", (), "uniform", 1))

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """The dense and the sparse mesh of ParallelDims."""
        return torch_mesh.meshes(layout)

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Axes of both meshes, and the flattened ones."""
        axes = ("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp")
        return torch_mesh.families(*axes, "dp", "dp-shard-cp", "dp-cp")

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Even, the embedding and the head counted as a layer each."""
        return find_split(problem, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Why ``splits`` gives None."""
        return why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Nothing beside what every run of torch has."""
        return ()

    def start(self, plan: Plan) -> Start:
        """``torchtitan.train`` with the emitted module, or the user's program in its place."""
        words = ("--module", MODULE, "--config", "run", *plan.problem.launch.args)
        path = f'export PYTHONPATH="$here/../{FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"'
        args = " ".join(map(shell_word, words))
        own = plan.problem.launch.program
        if own:
            return Start(program=shell_word(own), args=args, before=(path,))
        return Start(program="", module="torchtitan.train", args=args, before=(path,))

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Nothing is padded."""
        return model.vocab

    def check(self, plan: Plan, sink: Sink) -> None:
        """The rules say all there is."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """``torchtitan/parc_titan.py``."""
        return (module_file(plan),)


BACKEND = Torchtitan()
