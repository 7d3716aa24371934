"""Compare host files and launch scripts with the rank map."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import read_lines, read_number, read_numbers

HOST_FILES = ("slurm/hostfile", "torchrun/hosts")
SCRIPTS = ("torchrun/launch.sh", "slurm/launch.sh")
DEEPSPEED = "deepspeed/launch.sh"
"""Its launcher counts hosts and ranks in the file of slots."""
SLOTS = "deepspeed/hostfile"
JOB = "slurm/job.sbatch"
JOBSET = "kubernetes/jobset.yaml"
GROUPS = "kubernetes/leaderworkerset.yaml"
NODES, RANKS, WORLD = "nodes", "ranks", "world"
SCRIPT_NUMBERS = (
    ("--nnodes", r"--nnodes=(\d+)", NODES),
    ("--nproc-per-node", r"--nproc-per-node=(\d+)", RANKS),
)
ACCELERATE_NUMBERS = (
    ("--num_machines", r"--num_machines=(\d+)", NODES),
    ("--num_processes", r"--num_processes=(\d+)", WORLD),
)
JOB_NUMBERS = (
    ("--nodes", r"^#SBATCH --nodes=(\d+)", NODES),
    ("nodes", r"^nodes=(\d+)$", NODES),
)
"""Name, pattern that captures it, and which number of the rank map it must be."""


def verify_launch(
    artifacts: Mapping[str, str], hosts: list[str], ranks_per_node: int, sink: Sink
) -> None:
    """A02 for host files, A07 for the numbers in the scripts."""
    for file in HOST_FILES:
        if file in artifacts:
            _verify_host_file(file, artifacts[file], hosts, sink)
    numbers = {NODES: len(hosts), RANKS: ranks_per_node, WORLD: len(hosts) * ranks_per_node}
    for file in SCRIPTS:
        if file in artifacts:
            accelerate = "\nexec accelerate launch" in artifacts[file]
            rows = ACCELERATE_NUMBERS if accelerate else SCRIPT_NUMBERS
            _verify_numbers(file, artifacts[file], rows, numbers, sink)
            _verify_master(file, artifacts[file], hosts, sink)
    if SLOTS in artifacts:
        _verify_slots(artifacts[SLOTS], hosts, ranks_per_node, sink)
    if DEEPSPEED in artifacts:
        _verify_master(DEEPSPEED, artifacts[DEEPSPEED], hosts, sink)
    for file, verify in ((JOBSET, _verify_pods), (GROUPS, _verify_pod_groups)):
        if file in artifacts:
            verify(artifacts[file], len(hosts), sink)
            _verify_pod_gpus(file, artifacts[file], ranks_per_node, sink)
    if JOB in artifacts:
        _verify_numbers(JOB, artifacts[JOB], JOB_NUMBERS, numbers, sink)
        _verify_gpus(artifacts[JOB], ranks_per_node, sink)


RELIED_ON = {
    "megatron/args.sh": "/megatron/args.sh",
    "fsdp/train.py": "/fsdp/train.py",
    "torchtitan/parc_titan.py": "/torchtitan",
    "accelerate/config.yaml": "/accelerate/config.yaml",
    "accelerate/train.py": "/accelerate/train.py",
    "deepspeed/ds_config.json": "/deepspeed/ds_config.json",
    "deepspeed/train.py": "/../deepspeed/train.py",
    "deepspeed/model.py": "/../deepspeed/train.py",
    "deepspeed/hostfile": '$here/hostfile"',
    "preflight/check_ranks.py": "/preflight/check_ranks.py",
    "torchrun/hosts": '$here/hosts"',
    "slurm/hostfile": "/slurm/hostfile",
    "torchrun/launch.sh": "$PARC_DIR/torchrun/launch.sh",
    "vllm/serve.sh": "$PARC_DIR/vllm/serve.sh",
    "slurm/launch.sh": "$PARC_DIR/slurm/launch.sh",
}
"""File -> the words in a script that show that the script needs it."""
IMPLIED = (
    ("preflight/expected.json", "preflight/check_ranks.py"),
    ("rankmap.json", "rankmap.csv"),
    ("rankmap.csv", "rankmap.json"),
    ("rankmap.csv", "rankmap.md"),
    ("fsdp/config.json", "fsdp/parallelize.py"),
    ("fsdp/config.json", "fsdp/train.py"),
    ("accelerate/job.json", "accelerate/train.py"),
    ("fsdp/parallelize.py", "fsdp/train.py"),
    ("fsdp/model.py", "fsdp/train.py"),
)
"""(file, who needs it) where the name alone says so."""


def missing_files(artifacts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(file, who needs it) for every file that another one relies on."""
    scripts = [
        (name, script)
        for script in (*SCRIPTS, DEEPSPEED, JOB)
        for name, mark in RELIED_ON.items()
        if mark in artifacts.get(script, "")
        and (not mark.startswith("$here/") or _folder(name) == _folder(script))
    ]
    needs = (*scripts, *IMPLIED)
    return [(name, user) for name, user in needs if user in artifacts and name not in artifacts]


def _folder(path: str) -> str:
    return path.partition("/")[0]


