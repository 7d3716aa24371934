"""Hosts, tasks and GPUs of a launch: mistakes (L08, L34, L36), and the nearest correct scripts."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import SBATCH, codes

OPTIONS = LintOptions(allow_unknown=True)
JOB = "#!/bin/bash\n#SBATCH -N 4 --ntasks-per-node={tasks} {gpus}\nsrun {launch}\n"
PRETRAIN = "python pretrain_gpt.py"


def _job(launch: str, tasks: int = 1, gpus: str = "--gpus-per-node=4") -> str:
    return JOB.format(tasks=tasks, gpus=gpus, launch=launch)


def _elastic(hosts: str, launcher: str = "torchrun --rdzv-backend c10d --nnodes") -> str:
    return _job(f"{launcher}={hosts} train.py")


STATIC = "torchrun --nproc_per_node 8 --nnodes 2 --master_addr a --master_port 1 train.py\n"
DEVICES = "export CUDA_VISIBLE_DEVICES=0,1,2,3\n"
LAUNCH = "torchrun --nproc_per_node=8 train.py\n"
IN_VARIABLES = """\
ADDRESS=node0
ARGS="--nproc_per_node 8 --nnodes 2 --master_addr $ADDRESS"
LAUNCHER="torchrun $ARGS{more}"
{use}
"""
SERVER = "CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve a/b --tensor-parallel-size 8"

EXPORTED = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
NNODES={hosts}
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $NNODES \\
    --master_addr $MASTER --master_port 6000 \\
    "
export CMD="`pwd`/train.py --data $DATA $MORE"
echo $LAUNCHER $CMD
srun bash -c '$LAUNCHER {rank} $CMD' 2>&1 | tee $OUT/log
"""
RANK = "--node_rank $SLURM_PROCID"

