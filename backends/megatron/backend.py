"""Backend of Megatron-LM."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.base import LaunchCommand
from parc.backends.megatron import memory, meshes, programs
from parc.backends.megatron.advice import report_advice
from parc.backends.megatron.arguments.environment import megatron_environment, refused_environment
from parc.backends.megatron.capabilities import (
    DEFAULT_VERSION,
    FSDP_STAGES,
    STRATEGIES,
    VERSIONS,
    recompute_levels,
    sharing_variants,
)
from parc.backends.megatron.graphs import captured_graphs, graphs_save_time
from parc.backends.megatron.rules.all_rules import megatron_rules
from parc.backends.megatron.stages import split
from parc.backends.megatron.stages.split import split_with_counts
from parc.backends.megatron.tokenizers import padded_vocab
from parc.backends.megatron.traffic import MEGATRON_TRAFFIC
from parc.backends.plain_framework import PlainFramework
from parc.backends.shared.variants import apply_pins
from parc.compiler.diagnostics import CodedFinding, Sink
from parc.compiler.ir import (
    Artifact,
    CapturedGraphs,
    GradientExchange,
    GroupFamily,
    KernelStack,
    Layout,
    LayoutVariant,
    Mesh,
    Model,
    PipelineSplit,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
    Recompute,
)
from parc.compiler.ir.rule import Rule


class Megatron(PlainFramework):
    """Backend ``megatron``: arguments for ``pretrain_gpt.py`` and ``pretrain_hybrid.py``."""

    name = "megatron"
    versions = VERSIONS
    default_version = DEFAULT_VERSION
    orders = meshes.ORDERS
    strategies = STRATEGIES
    recomputes_first_layers = True
    stack = KernelStack("transformer-engine")
    # Megatron-FSDP (megatron_fsdp.py): the outer group reduces with the last micro-batch; weights
    # that are not sharded are gathered after the optimizer step; main_grads_dtype is the default of
    # grad_comm_dtype.
    gradient_exchange = GradientExchange(
        reduces_replicas_once=True,
        gathers_once_at_stage_2=True,
        scatters_accumulated_format=True,
    )

    def default_program(self, model: Model, version: str) -> str:
        """Return the file name of Megatron's program that builds ``model``."""
        return programs.default_program(model, version)

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return the distributed optimizer, without and with CUDA graphs, and Megatron-FSDP.

        ``cp_comm`` is None, so that PARC chooses the fastest context-parallel exchange. The
        variants with CUDA graphs are only tried where they save time, and where published runs
        confirm that; a graph of the whole step only for models that it can contain.
        Megatron-FSDP communicates with every micro-batch, so it is only tried if nothing else fits
        in memory, or if the spec sets the ZeRO stage.
        """
        plain = LayoutVariant(cp_comm=None)
        if problem.pins.gtp is None or problem.pins.egtp is None:
            return apply_pins(problem, (plain, *sharing_variants(problem, plain)))
        variants = [plain]
        if problem.pins.zero_stage is None:
            variants += (
                replace(plain, zero_stage=stage, last_resort=True) for stage in FSDP_STAGES
            )
        if "cuda-graphs" in self.strategies and graphs_save_time(problem.cluster.gpu):
            variants.append(replace(plain, cuda_graphs=True, refines=True))
            if not problem.model.moe_layers and problem.job.precision != "fp16":
                variants.append(replace(plain, cuda_graphs="full_iteration", refines=True))
        return apply_pins(problem, variants)

    def captured_graphs(self, problem: Problem, layout: Layout) -> CapturedGraphs:
        """Return the CUDA graphs that Megatron captures on a rank."""
        return captured_graphs(problem, layout)

    def recompute_settings(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return the recompute settings to try: none, cheap modules, costly modules, all layers."""
        return recompute_levels(problem.model)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that a layout must satisfy to be valid for Megatron."""
        return megatron_rules(problem)

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return Megatron's two device meshes: (mesh of the dense layers, mesh of the experts)."""
        return meshes.megatron_meshes(layout)

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of process groups that Megatron creates for ``layout``."""
        return meshes.megatron_group_families(layout)

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return the layers of each of the pp x vpp model chunks; None if no split exists."""
        return split.find_split(problem, pp, vpp)

    def split_with_counts(
        self, problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
    ) -> PipelineSplit | None:
        """Return the split with these numbers of layers, in the simplest form of flags."""
        return split_with_counts(problem, split, counts)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why the layers cannot be split."""
        from parc.backends.megatron.stages.why_no_split import why_no_split

        return why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of each environment variable that Megatron requires."""
        return megatron_environment(plan)

    def required_packages(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return TransformerEngine 2.19 if ranks share weights (HAVE_GTP in gtp_api.py)."""
        return (("transformer-engine", "2.19"),) if plan.layout.shares_weights else ()

    def refused_environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of each environment variable with which Megatron does not start."""
        return refused_environment(plan.layout)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that runs the training program with ``megatron/args.sh``."""
        from parc.backends.megatron.arguments.args_file import PATH, resume_lines
        from parc.backends.shared.render import shell_word

        return LaunchCommand(
            program=shell_word(plan.problem.launch.program),
            args='"${MEGATRON_ARGS[@]}"',
            setup=(
                "# shellcheck source=/dev/null",
                f'source "$here/../{PATH}"',
                *resume_lines(plan.problem.job),
            ),
            # Only with this flag does Megatron save a checkpoint on SIGTERM, so the batch script
            # tests for it before it forwards the signal.
            graceful_stop_test=f'grep -qs -e --exit-signal-handler "$PARC_DIR/{PATH}"',
        )

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Megatron-Core with TransformerEngine."""
        return memory.megatron_memory_model(problem)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of the kernels of TransformerEngine and Megatron-Core."""
        return MEGATRON_TRAFFIC

    def padded_vocab(self, problem: Problem, tp: int) -> int:
        """Return the number of embedding rows after Megatron has padded the vocabulary."""
        return padded_vocab(problem, tp)

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report wasteful settings, an unsuitable program, and invalid extra flags."""
        report_advice(plan, sink)
        problem = plan.problem
        programs.check_program(plan, sink)
        if problem.launch.omit or problem.launch.args:
            from parc.backends.megatron.arguments import extra_arguments

            extra_arguments.check_user_flags(problem, plan.layout, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return the one emitted file, ``megatron/args.sh``."""
        # Imported here, because checks emit no file.
        from parc.backends.megatron.arguments.args_file import args_file

        return (args_file(plan),)


BACKEND = Megatron()
