"""The face of the Megatron-LM backend."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.megatron import meshes, programs
from parc.backends.megatron.advice import advise
from parc.backends.megatron.arguments import environment, vocab
from parc.backends.megatron.arguments.args_file import PATH, args_file
from parc.backends.megatron.arguments.arguments import arguments
from parc.backends.megatron.arguments.extra_arguments import check_extra
from parc.backends.megatron.recomputes import recomputes
from parc.backends.megatron.rules.all_rules import rules
from parc.backends.megatron.rules.express import another_model
from parc.backends.megatron.stages import split
from parc.backends.megatron.stages.why_no_split import why_no_split
from parc.backends.megatron.strategies import STRATEGIES
from parc.backends.megatron.versions import DEFAULT, VERSIONS
from parc.backends.shared.render import shell_word
from parc.backends.shared.variants import apply_pins
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
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


class Megatron:
    """Megatron-LM, as ``pretrain_gpt.py`` of Megatron-Core reads its arguments."""

    name = "megatron"
    versions = VERSIONS
    default_version = DEFAULT
    strategies = STRATEGIES
    runtime = "megatron"
    stack = "megatron"
    copies_wait = False

    def default_program(self, model: Model, version: str) -> str:
        """Megatron's own for this kind of model."""
        return programs.default_program(model, version)

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The two rank orders that the command line reaches, the default first."""
        return meshes.ORDERS

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """The distributed optimizer over all replicas, context ranks by what is fastest."""
        return apply_pins(problem, (Variant(cp_comm=None),))

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, light modules, heavy ones, all layers."""
        return recomputes(problem.model)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Dense and expert mesh."""
        return meshes.meshes(layout)

    def families(self, layout: Layout) -> tuple[Family, ...]:
        """Groups that Megatron creates."""
        return meshes.families(layout)

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """The split of the layers; None where this grid cannot be had."""
        return split.find_split(problem, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Why ``splits`` gives None."""
        return why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Variables that Megatron asks for."""
        return environment.environment(plan)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """``pretrain_gpt.py`` or its like with the arguments of ``megatron/args.sh``."""
        return LaunchCommand(
            program=shell_word(plan.problem.launch.program),
            args='"${MEGATRON_ARGS[@]}"',
            setup=("# shellcheck source=/dev/null", f'source "$here/../{PATH}"'),
            graceful_stop_test=f'grep -qs -e --exit-signal-handler "$PARC_DIR/{PATH}"',
        )

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Rows of the embedding after padding."""
        return vocab.padded_vocab(model, tp)

    def check(self, plan: Plan, sink: Sink) -> None:
        """Warnings and advice on the plan, and errors in the program and its extra arguments."""
        advise(plan, sink)
        problem = plan.problem
        programs.check_program(plan, sink)
        if problem.model.left_out and self.name in problem.emit:
            sink.report("E07", another_model(problem.model), at="model")
        if problem.launch.args:
            planned = arguments(problem, plan.layout)
            check_extra(problem.launch.args, planned, problem.version(self.name), sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """``megatron/args.sh``."""
        return (args_file(plan),)


BACKEND = Megatron()
