"""Tests of the emitted JSON files, hostfile, launch scripts and program."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from parc.backends.deepspeed.files import DS_CONFIG, TRAIN, build_config
from parc.compiler.ir import Plan
from tests.backends.deepspeed.boundaries import DENSE, EMITTED, ROUTED
from tests.compiled import changed, error_codes, files_of, plan_of, write_files

SHELLCHECK = Path(sysconfig.get_path("scripts")) / "shellcheck"
RACKS = {
    "node": "dgx-h100",
    "racks": [{"name": "a", "nodes": "n[10,2]"}, {"name": "b", "nodes": "n1"}],
}
NAMED = EMITTED | {"cluster": RACKS, "emit": ["deepspeed", "rankmap", "slurm", "torchrun"]}
SINGLE = EMITTED | {"cluster": {"node": "dgx-h100", "nodes": 1}}
DEEPSPEED = '#!/bin/bash\nprintf \'%s\\0\' "$@" > "$CALLS"\n'


def test_the_hostfile_has_the_hosts_in_rank_order_with_equal_slots() -> None:
    files = files_of(NAMED)
    hosts = [line.split()[0] for line in files["deepspeed/hostfile"].splitlines()]
    assert "".join(f"{host}\n" for host in hosts) == files["torchrun/hosts"]
    assert all(line.endswith(" slots=8") for line in files["deepspeed/hostfile"].splitlines())


def test_the_hostfile_marks_placeholder_names() -> None:
    lines = files_of(EMITTED)["deepspeed/hostfile"].splitlines()
    assert lines[0].startswith("#")
    assert len(lines) == 4


@pytest.mark.parametrize(
    "spec", [NAMED, EMITTED, SINGLE, ROUTED], ids=["named", "nameless", "one", "own"]
)
def test_bash_and_shellcheck_accept_the_scripts(spec: dict[str, Any], tmp_path: Path) -> None:
    scripts = []
    for path, text in files_of(spec).items():
        if path.endswith((".sh", ".sbatch")):
            script = tmp_path / path.replace("/", "-")
            script.write_text(text, "utf-8")
            subprocess.run(["bash", "-n", script], check=True)
            scripts.append(str(script))
    assert scripts
    found = subprocess.run([SHELLCHECK, *scripts], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def write_stage(spec: dict[str, Any], folder: Path) -> Path:
    """Write the files of a spec, and stubs of the deepspeed launcher and hostname."""
    write_files(files_of(spec), folder / "out", executable=True)
    stubs = {"deepspeed": DEEPSPEED, "hostname": "#!/bin/bash\necho n2\n"}
    (folder / "bin").mkdir()
    for name, text in stubs.items():
        (folder / "bin" / name).write_text(text, "utf-8")
        (folder / "bin" / name).chmod(0o755)
    return folder


def run_launcher(folder: Path, **environment: str) -> list[str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    env = {"PATH": path, "CALLS": str(folder / "calls"), **environment}
    script = folder / "out/deepspeed/launch.sh"
    subprocess.run([script, "--more", "a b"], env=env, check=True, capture_output=True)
    return (folder / "calls").read_text("utf-8").split("\0")[:-1]


def test_a_host_starts_only_its_own_ranks_with_the_deepspeed_launcher(tmp_path: Path) -> None:
    folder = write_stage(NAMED, tmp_path)
    hosts = (folder / "out/torchrun/hosts").read_text("utf-8").split()
    here = folder / "out/deepspeed"
    assert run_launcher(folder) == [
        f"--hostfile={here}/hostfile",
        "--no_ssh",
        f"--node_rank={hosts.index('n2')}",
        f"--master_addr={hosts[0]}",
        "--master_port=29500",
        f"{here}/../deepspeed/train.py",
        "--deepspeed",
        "--deepspeed_config",
        f"{here}/../deepspeed/ds_config.json",
        "--more",
        "a b",
    ]


def test_a_host_without_a_name_gets_its_rank_from_the_environment(tmp_path: Path) -> None:
    folder = write_stage(EMITTED, tmp_path)
    words = run_launcher(folder, NODE_RANK="2", MASTER_ADDR="first")
    assert "--node_rank=2" in words
    assert "--master_addr=first" in words


def test_the_emitted_program_parses_and_a_user_program_replaces_it() -> None:
    files = files_of(EMITTED)
    for name in ("train.py", "model.py"):
        ast.parse(files[f"deepspeed/{name}"])
    assert 'program="$here/../deepspeed/train.py"' in files["deepspeed/launch.sh"]
    own = files_of(changed(EMITTED, {"launch": {"program": "my train.py", "args": ["--x", "a b"]}}))
    assert not {"deepspeed/train.py", "deepspeed/model.py"} & own.keys()
    script = own["deepspeed/launch.sh"]
    assert "program='my train.py'" in script
    assert "ds_config.json\" --x 'a b')" in script


def test_torchrun_and_slurm_start_the_same_program_with_the_same_arguments() -> None:
    files = files_of(NAMED)
    words = 'args=(--deepspeed --deepspeed_config "$here/../deepspeed/ds_config.json")'
    assert words in files["torchrun/launch.sh"]
    assert words in files["deepspeed/launch.sh"]
    assert "exec torchrun" in files["torchrun/launch.sh"]
    assert "$PARC_DIR/torchrun/launch.sh" in files["slurm/job.sbatch"]


def test_a_variable_that_a_shell_would_execute_is_reported_without_another_launcher() -> None:
    env = {"A;touch x #": "1"}
    assert error_codes(EMITTED | {"emit": ["deepspeed"], "launch": {"env": env}}) == {"L18"}


def config(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    plan = plan_of(changed(spec, changes))
    return build_config(DS_CONFIG, plan.problem, plan.layout)


def test_batch_equals_micro_batch_times_accumulation_times_replicas() -> None:
    found = config(DENSE, **{"layout.pp": 2, "layout.tp": 2})
    assert found["train_micro_batch_size_per_gpu"] == 1
    assert found["gradient_accumulation_steps"] == 48 // (24 // 4)
    assert found["train_batch_size"] == 48


def test_autotp_omits_the_batch_because_deepspeed_would_count_all_ranks() -> None:
    found = config(DENSE, **{"layout.tp": 2})
    assert found["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in found
    assert "tensor_parallel" not in config(DENSE, **{"layout.tp": 2, "layout.pp": 2})
    assert "tensor_parallel" not in config(ROUTED, **{"layout.tp": 2, "layout.etp": 2})


def test_ulysses_sets_both_sequence_and_data_parallel_size() -> None:
    found = config(DENSE, **{"layout.cp": 2})
    assert (found["sequence_parallel_size"], found["data_parallel_size"]) == (2, 12)
    assert "data_parallel_size" not in config(DENSE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "fp32"),
        ({"job.gradient_precision": "bf16"}, "bf16"),
        ({"job.precision": "fp16"}, None),
        ({"layout.zero_stage": 0, "job.gradient_precision": "bf16"}, None),
    ],
)
def test_gradients_are_accumulated_in_the_type_of_the_job(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert config(DENSE, **changes).get("data_types", {}).get("grad_accum_dtype") == expected


def test_offload_sets_folder_and_aio_only_for_nvme() -> None:
    cpu = config(DENSE, **{"layout.zero_stage": 2, "layout.offload": "cpu"})
    assert cpu["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "aio" not in cpu
    away = {"optimizer": "nvme", "parameters": "nvme", "nvme_path": "/local"}
    nvme = config(DENSE, **{"layout.zero_stage": 3, "layout.offload": away})
    place = {"device": "nvme", "nvme_path": "/local", "pin_memory": True}
    assert nvme["zero_optimization"]["offload_optimizer"] == place
    assert nvme["zero_optimization"]["offload_param"] == place
    assert nvme["aio"]["queue_depth"] > 1


def test_recompute_is_a_pipeline_key_with_pp_and_a_section_without() -> None:
    staged = config(DENSE, **{"layout.pp": 2, "layout.recompute": "full"})
    assert staged["pipeline"] == {"activation_checkpoint_interval": 1}
    assert "activation_checkpointing" not in staged
    plain = config(DENSE, **{"layout.recompute": "full"})
    assert plain["activation_checkpointing"] == {"partition_activations": False}
    assert "pipeline" not in plain


def leaf_values(node: Any) -> list[Any]:
    return (
        [one for part in node.values() for one in leaf_values(part)]
        if isinstance(node, dict)
        else [node]
    )


def test_no_value_is_auto_or_null() -> None:
    for spec in (DENSE, ROUTED):
        plan = plan_of(spec)
        for file in (DS_CONFIG, TRAIN):
            found = build_config(file, plan.problem, plan.layout)
            assert not {"auto", None} & {v for v in leaf_values(found) if not isinstance(v, list)}
            json.dumps(found)


def stages(plan: Plan) -> list[int]:
    found = build_config(TRAIN, plan.problem, plan.layout)["stages"]
    assert isinstance(found, list)
    return found


def test_train_json_has_the_layers_of_every_stage() -> None:
    ends = {"layout.pp": 4, "layout.first_stage_layers": 2, "layout.last_stage_layers": 3}
    assert stages(plan_of(changed(DENSE, ends))) == [2, 4, 3, 3]
    assert stages(plan_of(changed(DENSE, {"layout.pp": 3}))) == [4, 4, 4]


@pytest.mark.parametrize(
    ("job", "kind", "params"),
    [
        ({"steps": 20}, "WarmupCosineLR", {"total_num_steps": 20, "cos_min_ratio": 0.1}),
        (
            {"lr_decay": "linear", "min_learning_rate": 0, "lr_decay_steps": 50},
            "WarmupDecayLR",
            {"total_num_steps": 50, "warmup_max_lr": 1e-4},
        ),
        ({"lr_decay": "constant"}, "WarmupLR", {"warmup_max_lr": 1e-4}),
    ],
)
def test_the_scheduler_has_exactly_the_parameters_of_its_class(
    job: dict[str, Any], kind: str, params: dict[str, Any]
) -> None:
    changes = {f"job.{name}": value for name, value in job.items()}
    found = config(DENSE, **changes, **{"job.learning_rate": 1e-4, "job.warmup_steps": 5})
    warmup = {"warmup_num_steps": 5, "warmup_type": "linear"}
    assert found["scheduler"] == {"type": kind, "params": params | warmup}
