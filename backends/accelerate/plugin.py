"""The backend for DeepSpeed started by Accelerate (``emit: [accelerate, deepspeed]``).

DeepSpeed's backend determines the layout and writes ``deepspeed/ds_config.json``. This module
removes the strategies that Accelerate's DeepSpeed plugin does not support. Source: accelerate
1.15.0, accelerator.py, ``_prepare_deepspeed``; utils/dataclasses.py, ``DeepSpeedPlugin``.
"""

from __future__ import annotations

from typing import Any

from parc.backends.accelerate.capabilities import missing_parts
from parc.backends.accelerate.launch import accelerate_environment, launch_command
from parc.backends.accelerate.memory import deepspeed_plugin_memory
from parc.backends.base import LaunchCommand
from parc.backends.registry import framework
from parc.backends.shared.torch.emitted_program import program_rules
from parc.backends.shared.torch.memory import with_transformers_attention
from parc.backends.shared.torch.traffic import transformers_traffic, under_deepspeed
from parc.compiler.ir import (
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
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
"""Strategy -> key of ds_config.json or of Accelerate's config. AutoTP is missing because the mesh
that Accelerate creates for it contains the ranks of only one tensor-parallel group."""
INAPPLICABLE_RULES = ("E10", "M08")
"""Codes of DeepSpeed's rules on the program that it emits and on its expert layers."""


class DeepSpeedPlugin:
    """The backend ``accelerate + deepspeed``.

    Members that this class does not define are taken from DeepSpeed's backend.
    """

    name = "accelerate + deepspeed"
    strategies = STRATEGIES

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return DeepSpeed's rules, and a rule on the models that Accelerate's program can build.

        DeepSpeed's rules on the program that PARC emits for DeepSpeed and on DeepSpeed's expert
        layers are left out, because jobs of Accelerate use neither.
        """
        own = framework("deepspeed").rules(problem)
        return (
            *(rule for rule in own if rule.code not in INAPPLICABLE_RULES),
            *program_rules(problem, "accelerate", missing_parts),
        )

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of Accelerate's program when DeepSpeed trains the model."""
        program = deepspeed_plugin_memory(framework("deepspeed").training_memory_model(problem))
        return with_transformers_attention(program, problem.model)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the traffic of Accelerate's program when DeepSpeed shards the state."""
        return under_deepspeed(transformers_traffic(problem.model))

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return the variable that sets the number of micro-batches per step."""
        return accelerate_environment(plan)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the ``accelerate launch`` command, with the path of DeepSpeed's config."""
        return launch_command(plan)

    def __getattr__(self, name: str) -> Any:
        """Return the attribute ``name`` of DeepSpeed's backend, such as ``rank_orders``."""
        return getattr(framework("deepspeed"), name)


BACKEND = DeepSpeedPlugin()
