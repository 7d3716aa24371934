"""Tests of the emitted hostfile, launch scripts and program."""

from __future__ import annotations

import ast
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.backends.deepspeed.boundaries import EMITTED, ROUTED
from tests.compiled import changed, error_codes, files_of

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
    for path, text in files_of(spec).items():
        target = folder / "out" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        target.chmod(0o755)
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
