"""Backend of Megatron-Bridge: layouts and rules of Megatron-Core, with other files."""

from __future__ import annotations

from parc.backends.base import LaunchCommand
from parc.backends.megatron.advice import report_advice
from parc.backends.megatron.backend import Megatron
from parc.backends.megatron.bridge.files import CONFIG, PROGRAM, bridge_files
from parc.backends.megatron.bridge.overrides import check_overrides
from parc.backends.megatron.bridge.rules import bridge_rules
from parc.backends.megatron.capabilities import BRIDGE, CORE_OF_BRIDGE
from parc.backends.shared.render import shell_word
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Model, Plan, Problem
from parc.compiler.ir.rule import Rule


class MegatronBridge(Megatron):
    """Backend ``megatron-bridge``: settings of a ``ConfigContainer``, and a pretraining program."""

    name = BRIDGE
    versions = tuple(CORE_OF_BRIDGE)
    default_version = "0.6"
    strategies = {  # noqa: RUF012
        "dp": "world size / (tp x cp x pp)",
        "zero-1": "ddp.use_distributed_optimizer",
        "zero-2": "ddp.data_parallel_sharding_strategy optim_grads",
        "zero-3": "ddp.data_parallel_sharding_strategy optim_grads_params",
        "hsdp": "ddp.num_distributed_optimizer_instances",
        "tp": "model.tensor_model_parallel_size",
        "sp": "model.sequence_parallel",
        "cp-p2p": "model.context_parallel_size",
        "cp-all-gather": "model.cp_comm_type allgather",
        "cp-a2a": "model.cp_comm_type a2a",
        "cp-hierarchical": "model.hierarchical_context_parallel_sizes",
        "1f1b": "model.pipeline_model_parallel_size",
        "interleaved": "model.virtual_pipeline_model_parallel_size",
        "ep": "model.expert_model_parallel_size",
        "etp": "model.expert_tensor_parallel_size",
        "recompute-selective": "model.recompute_granularity selective",
        "recompute-full": "model.recompute_granularity full",
        "offload-activations": "model.fine_grained_activation_offloading",
    }

    def default_program(self, model: Model, version: str) -> str:
        """Return an empty text, because ``emit`` itself writes a training program."""
        return ""

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules of Megatron-Bridge, followed by the rules of Megatron-Core."""
        return (*bridge_rules(problem), *super().rules(problem))

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that trains with the emitted settings and the user's overrides."""
        launch = plan.problem.launch
        program = shell_word(launch.program) if launch.program else f'"$here/../{PROGRAM}"'
        config = f'--config-file "$here/../{CONFIG}"'
        return LaunchCommand(
            program=program,
            args=" ".join((config, *map(shell_word, launch.args))),
            # Megatron-Bridge saves a checkpoint on SIGTERM only with this setting.
            graceful_stop_test=f"grep -qs 'exit_signal_handler: true' \"$PARC_DIR/{CONFIG}\"",
        )

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report wasteful settings and wrong overrides."""
        report_advice(plan, sink)
        check_overrides(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``config.yaml``, and ``pretrain.py`` unless the spec names a program."""
        return bridge_files(plan)


BACKEND = MegatronBridge()