MISTAKES = {
    "no node rank of an exported launcher": ("L08", EXPORTED.format(hosts=4, rank=""), "--nnodes"),
    "idle hosts of an exported launcher": ("L36", EXPORTED.format(hosts=2, rank=RANK), "--nnodes"),
    "tasks without a GPU": ("L34", _job(PRETRAIN, 8), "ntasks"),
    "tasks in gres": ("L34", _job(PRETRAIN, 8, "--gres=gpu:a100:4"), "ntasks"),
    "tasks of several resources": ("L34", _job(PRETRAIN, 8, "--gres=nvme:1,gpu:4"), "ntasks"),
    "all GPUs of the job": ("L34", _job(PRETRAIN, 8, "--gpus=16"), "ntasks"),
    "tasks of srun": ("L34", _job(f"--ntasks-per-node=8 {PRETRAIN}"), "srun"),
    "all tasks of the job": (
        "L34",
        _job(PRETRAIN).replace("--ntasks-per-node=1", "--ntasks=32"),
        "--ntasks",
    ),
    "several launchers in all tasks": (
        "L01",
        _elastic("4").replace("--ntasks-per-node=1", "-n 32"),
        "-n 32",
    ),
    "one task per host": ("L02", _job(PRETRAIN).replace("--ntasks-per-node=1", "-n 4"), "-n 4"),
    "processes in a batch script": ("L34", "#SBATCH --gres=gpu:4\n" + LAUNCH, "--gres"),
    "idle hosts": ("L36", _elastic("2"), "torchrun"),
    "idle hosts of an elastic job": ("L36", _elastic("1:2"), "torchrun"),
    "idle hosts of Accelerate": ("L36", _elastic("2", "accelerate launch --num_machines"), "srun"),
    "a training per host": ("L36", _elastic("1"), "torchrun"),
    "no node rank": ("L08", STATIC, "torchrun"),
    "no node rank of a module": (
        "L08",
        f"python -m {STATIC}".replace("torchrun", M := ("torch.distributed.run")),
        M,
    ),
    "an unused node rank": ("L08", f"NODE_RANK=$RANK\n{STATIC}", "torchrun"),
    "no node rank in a batch script": ("L08", _job("torchrun --nnodes 4 train.py"), "srun"),
    "the hosts of Slurm": ("L08", _job("torchrun --nnodes $SLURM_NNODES train.py"), "srun"),
    "no node rank in variables": (
        "L08",
        IN_VARIABLES.format(more=" train.py", use="$LAUNCHER"),
        "ARGS=",
    ),
    "no node rank of a started variable": (
        "L08",
        IN_VARIABLES.format(more="", use="srun bash -c '$LAUNCHER train.py'"),
        "ARGS=",
    ),
    "hidden GPUs": ("L34", DEVICES + LAUNCH, "torchrun"),
    "GPUs before the command": ("L34", f"CUDA_VISIBLE_DEVICES=0 {LAUNCH}", "torchrun"),
    "GPUs with env": ("L34", f"env CUDA_VISIBLE_DEVICES=0,1 {LAUNCH}", "torchrun"),
    "GPUs inside srun": ("L34", f"srun env CUDA_VISIBLE_DEVICES=0,1 {LAUNCH}", "torchrun"),
    "the last export": ("L34", f"export CUDA_VISIBLE_DEVICES=0\n{DEVICES}{LAUNCH}", "torchrun"),
    "GPUs of Accelerate": (
        "L34",
        f"{DEVICES}accelerate launch --num_processes 8 train.py\n",
        "accelerate",
    ),
    "GPUs of a list in an array": (
        "L34",
        f"{DEVICES}ARGS=(\n  --nproc_per_node 8\n)\ntorchrun ${{ARGS[@]}} train.py\n",
        "--nproc",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_once_at_its_line(name: str) -> None:
    code, script, word = MISTAKES[name]
    sink, _ = lint_text(script, "run.sh", OPTIONS)
    found = [one for one in sink.diagnostics if one.code not in ("PARC-I05", "PARC-I09")]
    assert [one.code for one in found] == [f"PARC-{code}"]
    assert found[0].span is not None
    assert word in script.splitlines()[found[0].span.line - 1]
    assert found[0].finding.fix


CORRECT = {
    "an exported launcher": EXPORTED.format(hosts=4, rank=RANK),
    "jobs of two hosts": EXPORTED.format(hosts=2, rank="--node_rank $((SLURM_PROCID % 2))"),
    "one launcher per host": SBATCH,
    "one task per GPU": _job(PRETRAIN, 4),
    "tasks that share GPUs on purpose": _job(PRETRAIN, 8, "--ntasks-per-gpu=2 --gpus=16").replace(
        "--ntasks-per-node=8 ", ""
    ),
    "tasks without GPUs": _job("python preprocess_data.py", 8),
    "a tokenizer": _job("python train_tokenizer.py", 8),
    "no GPUs": _job(PRETRAIN, 8, "--mem=0"),
    "fewer tasks of srun": _job(f"--ntasks-per-node=4 {PRETRAIN}", 8),
    "all GPUs of all hosts": _job(PRETRAIN, 4, "--gpus=16"),
    "tasks of unknown hosts": _job(PRETRAIN, 4).replace("-N 4 --ntasks-per-node=4", "-n 32"),
    "processes of one host": "#SBATCH -N 1 -n 1 --gpus=8\nsrun python train.py\n",
    "the hosts of the job": _elastic("4"),
    "the hosts of an elastic job": _elastic("1:4"),
    "the hosts of the user": _elastic("${HOSTS:-2}"),
    "programs on parts of the hosts": _elastic("2")
    + "srun -N 2 torchrun --rdzv-backend c10d --nnodes=2 eval.py\n",
    "programs side by side": _elastic("2").replace("train.py", "train.py &")
    + "srun torchrun --rdzv-backend c10d --nnodes=2 train.py &\n",
    "srun on some hosts": _elastic("2").replace("srun", "srun -w host[1-2]"),
    "fewer tasks than hosts": _elastic("2").replace("srun", "srun -n 2"),
    "a server of other hosts": _elastic("2") + "srun -N 2 python server.py &\n",
    "a program per host": _job("torchrun --standalone --nnodes=1 train.py"),
    "an evaluation per host": _job("torchrun --nnodes=1 eval.py --part 1"),
    "a part of the work per host": _job("torchrun --nnodes=1 train.py --part $SLURM_PROCID"),
    "a node rank": STATIC.replace("train.py", "--node_rank $RANK train.py"),
    "ranks of the rendezvous": STATIC.replace("train.py", "--rdzv_backend=c10d train.py"),
    "one host": STATIC.replace("--nnodes 2", "--nnodes 1"),
    "hosts of the user": f"N=${{N:-2}}\n{STATIC.replace('--nnodes 2', '--nnodes $N')}",
    "ranks of the environment": f"export PET_NODE_RANK=$RANK\n{STATIC}",
    "options of the caller": STATIC.replace("train.py", '"$@" train.py'),
    "options of another file": STATIC.replace("train.py", "$MORE train.py"),
    "an operator of Kubernetes": "kind: PyTorchJob\nspec:\n  args:\n  - torchrun\n  - --nnodes=2\n"
    "  - --master_addr=a\n  - train.py\n",
    "a launcher that is not used": "A=node0\n"
    f'export LAUNCHER="{STATIC.strip()}"\npython train.py\n',
    "a node rank in variables": IN_VARIABLES.format(
        more="", use="srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID train.py'"
    ),
    "a part of a command": "#SBATCH --nodes=2\nsrun torchrun --nnodes 2\n",
    "as many processes as GPUs": DEVICES + LAUNCH.replace("8", "4"),
    "all visible GPUs": DEVICES + LAUNCH.replace("8", "gpu"),
    "GPUs of the user": DEVICES.replace("0,1,2,3", "$GPUS") + LAUNCH,
    "processes of the user": f"{DEVICES}N=${{N:-8}}\n{LAUNCH.replace('8', '$N')}",
    "a default for the GPUs": DEVICES.replace("0,1,2,3", "${CUDA_VISIBLE_DEVICES:-0,1}") + LAUNCH,
    "a later export": f"{DEVICES}{DEVICES.replace('3', '3,4,5,6,7')}{LAUNCH}",
    "an export after the command": LAUNCH + DEVICES,
    "an export in a branch": f"if [ $X ]; then\n  {DEVICES}fi\n{LAUNCH}",
    "an export in a function": f"f() {{\n  {DEVICES}}}\n{LAUNCH}",
    "a variable that is not exported": DEVICES.removeprefix("export ") + LAUNCH,
    "no longer exported": f"{DEVICES}unset CUDA_VISIBLE_DEVICES\n{LAUNCH}",
    "no GPUs at all": DEVICES.replace("0,1,2,3", '""') + LAUNCH,
    "GPUs that Slurm sets": f"{DEVICES}srun {LAUNCH}",
    "GPUs of another host": f"{DEVICES}ssh host {LAUNCH}",
    "GPUs of another command": f"CUDA_VISIBLE_DEVICES=0 python test.py\n{LAUNCH}",
    "DeepSpeed, which ignores the variable": f"{DEVICES}deepspeed --num_gpus 8 train.py\n",
    "processes of several hosts": f"{DEVICES}accelerate launch --num_machines 2 "
    "--num_processes 8 train.py\n",
    "hosts of a config": f"{DEVICES}accelerate launch --config_file c.yaml --num_processes 8 "
    "train.py\n",
}


@pytest.mark.parametrize("name", CORRECT)
def test_the_nearest_correct_script_has_no_findings(name: str) -> None:
    assert [code for code in codes(CORRECT[name], OPTIONS) if code not in ("I05", "I09")] == []
