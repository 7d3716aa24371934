"""Files of a DeepSpeed plan: two JSON files, a hostfile, a launch script and the program."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.base import LaunchCommand
from parc.backends.deepspeed import derived_config
from parc.backends.deepspeed.rules.program import emitted_program
from parc.backends.shared.field_table import flag_table, nest_settings, public_functions
from parc.backends.shared.launch_script import launch_script
from parc.backends.shared.render import render, shell_word
from parc.backends.shared.torch import program as torch_program
from parc.backends.shared.torch.emitted_program import (
    data_file,
    model_file,
    own_program,
    start_file,
)
from parc.compiler.ir import Artifact, Layout, Plan, Problem

FOLDER = "deepspeed"
CONFIG, TRAIN_JSON, HOSTFILE = "ds_config.json", "train.json", "hostfile"
SOURCES = {
    "decoder": ("checkpoints.py", "model.py", "train.py"),
    "transformers": ("checkpoints.py", "hf_train.py"),
}
"""Kind of the emitted program -> files from templates; the last one is started."""
SAVE, LOAD = (f'PLAN["checkpoint"].get("{name}", "")' for name in ("save", "load"))
"""Python expressions of the folders of checkpoints in train.json."""
DS_CONFIG, TRAIN = "ds_config", "train"
"""Groups of rows in flags.yaml, one group per emitted file."""
DERIVED = public_functions(torch_program, derived_config)
"""Functions that flags.yaml refers to, by name."""


def config_file(plan: Plan) -> Artifact:
    """Return ``ds_config.json``, the configuration file of DeepSpeed."""
    return _json_file(CONFIG, build_config(DS_CONFIG, plan.problem, plan.layout))


def program_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return ``train.json``, and the emitted program unless the spec names the user's program.

    ``train.json`` contains the model and parallel sizes that a program needs and for which
    ds_config.json has no keys.
    """
    tree, kind = build_config(TRAIN, plan.problem, plan.layout), emitted_program(plan.problem)
    transformers = tree.pop("hf")
    if kind == "transformers":
        tree["model"] = transformers
    settings = _json_file(TRAIN_JSON, tree)
    if not kind:
        return (settings,)
    names = SOURCES[kind]
    sources = [Artifact(f"{FOLDER}/{name}", render(FOLDER, f"{name}.j2", {})) for name in names]
    sources += [model_file(FOLDER, TRAIN_JSON)] if kind == "transformers" else []
    start = start_file(FOLDER, TRAIN_JSON, SAVE, LOAD)
    return (settings, *sources, start, data_file(FOLDER, TRAIN_JSON))


def hostfile(plan: Plan) -> Artifact:
    """Return ``hostfile``: hosts in node-rank order, one per line, with their numbers of ranks."""
    placement = plan.placement
    lines = [f"{host.name} slots={placement.ranks_per_node}\n" for host in placement.hosts]
    if not plan.problem.cluster.named:
        lines.insert(0, "# placeholder names: the spec names no hosts\n")
    return Artifact(f"{FOLDER}/{HOSTFILE}", "".join(lines))


def deepspeed_launch_script(plan: Plan) -> Artifact:
    """Return ``launch.sh``, which starts the ranks of one host with the ``deepspeed`` launcher.

    The script runs on every host, because ``--no_ssh`` keeps the launcher from starting other
    hosts. The node rank is the position of the host in the hostfile (deepspeed/launcher/launch.py).
    PARC does not use DeepSpeed's ``--launcher slurm``, which might order the hosts differently, or
    the default launcher, pdsh, which needs ssh.
    """
    # The values are shell variables, so that the same script works on every host.
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
    """Return the command that runs the program with ``--deepspeed_config``.

    If ``launcher`` is empty, torchrun starts the program.
    """
    launch = plan.problem.launch
    own, kind = own_program(plan.problem), emitted_program(plan.problem)
    program = shell_word(own) if own else f'"$here/../{FOLDER}/{SOURCES[kind][-1]}"'
    config = f'--deepspeed --deepspeed_config "$here/../{FOLDER}/{CONFIG}"'
    return LaunchCommand(
        program=program,
        args=" ".join([config, *map(shell_word, launch.args)]),
        launcher=launcher,
    )


def _json_file(name: str, content: dict[str, Any]) -> Artifact:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    return Artifact(f"{FOLDER}/{name}", text + "\n")


def build_config(file: str, problem: Problem, layout: Layout) -> dict[str, Any]:
    """Return the nested keys and values of the JSON file ``file``, "ds_config" or "train".

    Keys whose value is None are left out.
    """
    table = flag_table("parc.backends.deepspeed").of_group(file)
    return nest_settings(table.settings(problem, layout, problem.version("deepspeed"), DERIVED))
