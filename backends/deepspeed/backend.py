"""Backend class of DeepSpeed."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.deepspeed import files, memory, meshes, split, variants
from parc.backends.deepspeed.advice import advise
from parc.backends.deepspeed.rules.all_rules import rules
from parc.backends.deepspeed.supported import DEFAULT, STRATEGIES, VERSIONS
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
    """Backend ``deepspeed``: ZeRO, AutoTP, Ulysses, and DeepSpeed's own pipeline and experts."""

    name = "deepspeed"
    versions = VERSIONS
    default_version = DEFAULT
    strategies = STRATEGIES
    stack = Stack("torch-native")
    gradient_exchange = GradientExchange(gathers_once_at_stage_2=True)

    def default_program(self, model: Model, version: str) -> str:
        """Return an empty path because ``emit`` writes a program."""
        return ""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """Return DeepSpeed's only rank order: pipe, data, model, with model varying fastest."""
        return (meshes.ORDER,)

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """Return the ZeRO stages, and offload to host memory as a last resort."""
        return variants.variants(problem)

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return no recomputation, and recomputation of all layers."""
        return variants.recomputes(problem)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that a valid layout satisfies."""
        return rules(problem)

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return the dense and the expert mesh."""
        return meshes.meshes(layout)

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the process groups that DeepSpeed creates."""
        return meshes.FAMILIES

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Return the layers per stage, or None if DeepSpeed cannot run this pp and vpp."""
        return split.find_split(problem, pp, vpp)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Return code, spec path and finding that explain why ``splits`` returned None."""
        return split.why_no_split(problem, pp, vpp)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return no variables; DeepSpeed requires none."""
        return ()

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the emitted or the user's program with ``--deepspeed_config``."""
        return files.launch_command(plan)

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the emitted decoder under ZeRO."""
        return memory.program_memory(problem)

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Return the embedding rows summed over tp.

        AutoTP and the emitted program keep the whole embedding on every tensor-parallel rank.
        """
        return model.vocab * tp

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report warnings and advice on the plan."""
        advise(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ds_config.json, train.json, hostfile, launch.sh and the program.

        If another framework starts DeepSpeed (``front_of``), only ds_config.json is needed.
        """
        if front_of(plan.problem):
            return (files.config_file(plan),)
        return (
            files.config_file(plan),
            *files.program_files(plan),
            files.hostfile(plan),
            files.deepspeed_launch_script(plan),
        )


BACKEND = DeepSpeed()