def visible_devices(artifacts: Mapping[str, str]) -> list[str] | None:
    """The devices that a launch script makes visible, in order; None where it leaves them."""
    for file in SCRIPTS:
        pattern = r"^export (?:CUDA|HIP)_VISIBLE_DEVICES='?([0-9,]+)'?$"
        found = re.search(pattern, artifacts.get(file, ""), re.MULTILINE)
        if found:
            return found[1].split(",")
    return None


def _verify_slots(text: str, hosts: list[str], ranks_per_node: int, sink: Sink) -> None:
    """The hostfile of DeepSpeed: names in order, the ranks of a host as slots."""
    lines = [line for line in read_lines(text) if not line.startswith("#")]
    _verify_host_file(SLOTS, "".join(f"{line.split(' ')[0]}\n" for line in lines), hosts, sink)
    wrong = [line for line in lines if not line.endswith(f" slots={ranks_per_node}")]
    if wrong:
        message = f"{wrong[0]!r:.60} in {SLOTS}, the rank map has {ranks_per_node} ranks a host"
        sink.report("A07", message, span=Span(SLOTS, lines.index(wrong[0]) + 1, 1))


def _verify_host_file(file: str, text: str, hosts: list[str], sink: Sink) -> None:
    lines = read_lines(text)
    if lines == hosts:
        return
    if len(lines) != len(hosts):
        message = f"{file} has {len(lines)} hosts, the rank map {len(hosts)}"
        sink.report("A02", message, span=Span(file, min(len(lines), len(hosts)) + 1, 1))
        return
    wrong = [n for n, pair in enumerate(zip(lines, hosts, strict=True)) if pair[0] != pair[1]]
    message = f"{len(wrong)} of {len(hosts)} node ranks are on another host in {file}"
    first = [f"node rank {n}: {lines[n]!r:.60}, must be {hosts[n]!r:.60}" for n in wrong[:4]]
    sink.report("A02", Finding(message, "; ".join(first)), span=Span(file, wrong[0] + 1, 1))


def _verify_numbers(
    file: str,
    text: str,
    rows: tuple[tuple[str, str, str], ...],
    numbers: dict[str, int],
    sink: Sink,
) -> None:
    for name, pattern, kind in rows:
        found = read_numbers(text, pattern)
        wrong = [(line, f"is {number}") for line, number in found if number != numbers[kind]]
        for line, what in wrong[:1] if found else [(1, "is missing")]:
            message = f"{name} {what} in {file}, the rank map has {numbers[kind]}"
            sink.report("A07", message, span=Span(file, line, 1))


def _verify_master(file: str, text: str, hosts: list[str], sink: Sink) -> None:
    found = re.search(r"^first='?([^'\n]*)'?$", text, re.MULTILINE)
    if found and found[1] != hosts[0]:
        message = f"the rendezvous is on {found[1]!r:.60} in {file}, rank 0 on {hosts[0]!r:.60}"
        sink.report("A07", message, span=Span(file, text.count("\n", 0, found.start()) + 1, 1))


def _verify_pods(text: str, hosts: int, sink: Sink) -> None:
    """Jobs x pods of a job are the hosts, and a pod's node rank counts pods of a job."""
    replicas = read_number(text, r"^ +replicas: (\d+)$") or 0
    each = read_number(text, r"^ +completions: (\d+)$") or 0
    step = read_number(text, r"JOB_INDEX \* (\d+) ")
    if replicas * each != hosts or step != each:
        message = f"{replicas} x {each} pods in {JOBSET}, the rank map has {hosts} hosts"
        sink.report("A07", message, span=Span(JOBSET, _line_of(text, r"^ +replicas:"), 1))


def _verify_pod_groups(text: str, hosts: int, sink: Sink) -> None:
    """Groups x pods of a group are the hosts, all of them named, and node ranks count them."""
    groups = read_number(text, r"^ +replicas: (\d+)$") or 0
    size = read_number(text, r"^ +size: (\d+)$") or 0
    step = read_number(text, r"GROUP_INDEX \* (\d+) ")
    named = re.search(r"name: PARC_HOSTS\n +value: (.*)$", text, re.MULTILINE)
    count = len(named[1].split()) if named else 0
    if groups * size != hosts or step != size or count != hosts:
        message = f"{groups} x {size} pods in {GROUPS}, {count} named, the rank map has {hosts}"
        sink.report("A07", message, span=Span(GROUPS, _line_of(text, r"^ +replicas:"), 1))


def _verify_pod_gpus(file: str, text: str, ranks_per_node: int, sink: Sink) -> None:
    """A pod asks for a GPU a rank."""
    pattern = r"^ +(?:nvidia|amd)\.com/gpu: '(\d+)'$"
    found = read_number(text, pattern)
    if found is not None and found != ranks_per_node:
        message = f"{found} GPUs a pod in {file}, the rank map has {ranks_per_node} a host"
        sink.report("A07", message, span=Span(file, _line_of(text, pattern), 1))


def _verify_gpus(job: str, ranks_per_node: int, sink: Sink) -> None:
    """A job may ask for more GPUs a host than it has ranks there, never for fewer."""
    pattern = r"^#SBATCH --gpus-per-node=(\d+)"
    found = read_number(job, pattern)
    if found is not None and found < ranks_per_node:
        message = f"--gpus-per-node is {found} in {JOB}, the rank map has {ranks_per_node} a host"
        sink.report("A07", message, span=Span(JOB, _line_of(job, pattern), 1))


def _line_of(text: str, pattern: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1
