"""Launch command and environment of a job that Accelerate starts."""

from __future__ import annotations

from parc.backends.accelerate.computed_settings import deepspeed_file, host_count
from parc.backends.accelerate.files import FOLDER
from parc.backends.base import LaunchCommand
from parc.backends.shared.render import shell_word
from parc.backends.shared.torch.emitted_program import own_program
from parc.backends.shared.torch.program import gradient_accumulation_steps
from parc.compiler.ir import Plan


def accelerate_environment(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the variable that sets the number of micro-batches per step.

    With DeepSpeed, ``ds_config.json`` contains the same number.
    """
    count = gradient_accumulation_steps(plan.problem, plan.layout)
    return (("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", str(count)),)


def launch_command(plan: Plan) -> LaunchCommand:
    """Return the ``accelerate launch`` command with a static rendezvous.

    The launch script passes the machine rank of each host, so that Accelerate does not renumber the
    hosts.
    """
    problem, layout = plan.problem, plan.layout
    own, config = own_program(problem), deepspeed_file(problem, layout)
    emitted = "hf_trainer.py" if problem.launch.program == "trainer" else "train.py"
    return LaunchCommand(
        program=shell_word(own) if own else f'"$here/../{FOLDER}/{emitted}"',
        args=" ".join(map(shell_word, problem.launch.args)),
        launcher=(
            "accelerate launch",
            f'--config_file="$here/../{FOLDER}/config.yaml"',
            # The path in config.yaml is relative, and would be opened relative to the current
            # folder.
            *((f'--deepspeed_config_file="$here/../{config}"',) if config else ()),
            f"--num_machines={host_count(problem, layout)}",
            f"--num_processes={layout.world}",
            '--machine_rank="$NODE_RANK"',
            '--main_process_ip="$MASTER_ADDR"',
            '--main_process_port="$MASTER_PORT"',
        ),
    )
