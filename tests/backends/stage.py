"""Execution of emitted scripts in a folder, with stand-ins for the real tools on PATH."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from parc.backends.registry import backend
from parc.compiler.ir import Plan

TORCHRUN = """#!/bin/bash
printf '%s\\0' "torchrun" "$@" >> "$STAGE/calls"
env -0 > "$STAGE/environment.${3#--node-rank=}"
exit "${TORCHRUN_STATUS:-0}"
"""
SCONTROL = """#!/bin/bash
printf '   Command=%s\\n' "$SUBMITTED"
"""
HOSTNAME = """#!/bin/bash
if [[ ${1:-} == -s ]]; then echo "${HOST%%.*}"; else echo "$HOST"; fi
"""
# As Slurm does: task n on line n+1 of the host file, or on the job's hosts in name order.
SRUN = """#!/bin/bash
flags=()
while [[ ${1:-} == --* ]]; do flags+=("$1"); shift; done
printf '%s\\0' srun "${flags[@]}" >> "$STAGE/srun"
hosts=$STAGE/allocation
if [[ -n ${SRUN_LASTS:-} && " ${flags[*]} " == *" --output="* ]]; then
  trap 'touch "$STAGE/forwarded"; exit 0' USR1
  touch "$STAGE/started"
  until [[ -e $STAGE/end ]]; do sleep 0.02; done
  exit 0
fi
[[ " ${flags[*]} " == *" --distribution=arbitrary "* ]] && hosts=${CHEAT:-$SLURM_HOSTFILE}
n=0 status=0
while IFS= read -r host; do
  place=$(HOST=$host awk '$2 == ENVIRON["HOST"] { print $1 }' "$STAGE/leaves" 2>/dev/null)
  SLURM_PROCID=$n SLURMD_NODENAME=$host HOST=$host SLURM_TOPOLOGY_ADDR=${place:+$place.$host} \\
    "$@" </dev/null || status=$?
  n=$((n + 1))
done < "$hosts"
exit "$status"
"""


@dataclass
class Stage:
    """Folder with the emitted files in ``out`` and the stand-ins in ``bin``."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def emit(self, plan: Plan, words: str = "--a 'b c'") -> None:
        """Write the files that the plan's launchers emit, and an args.sh with ``words``."""
        for name in plan.problem.emit:
            if name == "megatron":
                self.put("out/megatron/args.sh", f"MEGATRON_ARGS=({words})\n")
                continue
            for artifact in backend(name).emit(plan):
                self.put(f"out/{artifact.path}", artifact.text, artifact.executable)
        tools = {"torchrun": TORCHRUN, "scontrol": SCONTROL, "hostname": HOSTNAME, "srun": SRUN}
        for name, text in tools.items():
            self.put(f"bin/{name}", text, True)
        self.put("work/pretrain_gpt.py", "")

    def put(self, path: str, text: str, executable: bool = False) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if executable else 0o644)

    def run(self, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run ``out/<script>`` in the folder ``work``."""
        with self.start(script, *args, **env) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, script: str, *args: str, **env: str) -> subprocess.Popen[str]:
        """Start ``out/<script>`` in the folder ``work``."""
        fixed = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "STAGE": str(self.root),
            "HOST": "elsewhere",
            **env,
            **self.env,
        }
        return subprocess.Popen(
            ["bash", str(self.root / "out" / script), *args],
            cwd=self.root / "work",
            env=fixed,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, *allocation: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the batch script as Slurm would on the hosts ``allocation``."""
        return self.run("slurm/job.sbatch", **self.allocate(*allocation), **env)

    def allocate(self, *hosts: str) -> dict[str, str]:
        """Return the environment that Slurm sets for a job on ``hosts``."""
        self.put("allocation", "".join(f"{host}\n" for host in hosts))
        return {
            "SLURM_JOB_ID": "123456",
            "SLURM_JOB_NAME": "tiny",
            "SLURM_JOB_NUM_NODES": str(len(hosts)),
            "SLURM_CPUS_ON_NODE": "64",
            "SLURM_SUBMIT_DIR": str(self.root / "work"),
            "SUBMITTED": str(self.root / "out/slurm/job.sbatch"),
        }

    def calls(self, name: str = "calls") -> list[list[str]]:
        """Return the argument lists of all calls of a stand-in, in order."""
        path = self.root / name
        calls: list[list[str]] = []
        for word in path.read_text().split("\0")[:-1] if path.exists() else []:
            if word in {"torchrun", "srun"}:
                calls.append([])
            else:
                calls[-1].append(word)
        return calls

    def environment(self, node_rank: int) -> dict[str, str]:
        """Return the environment and arguments of torchrun on one node."""
        text = (self.root / f"environment.{node_rank}").read_text()
        return dict(line.split("=", 1) for line in text.split("\0") if line)

    def pwned(self) -> list[Path]:
        """Return files that only a command injected through the spec would have created."""
        return list(self.root.rglob("pwned*"))
