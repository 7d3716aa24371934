"""Accelerate's DeepSpeed plugin: DeepSpeed as Accelerate starts it (emit both).

The layout is bound by DeepSpeed's own backend, which writes ``deepspeed/ds_config.json``; what is
here is what Accelerate leaves out of it. Source: accelerate 1.15.0, accelerator.py,
``_prepare_deepspeed``; utils/dataclasses.py, ``DeepSpeedPlugin``.
"""

from __future__ import annotations

from typing import Any

from parc.backends.accelerate.launch import environment, launch_command
from parc.backends.accelerate.memory import behind_deepspeed
from parc.backends.accelerate.rules import model_rules
from parc.backends.base import LaunchCommand
from parc.backends.registry import framework
from parc.compiler.ir import (
    Plan,
    Problem,
    ProgramMemory,
)
from parc.compiler.ir.rule import Rule

STRATEGIES = {
    "dp": "zero_optimization.stage 0",
    "zero-1": "zero_optimization.stage 1",
    "zero-2": "zero_optimization.stage 2",
    "zero-3": "zero_optimization.stage 3, zero3_init_flag: true",
    "recompute-full": "gradient_checkpointing_enable",
    "offload-optimizer": "zero_optimization.offload_optimizer",
    "offload-parameters": "zero_optimization.offload_param",
    "zero-plus": "zero_optimization.zero_hpz_partition_size, zero_quantized_*",
}
"""All stand in ds_config.json, which ``deepspeed_config_file`` names. AutoTP is not among them: the
mesh that Accelerate makes for it has the ranks of one tensor-parallel group alone."""
NOT_HERE = ("E10", "M08")
"""Rules of DeepSpeed about what is not in such a run: its emitted program, and its own experts."""


class DeepSpeedPlugin:
    """DeepSpeed in every way but these."""

    name = "accelerate + deepspeed"
    strategies = STRATEGIES

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What DeepSpeed asks, and what the program that Accelerate's backend emits builds."""
        own = framework("deepspeed").rules(problem)
        return (*(rule for rule in own if rule.code not in NOT_HERE), *model_rules(problem))

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of a Llama of transformers under DeepSpeed."""
        return behind_deepspeed(framework("deepspeed").program_memory(problem))

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """As with Accelerate alone."""
        return environment(plan)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """As with Accelerate alone, with DeepSpeed's configuration."""
        return launch_command(plan)

    def __getattr__(self, name: str) -> Any:
        """Orders, variants, meshes, memory model and the rest of ``Framework``: DeepSpeed's."""
        return getattr(framework("deepspeed"), name)


BACKEND = DeepSpeedPlugin()
