"""The files of one plan: two JSON files, a hostfile, a launch script and the program."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.base import LaunchCommand
from parc.backends.deepspeed.key_table import DS_CONFIG, TRAIN, tree
from parc.backends.shared.launch_script import launch_script
from parc.backends.shared.render import render, shell_word
from parc.compiler.ir import Artifact, Plan

FOLDER = "deepspeed"
CONFIG, PROGRAM, HOSTFILE = "ds_config.json", "train.py", "hostfile"
SOURCES = ("model.py", PROGRAM)


def config_file(plan: Plan) -> Artifact:
    """``ds_config.json``: what DeepSpeed itself reads."""
    return _json(CONFIG, tree(DS_CONFIG, plan.problem, plan.layout))


def program_files(plan: Plan) -> tuple[Artifact, ...]:
    """``train.json``, what code must know beside it; and the program unless the user has one."""
    settings = _json("train.json", tree(TRAIN, plan.problem, plan.layout))
    if plan.problem.launch.program:
        return (settings,)
    sources = (Artifact(f"{FOLDER}/{name}", render(FOLDER, f"{name}.j2", {})) for name in SOURCES)
    return (settings, *sources)


def hostfile(plan: Plan) -> Artifact:
    """``hostfile``: a host a line in rank order, with equally many slots."""
    placement = plan.placement
    lines = [f"{host.name} slots={placement.ranks_per_node}\n" for host in placement.hosts]
    if not plan.problem.cluster.named:
        lines.insert(0, "# the names stand for hosts that the plan does not know\n")
    return Artifact(f"{FOLDER}/{HOSTFILE}", "".join(lines))


def own_launch_script(plan: Plan) -> Artifact:
    """``launch.sh``: the deepspeed launcher on every host; no host starts another one.

    Ranks follow the order of the hostfile (deepspeed/launcher/launch.py), whose line is the node
    rank; its own --launcher slurm and pdsh take other orders or need ssh.
    """
    launcher = (
        "deepspeed",
        f'--hostfile="$here/{HOSTFILE}"',
        "--no_ssh",
        '--node_rank="$NODE_RANK"',
        '--master_addr="$MASTER_ADDR"',
        '--master_port="$MASTER_PORT"',
    )
    return launch_script(plan, FOLDER, HOSTFILE, launch_command(plan, launcher))


def launch_command(plan: Plan, launcher: tuple[str, ...] = ()) -> LaunchCommand:
    """The program with ``--deepspeed_config``; ``launcher`` empty: torchrun starts it."""
    launch = plan.problem.launch
    program = shell_word(launch.program) if launch.program else f'"$here/../{FOLDER}/{PROGRAM}"'
    config = f'--deepspeed --deepspeed_config "$here/../{FOLDER}/{CONFIG}"'
    return LaunchCommand(
        program=program,
        args=" ".join([config, *map(shell_word, launch.args)]),
        launcher=launcher,
    )


def _json(name: str, content: dict[str, Any]) -> Artifact:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    return Artifact(f"{FOLDER}/{name}", text + "\n")
