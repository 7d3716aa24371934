"""The face of the DeepSpeed backend."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.deepspeed import files, memory, meshes, split, variants
from parc.backends.deepspeed.advice import advise
from parc.backends.deepspeed.rules.all_rules import rules
from parc.backends.deepspeed.strategies import STRATEGIES
from parc.backends.deepspeed.versions import DEFAULT, VERSIONS
from parc.backends.registry import front_of
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


class DeepSpeed:
    """DeepSpeed: ZeRO, its pipeline, its experts, AutoTP and Ulysses."""

    name = "deepspeed"
    versions = VERSIONS
    default_version = DEFAULT
    strategies = STRATEGIES
    stack = Stack("torch-native")
    gradient_exchange = GradientExchange(gathers_once_at_stage_2=True)

    def default_program(self, model: Model, version: str) -> str:
        """None: ``emit`` writes one."""
        return ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """The one rank order: pipe, data, model, the last one fastest."""
        return (meshes.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """ZeRO stages; the memory of the host where nothing else fits."""
        return variants.variants(problem)

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Nothing, or all layers."""
        return variants.recomputes(problem)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Dense and expert mesh."""
        return meshes.meshes(layout)

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Groups that DeepSpeed creates."""
        return meshes.FAMILIES

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """The split of the layers; None where this grid cannot be had."""
        return split.find_split(problem, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Why ``splits`` gives None."""
        return split.why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Nothing: DeepSpeed asks for no variable."""
        return ()

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """The emitted program, or the user's, with ``--deepspeed_config``."""
        return files.launch_command(plan)

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the emitted decoder under ZeRO."""
        return memory.program_memory(problem)

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Rows of the embedding over all of tp: AutoTP and the program keep it whole on each."""
        return model.vocab * tp

    def check(self, plan: Plan, sink: Sink) -> None:
        """Warnings and advice on the plan."""
        advise(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """ds_config.json, train.json, hostfile, launch.sh, and train.py; for a front the first."""
        if front_of(plan.problem):
            return (files.config_file(plan),)
        return (
            files.config_file(plan),
            *files.program_files(plan),
            files.hostfile(plan),
            files.own_launch_script(plan),
        )


BACKEND = DeepSpeed()
