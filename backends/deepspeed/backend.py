"""Backend class of DeepSpeed."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.base import LaunchCommand
from parc.backends.deepspeed import files, memory, meshes, split
from parc.backends.deepspeed.advice import report_advice
from parc.backends.deepspeed.capabilities import (
    STRATEGIES,
    VERSIONS,
    deepspeed_variants,
)
from parc.backends.deepspeed.rules.all_rules import deepspeed_rules
from parc.backends.deepspeed.rules.program import emitted_program
from parc.backends.plain_framework import PlainFramework
from parc.backends.registry import launching_wrapper
from parc.backends.shared.launch_rules import check_launch
from parc.backends.shared.pipeline_split import split_with_counts
from parc.backends.shared.torch.emitted_program import EMITTED
from parc.backends.shared.torch.traffic import (
    EAGER,
    decoder_traffic,
    transformers_traffic,
    under_deepspeed,
)
from parc.compiler.diagnostics import CodedFinding, Sink
from parc.compiler.ir import (
    Artifact,
    GradientExchange,
    GroupFamily,
    Layout,
    LayoutVariant,
    Mesh,
    PassBytes,
    PipelineSplit,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
)
from parc.compiler.ir.rule import Rule

ROTATION = PassBytes(40.0, 68.0)
"""Bytes per element of queries and keys to rotate them and to repeat keys and values, counted for
the emitted decoder with four query heads per key-value head."""


class DeepSpeed(PlainFramework):
    """Backend ``deepspeed``: ZeRO, AutoTP, Ulysses, and DeepSpeed's own pipeline and experts."""

    name = "deepspeed"
    versions = VERSIONS
    orders = (meshes.ORDER,)
    strategies = STRATEGIES
    # Ranks of a pipeline exchange one message at a time (runtime/pipe/schedule.py, TrainSchedule).
    stack = replace(EAGER, properties={**EAGER.properties, "blocking_hops": True})
    # Stage 2 keeps whole weights on each rank, so they are gathered only after the optimizer step.
    gradient_exchange = GradientExchange(gathers_once_at_stage_2=True)

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return the combinations of ZeRO stage and offload that the search tries.

        Variants with offload to host memory are tried only if no layout fits without offload.
        """
        return deepspeed_variants(problem)

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that a layout must satisfy to be valid for DeepSpeed."""
        return deepspeed_rules(problem)

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return DeepSpeed's two device meshes: (mesh of the dense layers, mesh of the experts)."""
        return meshes.deepspeed_meshes(layout)

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of process groups that DeepSpeed creates."""
        return meshes.FAMILIES

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return the layers of each pipeline stage.

        None if DeepSpeed cannot split the layers over ``pp`` stages with ``vpp`` chunks per rank.
        """
        return split.find_split(problem, pp, vpp)

    def split_with_counts(
        self, problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
    ) -> PipelineSplit | None:
        """Return the split with these numbers of layers; None if the spec sets some of them."""
        return split_with_counts(problem, split, counts)

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why the layers cannot be split."""
        return split.why_no_split(problem, pp, vpp)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that starts the training program with ``--deepspeed_config``."""
        return files.launch_command(plan)

    def builds_model_from_config(self, problem: Problem) -> bool:
        """Return True if the emitted program builds the model with transformers."""
        return emitted_program(problem) in EMITTED

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the decoder that PARC emits, trained with ZeRO."""
        return memory.deepspeed_memory_model(problem)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the traffic of the decoder that PARC emits, trained with ZeRO."""
        if emitted_program(problem) == "transformers":
            return under_deepspeed(transformers_traffic(problem.model))
        return under_deepspeed(replace(decoder_traffic(), rotation=ROTATION))

    def padded_vocab(self, problem: Problem, tp: int) -> int:
        """Return the number of embedding rows, summed over ``tp`` tensor-parallel ranks.

        AutoTP and the emitted program keep the whole embedding on every tensor-parallel rank.
        """
        # Nothing is padded; tp counts the copies, so that rows / tp is the whole vocabulary on each
        # rank.
        return problem.model.vocab * tp

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report settings that would make ``launch.sh`` fail, and settings that may waste time."""
        if not launching_wrapper(plan.problem):
            check_launch(plan, sink)
        report_advice(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ds_config.json, train.json, hostfile, launch.sh and the training program.

        If Accelerate starts DeepSpeed, return only ds_config.json.
        """
        if launching_wrapper(plan.problem):
            return (files.config_file(plan),)
        return (
            files.config_file(plan),
            *files.program_files(plan),
            files.hostfile(plan),
            files.deepspeed_launch_script(plan),
        )


BACKEND = DeepSpeed()
