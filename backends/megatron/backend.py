"""Backend of Megatron-LM."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.megatron import memory, meshes, programs
from parc.backends.megatron.advice import advise
from parc.backends.megatron.arguments.args_file import PATH, args_file
from parc.backends.megatron.arguments.arguments import arguments
from parc.backends.megatron.arguments.environment import environment
from parc.backends.megatron.arguments.extra_arguments import check_extra
from parc.backends.megatron.capabilities import (
    DEFAULT_VERSION,
    STRATEGIES,
    VERSIONS,
    recompute_levels,
)
from parc.backends.megatron.rules.all_rules import rules
from parc.backends.megatron.rules.express import another_model
from parc.backends.megatron.stages import split
from parc.backends.megatron.stages.why_no_split import why_no_split
from parc.backends.shared.render import shell_word
from parc.backends.shared.variants import apply_pins
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    Artifact,
    GradientExchange,
    GroupFamily,
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
from parc.compiler.ir.rule import Rule


class Megatron:
    """Backend ``megatron``: arguments for ``pretrain_gpt.py`` and ``pretrain_hybrid.py``."""

    name = "megatron"
    versions = VERSIONS
    default_version = DEFAULT_VERSION
    strategies = STRATEGIES
    stack = Stack("transformer-engine")
    gradient_exchange = GradientExchange()

    def default_program(self, model: Model, version: str) -> str:
        """Return Megatron's program that builds ``model``."""
        return programs.default_program(model, version)

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """Return the two rank orders that flags can select, the default first."""
        return meshes.ORDERS

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """Return the distributed optimizer over all replicas; None: the fastest ``cp_comm``."""
        return apply_pins(problem, (Variant(cp_comm=None),))

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return no recompute, cheap modules, expensive modules, all layers."""
        return recompute_levels(problem.model)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules of a valid layout."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return the dense and the expert mesh."""
        return meshes.meshes(layout)

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the process groups that Megatron creates."""
        return meshes.families(layout)

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Return the split of the layers; None if there is none for this grid."""
        return split.find_split(problem, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Return code, spec path and finding for a grid for which ``splits`` returns None."""
        return why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return the environment variables that Megatron requires."""
        return environment(plan)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the user's or Megatron's program with the arguments of ``megatron/args.sh``."""
        return LaunchCommand(
            program=shell_word(plan.problem.launch.program),
            args='"${MEGATRON_ARGS[@]}"',
            setup=("# shellcheck source=/dev/null", f'source "$here/../{PATH}"'),
            graceful_stop_test=f'grep -qs -e --exit-signal-handler "$PARC_DIR/{PATH}"',
        )

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Megatron-Core with TransformerEngine."""
        return memory.program_memory(problem)

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Return the rows of the embedding after padding."""
        return programs.padded_vocab(model, tp)

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report advice on the plan, and errors in the program and its extra arguments."""
        advise(plan, sink)
        problem = plan.problem
        programs.check_program(plan, sink)
        if problem.model.left_out and self.name in problem.emit:
            sink.report("E07", another_model(problem.model), at="model")
        if problem.launch.args:
            planned = arguments(problem, plan.layout)
            check_extra(problem.launch.args, planned, problem.version(self.name), sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``megatron/args.sh``."""
        return (args_file(plan),)


BACKEND = Megatron()
