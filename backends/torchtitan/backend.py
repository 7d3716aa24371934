"""The backend ``torchtitan``, which emits a Python module that configures a training run."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.shared.pipeline_split import split_with_counts
from parc.backends.shared.render import shell_word
from parc.backends.shared.torch.framework import TorchFramework
from parc.backends.shared.torch.traffic import compiled_traffic
from parc.backends.torchtitan.extra_arguments import check_launch_args
from parc.backends.torchtitan.flavors import report_changed_flavor
from parc.backends.torchtitan.memory import torchtitan_memory
from parc.backends.torchtitan.module_file import FOLDER, MODULE, module_file
from parc.backends.torchtitan.rules import OPERATORS, torchtitan_rules
from parc.backends.torchtitan.split import find_split, why_no_split
from parc.compiler.diagnostics import CodedFinding, Sink
from parc.compiler.ir import (
    NO_RECOMPUTE,
    Artifact,
    GradientExchange,
    PipelineSplit,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
    Recompute,
)
from parc.compiler.ir.rule import Rule


class Torchtitan(TorchFramework):
    """The backend ``torchtitan``, which trains with PyTorch's torchtitan."""

    name = "torchtitan"
    versions = ("0.3.0",)
    """Releases on PyPI. Only one is supported, because every release changes the configuration."""
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
    # The trainer never calls set_requires_all_reduce, so that replicas reduce every micro-batch.
    gradient_exchange = GradientExchange(
        keeps_pipeline_gradients=True, scatters_accumulated_format=True
    )
    cp_comm = "all_gather"
    axes = (
        *("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp"),
        *("dp", "dp-shard-cp", "dp-cp"),
    )

    def recompute_settings(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return the three recompute settings: none, selective (by operator), and full."""
        selective = Recompute.selective(OPERATORS)
        return (NO_RECOMPUTE, selective, Recompute("full", (), "uniform", 1))

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that torchtitan's layouts for ``problem`` must satisfy."""
        return torchtitan_rules(problem)

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of torchtitan's trainer, which is the same for all problems."""
        return torchtitan_memory()

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of compiled layers under FSDP2."""
        return compiled_traffic()

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return the even split of the layers into pipeline stages; None if no split is valid.

        The embedding and the head count as one layer each.
        """
        return find_split(problem, pp, vpp)

    def split_with_counts(
        self, problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
    ) -> PipelineSplit | None:
        """Return the split with these numbers of layers; None if the spec sets some of them."""
        return split_with_counts(problem, split, counts)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why no split is valid."""
        return why_no_split(problem, pp, vpp)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that runs ``torchtitan.train``, or the program that the spec names.

        The arguments of the command name the emitted module, from which the program reads its
        settings.
        """
        # ``--module`` accepts any importable module (torchtitan/config/manager.py).
        words = ("--module", MODULE, "--config", "run", *plan.problem.launch.args)
        path = f'export PYTHONPATH="$here/../{FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"'
        args = " ".join(map(shell_word, words))
        own = plan.problem.launch.program
        if own:
            return LaunchCommand(program=shell_word(own), args=args, setup=(path,))
        return LaunchCommand(program="", module="torchtitan.train", args=args, setup=(path,))

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report changes to the model without effect (E14), and invalid ``launch.args``.

        If torchtitan's registry has a model with the same sizes, torchtitan uses that model
        instead.
        """
        super().check(plan, sink)
        if not plan.problem.launch.program:  # the user's program can define any option
            check_launch_args(plan, sink)
        report_changed_flavor(plan.problem.model, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``torchtitan/parc_titan.py``, the module that configures the training run."""
        return (module_file(plan),)


BACKEND = Torchtitan()
