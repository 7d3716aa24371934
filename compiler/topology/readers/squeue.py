"""Import of the hosts of a job from ``squeue --json`` or ``scontrol show job --json``.

Slurm 22.05 writes plain numbers and a single state. Since 23.02, a number is an object with
``set``, ``infinite`` and ``number``, and the states are a list.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    LocatedHost,
    Reading,
    summarize_names,
)
from parc.compiler.topology.readers.scontrol_nodes import parse_gres_gpus

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
    """Return a spec fragment with the hosts, GPUs per host, partition and account of one job.

    The file can contain several jobs with hosts. A running job is preferred, then the job that
    started last, then the job with the highest id. The other jobs are reported as not imported
    (I04).
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    jobs = [entry for entry in root.items("jobs") if entry.check_type(dict)]
    placed = [job for job in jobs if job.text("nodes")]
    if not placed and reading.is_valid:
        label = f"{len(jobs)} jobs, 0 with hosts"
        hint = (
            "list running jobs, because pending jobs have no hosts: squeue --json --states=RUNNING"
        )
        finding = Finding("no job has hosts", label, help=hint)
        reading.report_error("I02", finding, reading.span())
    if not reading.is_valid:
        return None
    job = max(placed, key=_job_preference)
    _add_job(job, reading)
    others = [_describe_job(other) for other in placed if other is not job]
    if others:
        hint = "squeue --json --jobs=NUMBER prints a single job"
        finding = Finding(
            f"jobs not imported: {summarize_names(others)}",
            f"job {_describe_job(job)} is imported",
            help=hint,
        )
        reading.report("I04", finding, job.span)
    return reading.fragment()


def _job_preference(job: DocumentNode) -> tuple[bool, int, int]:
    return (
        bool(_job_states(job) & _ALLOCATED),
        _job_number(job, "start_time"),
        _job_number(job, "job_id"),
    )


def _job_states(job: DocumentNode) -> set[str]:
    state = job.child("job_state")
    words = state.value if state is not None else ()
    words = [words] if isinstance(words, str) else words
    return {str(word).upper() for word in words} if isinstance(words, list | tuple) else set()


def _job_number(job: DocumentNode, key: str) -> int:
    """Return the integer that a job has under ``key``; 0 if there is none.

    Slurm writes it as a plain number or as ``{"number": 4}``.
    """
    value = job.value.get(key)
    value = value.get("number") if isinstance(value, dict) else value
    return value if isinstance(value, int) else 0


def _describe_job(job: DocumentNode) -> str:
    name = job.value.get("name")
    named = f" ({name[:40]})" if isinstance(name, str) and name else ""
    return f"{str(_job_number(job, 'job_id'))[:20]}{named}"


def _add_job(job: DocumentNode, reading: Reading) -> None:
    """Add the hosts of ``job``, its GPUs per host and its Slurm settings to the fragment."""
    nodes = job.child("nodes")
    span = nodes.span if nodes is not None else job.span
    # The host list starts after the opening quote.
    start = reading.span(span.line, span.column + 1, max(span.length - 2, 1))
    hosts = list(dict.fromkeys(reading.expand_host_list(job.text("nodes"), start)))
    for host in hosts:
        reading.add_host(LocatedHost(host, (), None, span))
    reading.allocated = tuple(hosts)
    reading.notes.append(f"hosts of job {_describe_job(job)}")
    if not _job_states(job) & _ALLOCATED:
        reading.notes.append("the job is not running: its hosts may belong to another job by now")
    _set_gpus_per_node(job, len(hosts), reading)
    slurm = {ours: text for theirs, ours in _LAUNCH.items() if (text := job.text(theirs))}
    if slurm:
        reading.spec["launch"] = {"slurm": slurm}
        reading.spans["launch.slurm"] = job.span


def _set_gpus_per_node(job: DocumentNode, hosts: int, reading: Reading) -> None:
    """Set the number of GPUs per host of ``job``.

    The first known number of these three is used: the GPUs allocated on each host, the job's total
    divided by its hosts, and the requested number. If hosts have different numbers of GPUs, report
    an error (I03).
    """
    details = [entry.value for entry in job.items("gres_detail", required=False)]
    given = {parse_gres_gpus(text)[0]: None for text in details if isinstance(text, str)}
    total = parse_gres_gpus(job.text("tres_alloc_str"))[0]
    if len(given) > 1 or (not any(given) and hosts and total % hosts):
        numbers = ", ".join(map(str, sorted(given))) if any(given) else f"{total} on {hosts} hosts"
        finding = Finding(
            f"the job has different numbers of GPUs on its hosts: {numbers}",
            help="PARC needs the same number on every host: submit with --gpus-per-node",
        )
        where = job.child("gres_detail" if any(given) else "tres_alloc_str")
        reading.report_error("I03", finding, where.span if where is not None else job.span)
        return
    requested = parse_gres_gpus(job.text("tres_per_node"))[0]
    gpus = next(iter(given), 0) or total // max(hosts, 1) or requested
    if gpus:
        reading.spec["cluster"] = {"node": {"gpus_per_node": gpus}}
        reading.spans["cluster.node.gpus_per_node"] = job.span
