"""Checks of ``launch.slurm.extra``, ``array``, ``mail`` and of host lists (L28)."""

from __future__ import annotations

import re

from parc.backends.slurm.directives import directive_table
from parc.backends.slurm.quoting import contains_control_character
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.topology.hostlist import HostlistError, expand_host_list

TARGETS = ("slurm",)
AT = "launch.slurm"
_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:=(?P<value>.+))?", re.DOTALL)
_RANGE = r"\d{1,9}(?:-\d{1,9}(?::[1-9]\d{0,8})?)?"
_ARRAY = re.compile(rf"{_RANGE}(?:,{_RANGE})*(?:%[1-9]\d{{0,8}})?")
"""Task numbers of sbatch(1), --array: 0-15, 1,3,5, 0-15:4 and 0-15%4."""
MAIL_TYPES = frozenset(
    (
        *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
        *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
    )
)
"""Words of sbatch(1), --mail-type."""
_SHOWN = 60


def check_directives(plan: AnyPlan, sink: Sink) -> None:
    """Report directives that sbatch rejects, or that contradict the plan (L28)."""
    slurm = plan.problem.launch.slurm
    for index, entry in enumerate(slurm.extra):
        problem = _find_directive_fault(entry)
        if problem is not None:
            text, help_text = problem
            finding = Finding(text, help=help_text, targets=TARGETS)
            sink.report("L28", finding, at=f"{AT}.extra[{index}]")
    if slurm.array is not None and not _ARRAY.fullmatch(slurm.array):
        text = f"{slurm.array!r:.{_SHOWN}} is not a valid array of sbatch"
        help_text = "valid forms: 0-15, 1,3,5, 0-15:4; append %N to run N tasks at a time"
        sink.report("L28", Finding(text, help=help_text, targets=TARGETS), at=f"{AT}.array")
    words = (slurm.mail_type or "NONE").upper().split(",")
    if unknown := [word for word in words if word not in MAIL_TYPES]:
        text = f"Slurm has no mail type {unknown[0]!r:.{_SHOWN}}"
        help_text = f"valid values: {', '.join(sorted(MAIL_TYPES))}"
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L28", finding, at=f"{AT}.mail.type")
    _check_hosts(plan, sink)


def _find_directive_fault(entry: str) -> tuple[str, str] | None:
    """Return (problem, help) for an entry of ``launch.slurm.extra``; None if the entry is valid."""
    shown = f"{entry!r:.{_SHOWN}}"
    if contains_control_character(entry):
        return f"{shown} has a control character", "put the directive on one line"
    found = _OPTION.fullmatch(entry)
    if found is None:
        return f"{shown} is not a directive", "use --option or --option=value"
    name = found["name"]
    value = found["value"] or ""
    if name == "gres" and not _requests_gpus(value):
        return None
    determined: dict[str, str] = directive_table()["determined"]
    # getopt_long accepts the beginning of the name of an option, such as --part for --partition.
    option = next(
        (one for one in (name, *determined) if one in determined and one.startswith(name)), ""
    )
    if not option:
        return None
    full = "" if option == name else f", an abbreviation of --{option},"
    return f"--{name}{full} is determined by the plan", determined[option]


def _requests_gpus(gres: str) -> bool:
    """Return True if ``gres`` contains GPUs, as in ``lustre:1,gpu:h100:8``."""
    names = (one.strip().removeprefix("gres/").partition(":")[0] for one in gres.split(","))
    return any(name.lower() in ("gpu", "none", "help", "") for name in names)


def _check_hosts(plan: AnyPlan, sink: Sink) -> None:
    """Report host lists that contradict the plan, or that Slurm cannot read."""
    slurm, cluster = plan.problem.launch.slurm, plan.problem.cluster
    planned = [host.name for host in plan.placement.hosts]
    lists: dict[str, list[str]] = {}
    for field in ("exclude", "nodelist"):
        text = getattr(slurm, field)
        if text is None or contains_control_character(text) or not text.strip():
            continue
        try:
            lists[field] = expand_host_list(text)
        except HostlistError as error:
            message = f"{AT}.{field} is not a host list: {error}"
            help_text = "valid forms: n1, n[1-4,7], r1n[01-16],r2n[01-16]"
            finding = Finding(message, help=help_text, targets=TARGETS)
            sink.report("L28", finding, at=f"{AT}.{field}")
    wanted = lists.get("nodelist", [])
    excluded = set(lists.get("exclude", ()))
    needed = planned if cluster.named else wanted
    if cluster.named and slurm.nodelist is not None:
        text = f"--nodelist is already set to the {len(planned)} hosts named under cluster"
        finding = Finding(text, fix=f"remove {AT}.nodelist", targets=TARGETS)
        sink.report("L28", finding, at=f"{AT}.nodelist")
    elif len(wanted) > len(planned):
        text = f"--nodelist requests {len(wanted)} hosts, but the plan uses {len(planned)}"
        help_text = f"list at most {len(planned)} hosts, or name them under cluster"
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L28", finding, at=f"{AT}.nodelist")
    if both := [host for host in needed if host in excluded]:
        text = f"--exclude contains {len(both)} of the hosts that the job needs, such as {both[0]}"
        help_text = "list hosts that are not in use under cluster.unavailable instead"
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L28", finding, at=f"{AT}.exclude")
