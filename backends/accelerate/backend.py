"""The backend ``accelerate``, which emits a training setup for Hugging Face Accelerate."""

from __future__ import annotations

from parc.backends.accelerate.capabilities import missing_parts
from parc.backends.accelerate.files import accelerate_files
from parc.backends.accelerate.launch import accelerate_environment, launch_command
from parc.backends.accelerate.memory import accelerate_memory
from parc.backends.accelerate.rules import accelerate_rules
from parc.backends.base import LaunchCommand
from parc.backends.shared.torch.emitted_program import EMITTED, program_kind
from parc.backends.shared.torch.framework import TorchFramework
from parc.backends.shared.torch.memory import with_adapters, with_transformers_attention
from parc.backends.shared.torch.traffic import EAGER, transformers_traffic, with_frozen_norms
from parc.compiler.ir import (
    Artifact,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
)
from parc.compiler.ir.rule import Rule


class Accelerate(TorchFramework):
    """Backend ``accelerate``: Hugging Face Accelerate with FSDP2 and ParallelismConfig."""

    name = "accelerate"
    versions = ("1.12", "1.13", "1.14", "1.15")
    strategies = {  # noqa: RUF012
        "dp": "distributed_type: MULTI_GPU",
        "zero-2": "fsdp_reshard_after_forward: false",
        "zero-3": "fsdp_version: 2",
        "hsdp": "parallelism_config_dp_replicate_size x _dp_shard_size",
        "tp": "parallelism_config_tp_size",
        "cp-p2p": "parallelism_config_cp_comm_strategy: alltoall",
        "cp-all-gather": "parallelism_config_cp_comm_strategy: allgather",
        "recompute-full": "fsdp_activation_checkpointing: true",
        "lora": "peft.LoraConfig in hf_model.py",
    }
    stack = EAGER
    cp_comm = "all_gather"
    axes = ("dp-replicate", "dp-shard", "cp", "tp", "dp", "dp-shard-cp", "dp-cp")

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that Accelerate's layouts for ``problem`` must satisfy."""
        return accelerate_rules(problem)

    def builds_model_from_config(self, problem: Problem) -> bool:
        """Return True if the emitted program builds the model from its config.json."""
        return program_kind(problem, missing_parts) in EMITTED

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the program that PARC emits, under FSDP2 or DDP.

        The program trains the decoder of the library transformers.
        """
        program = with_transformers_attention(accelerate_memory(), problem.model)
        return with_adapters(program, problem.job.lora)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the traffic of the program that PARC emits, under FSDP2 or DDP."""
        return with_frozen_norms(transformers_traffic(problem.model), problem.job.lora)

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return the variable that sets the number of micro-batches per step.

        Accelerate's config file has no key for this number.
        """
        return accelerate_environment(plan)

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the ``accelerate launch`` command, which contains the machine rank of the host."""
        return launch_command(plan)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``config.yaml``, ``job.json`` and, if the spec has no program, a program."""
        return accelerate_files(plan)


BACKEND = Accelerate()
