"""Import the hosts of a job from ``squeue --json`` or ``scontrol show job --json``.

Slurm 22.05 writes plain numbers and states; since 23.02 a number is an object with ``set``,
``infinite`` and ``number``, and states are a list.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading, some
from parc.compiler.topology.readers.scontrol_nodes import gpus_of

_ALLOCATED = {
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "SIGNALING",
    "STOPPED",
    "SUSPENDED",
}
"""States in which hosts are allocated to a job (squeue(1), job state codes)."""
_LAUNCH = {"partition": "partition", "account": "account", "qos": "qos", "resv_name": "reservation"}
"""Key of a job -> field of ``launch.slurm``."""


def read_squeue(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read the hosts of one job, its GPUs per host, partition and account.

    Of several jobs with hosts, a running one is preferred, then the latest start, then the highest
    job id; I04 lists the other jobs.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    jobs = [entry for entry in root.items("jobs") if entry.wants(dict)]
    placed = [job for job in jobs if job.text("nodes")]
    if not placed and reading.sound:
        label = f"{len(jobs)} jobs, 0 with hosts"
        hint = "pending jobs have no hosts: use squeue --json --states=RUNNING"
        finding = Finding("no job has hosts", label, help=hint)
        reading.refuse("I02", finding, reading.span())
    if not reading.sound:
        return None
    job = max(placed, key=_rank)
    _take(job, reading)
    others = [_shown(other) for other in placed if other is not job]
    if others:
        hint = "squeue --json --jobs=NUMBER prints a single job"
        finding = Finding(
            f"jobs not imported: {some(others)}", f"{_shown(job)} is imported", help=hint
        )
        reading.say("I04", finding, job.span)
    return reading.fragment()


def _rank(job: Node) -> tuple[bool, int, int]:
    return bool(_states(job) & _ALLOCATED), _number(job, "start_time"), _number(job, "job_id")


def _states(job: Node) -> set[str]:
    state = job.child("job_state")
    words = state.value if state is not None else ()
    words = [words] if isinstance(words, str) else words
    return {str(word).upper() for word in words} if isinstance(words, list | tuple) else set()


def _number(job: Node, key: str) -> int:
    """Return a whole number of either form; 0 if the value is not one."""
    value = job.value.get(key)
    value = value.get("number") if isinstance(value, dict) else value
    return value if isinstance(value, int) else 0


def _shown(job: Node) -> str:
    name = job.value.get("name")
    named = f" ({name[:40]})" if isinstance(name, str) and name else ""
    return f"{str(_number(job, 'job_id'))[:20]}{named}"


def _take(job: Node, reading: Reading) -> None:
    """Add the hosts of the job, its GPUs, and its Slurm settings."""
    nodes = job.child("nodes")
    span = nodes.span if nodes is not None else job.span
    # The host list starts after the opening quote.
    start = reading.span(span.line, span.column + 1, max(span.length - 2, 1))
    hosts = list(dict.fromkeys(reading.names(job.text("nodes"), start)))
    for host in hosts:
        reading.place(Located(host, (), None, span))
    reading.allocated = tuple(hosts)
    reading.notes.append(f"hosts of job {_shown(job)}")
    if not _states(job) & _ALLOCATED:
        reading.notes.append("the job is not running: its hosts may belong to another job by now")
    _take_gpus(job, len(hosts), reading)
    slurm = {ours: text for theirs, ours in _LAUNCH.items() if (text := job.text(theirs))}
    if slurm:
        reading.spec["launch"] = {"slurm": slurm}
        reading.spans["launch.slurm"] = job.span


def _take_gpus(job: Node, hosts: int, reading: Reading) -> None:
    """Set the GPUs per host: as allocated on it, else its share of the total, else as requested."""
    details = [entry.value for entry in job.items("gres_detail", required=False)]
    given = {gpus_of(text)[0]: None for text in details if isinstance(text, str)}
    total = gpus_of(job.text("tres_alloc_str"))[0]
    if len(given) > 1 or (not any(given) and hosts and total % hosts):
        numbers = ", ".join(map(str, sorted(given))) if any(given) else f"{total} on {hosts} hosts"
        finding = Finding(
            f"the job has different numbers of GPUs on its hosts: {numbers}",
            help="PARC needs the same number on every host: submit with --gpus-per-node",
        )
        where = job.child("gres_detail" if any(given) else "tres_alloc_str")
        reading.refuse("I03", finding, where.span if where is not None else job.span)
        return
    requested = gpus_of(job.text("tres_per_node"))[0]
    gpus = next(iter(given), 0) or total // max(hosts, 1) or requested
    if gpus:
        reading.spec["cluster"] = {"node": {"gpus_per_node": gpus}}
        reading.spans["cluster.node.gpus_per_node"] = job.span
