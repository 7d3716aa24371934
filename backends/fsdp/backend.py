"""The backend ``fsdp``, which emits a training setup that needs only PyTorch."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.base import LaunchCommand
from parc.backends.fsdp.files import FOLDER, fsdp_files
from parc.backends.fsdp.rules import fsdp_rules
from parc.backends.shared.render import shell_word
from parc.backends.shared.torch.emitted_program import EMITTED, own_program, program_kind
from parc.backends.shared.torch.framework import TorchFramework
from parc.backends.shared.torch.memory import (
    emitted_decoder_memory,
    transformers_memory,
    with_adapters,
    with_transformers_attention,
)
from parc.backends.shared.torch.traffic import (
    EAGER,
    decoder_traffic,
    transformers_traffic,
    with_frozen_norms,
)
from parc.backends.shared.unsupported_features import unsupported_model_features
from parc.compiler.ir import (
    Artifact,
    LayoutVariant,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
)
from parc.compiler.ir.rule import Rule


class Fsdp(TorchFramework):
    """Backend ``fsdp``: PyTorch's DDP, FSDP2 and tensor parallelism."""

    name = "fsdp"
    versions = ("2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13")
    """PyTorch releases."""
    strategies = {  # noqa: RUF012
        "dp": "mesh axis dp_replicate",
        "zero-2": "reshard_after_forward=False",
        "zero-3": "fully_shard",
        "hsdp": "fully_shard on dp_replicate x dp_shard",
        "tp": "parallelize_module",
        "sp": "SequenceParallel",
        "recompute-full": "checkpoint_wrapper",
        "lora": "peft.LoraConfig in hf_model.py",
    }
    stack = EAGER
    cp_comm = "p2p"
    axes = ("dp-replicate", "dp-shard", "tp", "dp")

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that layouts for ``problem`` must satisfy under FSDP2 or DDP."""
        return fsdp_rules(problem)

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return the sharding variants to try.

        The tensor-parallel plans of transformers have no sequence parallelism.
        """
        variants = super().layout_variants(problem)
        if not self.builds_model_from_config(problem):
            return variants
        return tuple(replace(variant, sequence_parallel=False) for variant in variants)

    def builds_model_from_config(self, problem: Problem) -> bool:
        """Return True if the emitted program builds the model with transformers."""
        return program_kind(problem, unsupported_model_features) in EMITTED

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the emitted program, under FSDP2 or DDP."""
        if program_kind(problem, unsupported_model_features) == "transformers":
            program = with_transformers_attention(transformers_memory(), problem.model)
        else:
            program = emitted_decoder_memory()
        return with_adapters(program, problem.job.lora)

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the traffic of the emitted program, under FSDP2 or DDP."""
        if program_kind(problem, unsupported_model_features) == "transformers":
            return with_frozen_norms(transformers_traffic(problem.model), problem.job.lora)
        return decoder_traffic()

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that runs the user's program, or train.py if there is none."""
        words = " ".join(map(shell_word, plan.problem.launch.args))
        own = own_program(plan.problem)
        if not own:
            return LaunchCommand(program=f'"$here/../{FOLDER}/train.py"', args=words)
        # The user's program imports parallelize.py, so Python must search the emitted folder.
        path = f'export PYTHONPATH="$here/../{FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"'
        return LaunchCommand(program=shell_word(own), args=words, setup=(path,))

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``fsdp/config.json``, and the Python programs and modules that read this file."""
        return fsdp_files(plan)


BACKEND = Fsdp()
