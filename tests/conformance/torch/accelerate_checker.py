"""Check a config file and `accelerate launch` arguments with the real Accelerate, on a CPU.

    python accelerate_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "yaml_text", "args": ["--machine_rank", "3"], "files": {"ds_config.json": "{}"},
"rank": 0}; "args" precede the training script, and "files" are written to the working folder.
A verdict adds "keys_ignored" (nested keys for which `accelerate launch` has no argument: it copies
them and nothing reads them), "resolved" (torchrun's sizes, the FSDP plugin, the parallel sizes),
"environment" (variables of the training processes), and "groups" of the rank if there is a mesh.
Stages:

    parse       the config file and the parser of `accelerate launch`
    launch      the arguments of torchrun or DeepSpeed's launcher, and the environment
    plugin      FullyShardedDataParallelPlugin, or DeepSpeedPlugin, from that environment
    parallel    ParallelismConfig, its rules and its mesh on torch's fake backend

Runs under the Python that has Accelerate; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import types
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Rejected, Verdict, answer_cases, import_before_forks
from mesh_checker import join, ranks_of

SECTIONS = {
    "fsdp_config": "fsdp_",
    "parallelism_config": "",
    "deepspeed_config": "",
    "megatron_lm_config": "",
    "fp8_config": "fp8_",
    "dynamo_config": "dynamo_",
}
"""Sections of the file, and the prefix that launch.py adds to keys that lack it."""
TORCHRUN = ("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port", "rdzv_backend")
PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")


def check(case: Case, verdict: Verdict) -> None:
    """Write the files to a temporary folder and check them there."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in case.get("files", {}).items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        Path("accelerate.yaml").write_text(case["yaml_text"])
        check_in_folder(case, verdict)


def check_in_folder(case: Case, verdict: Verdict) -> None:
    """Run the stages in order, up to the first that rejects the case, in the folder with the
    files.
    """
    verdict["stage"] = "parse"
    args, config, known = parse(case)
    verdict["keys_ignored"] = unknown_keys(case["yaml_text"], known)
    verdict["stage"] = "launch"
    environment = prepare(args)
    ours = {key: value for key, value in environment.items() if key.startswith(PREFIXES)}
    verdict["environment"] = ours
    found: dict[str, Any] = {
        name: getattr(args, name, None) for name in (*TORCHRUN, "rdzv_endpoint")
    }
    verdict["resolved"] = found
    os.environ.update(ours)
    verdict["stage"] = "plugin"
    found |= plugin(args)
    verdict["stage"] = "parallel"
    found |= parallelism(args, config)
    if args.use_parallelism_config:
        verdict["groups"] = groups_of_rank(case, int(args.num_processes))


def parse(case: Case) -> tuple[Namespace, Any, set[str]]:
    """Return the arguments with the settings of the file, the file, and the names of all
    arguments.
    """
    from accelerate.commands import launch

    parser, heard = launch.launch_command_parser(), io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            words = ["--config_file", "accelerate.yaml", *case.get("args", []), "train.py"]
            args = parser.parse_args(words)
    except SystemExit as stop:
        raise Rejected(heard.getvalue().rpartition("error: ")[2].strip()) from stop
    args, config, precision_from_file = launch._validate_launch_command(args)
    if args.use_deepspeed:  # as launch_command does, so that the plugin finds conflicts
        fields = [*config.deepspeed_config, *(["mixed_precision"] if precision_from_file else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
    return args, config, {action.dest for action in parser._actions}


def unknown_keys(text: str, known: set[str]) -> list[str]:
    """Return the nested keys that are not the name of an argument."""
    import yaml

    document, found = yaml.safe_load(text), []
    for section, prefix in SECTIONS.items():
        for key in document.get(section) or {}:
            if (key if key.startswith(prefix) else prefix + key) not in known:
                found.append(f"{section}.{key}")
    return found


def prepare(args: Namespace) -> dict[str, str]:
    """Return the environment of the training processes, and fill in torchrun's arguments."""
    from accelerate.utils import launch

    launch.is_port_in_use = lambda _: False  # it would test a port of this machine
    if args.use_deepspeed:
        return dict(launch.prepare_deepspeed_cmd_env(args)[1])
    return dict(launch.prepare_multi_gpu_env(args))


def plugin(args: Namespace) -> dict[str, Any]:
    """Return the settings of the plugin that Accelerator builds from the environment."""
    if args.use_deepspeed:
        from accelerate.utils import DeepSpeedPlugin

        made = DeepSpeedPlugin()
        made.set_mixed_precision(args.mixed_precision)
        return {"zero_stage": made.zero_stage, "deepspeed_config": made.deepspeed_config}
    if not args.use_fsdp:
        return {}
    from accelerate.utils import FullyShardedDataParallelPlugin

    made = FullyShardedDataParallelPlugin()
    return {
        "fsdp_version": made.fsdp_version,
        "reshard_after_forward": made.reshard_after_forward,
        "cpu_offload": offloads(made.cpu_offload),
        "activation_checkpointing": made.activation_checkpointing,
        "state_dict_type": str(made.state_dict_type),
    }


def offloads(policy: Any) -> bool:
    """Return True if the policy offloads: a policy class of FSDP2, a policy of FSDP1 with a flag,
    or a bool.
    """
    from torch.distributed.fsdp import CPUOffloadPolicy

    return isinstance(policy, CPUOffloadPolicy) or bool(getattr(policy, "offload_params", False))


def parallelism(args: Namespace, config: Any) -> dict[str, Any]:
    """Return the parallel sizes, and apply their rules if the launch uses them."""
    from accelerate.parallelism_config import ParallelismConfig

    processes = int(args.num_processes)
    degrees = ParallelismConfig()
    if args.use_parallelism_config:
        accelerator = types.SimpleNamespace(
            multi_device=processes > 1,
            num_processes=processes,
            is_main_process=True,
            is_fsdp2=args.use_fsdp and str(args.fsdp_version) == "2",
            distributed_type=config.distributed_type,
        )
        degrees._validate_accelerator(accelerator)
    names = ("dp_replicate", "dp_shard", "cp", "sp", "tp")
    return {name: getattr(degrees, name + "_size") for name in names} | {
        "num_processes": processes,
        "mixed_precision": args.mixed_precision,
        "use_parallelism_config": bool(args.use_parallelism_config),
    }


def groups_of_rank(case: Case, processes: int) -> dict[str, list[int]]:
    """Return the groups of the mesh, including flattened ones."""
    from accelerate.parallelism_config import ParallelismConfig

    join(case.get("rank", 0), processes)
    mesh = ParallelismConfig().build_device_mesh("cpu")
    if mesh is None:
        return {}
    flat = mesh._get_root_mesh()._flatten_mapping if hasattr(mesh, "_get_root_mesh") else {}
    found = {name: ranks_of(mesh.get_group(name)) for name in mesh.mesh_dim_names}
    return found | {name: ranks_of(one.get_group()) for name, one in flat.items()}


def main() -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import_before_forks(
        "torch",
        "accelerate.commands.launch",
        "accelerate.utils",
        "accelerate.parallelism_config",
        "torch.distributed.fsdp",
        "torch.testing._internal.distributed.fake_pg",
    )
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
