"""Checks of ``launch.slurm``: directives, times, the log folder, containers, blocks."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import PurePosixPath

from parc.backends.registry import engine
from parc.backends.shared.launch_rules import explain_registry_without_separator
from parc.backends.shared.launchers.container_paths import (
    Container,
    missing_folders,
    missing_paths,
    report_missing_paths,
)
from parc.backends.shared.versions import parse_version
from parc.backends.slurm.array_rules import check_array, check_run_length
from parc.backends.slurm.directives import (
    NODELIST_WITH_SEGMENT_SINCE,
    contains_control_character,
    directive_table,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import AnyPlan, Plan
from parc.compiler.tools.importers.slurm_time import (
    TIME_FORMS,
    UNLIMITED,
    convert_time_limit,
    time_limit_seconds,
)
from parc.compiler.topology.hostlist import HostlistError, expand_host_list

TARGETS = ("slurm",)
SIGNAL_SECONDS_LIMIT = 65535
"""Slurm stores the warning time in 16 bits (sbatch(1), --signal)."""
SEGMENT_SINCE = (24, 5)
"""First Slurm version with ``--segment``."""
_TEXT_FIELDS = (
    *("partition", "account", "qos", "reservation", "constraint", "exclude", "nodelist", "array"),
    *("comment", "mail_user", "mail_type", "time_limit"),
)
"""Fields of ``launch.slurm``, each of which is the value of a directive."""
AT = "launch.slurm"
APPTAINER_FOLDERS = ("/home", "/root", "/tmp")
"""Folders that may be in a container of Apptainer without a mount: the home folder and /tmp."""
_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:=(?P<value>.+))?", re.DOTALL)
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
    check_array(plan, sink)
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


def check_slurm(plan: AnyPlan, sink: Sink) -> None:
    """Report every problem with the settings in ``launch.slurm``."""
    _check_directive_values(plan, sink)
    _check_time_limit(plan, sink)
    _check_log_dir(plan, sink)
    _check_container(plan, sink)
    _check_container_paths(plan, sink)
    _check_nvlink_domains(plan, sink)
    check_directives(plan, sink)


def check_engine_script(plan: AnyPlan, sink: Sink) -> None:
    """Report a serving job whose engine is not in ``emit`` (V29).

    The batch script runs a script that only the engine's backend emits.
    """
    name = plan.problem.framework
    if name in plan.problem.emit:
        return
    script = engine(name).host_script
    text = f"job.sbatch runs {script}, which only the target {name} writes; emit does not list it"
    fix = f"emit: [{', '.join(sorted({*plan.problem.emit, name}))}]"
    sink.report("V29", Finding(text, fix=fix, targets=TARGETS), at="emit")


def _check_directive_values(plan: AnyPlan, sink: Sink) -> None:
    """Report values with control characters (L16), empty values and slashes in the name (L15)."""
    slurm = plan.problem.launch.slurm
    words = {"name": plan.problem.name}
    for field in _TEXT_FIELDS:
        value = getattr(slurm, field)
        if value is not None:
            words[f"launch.slurm.{field.replace('mail_', 'mail.')}"] = value
    for path, word in words.items():
        if contains_control_character(word):
            text = f"{path} is {word!r}, but a #SBATCH line cannot contain control characters"
            finding = Finding(text, fix=f"put {path} on one line", targets=TARGETS)
            sink.report("L16", finding, at=path)
        elif not word.strip():
            text = f"{path} is empty"
            finding = Finding(text, fix=f"remove {path}, or set a value", targets=TARGETS)
            sink.report("L15", finding, at=path)
    if "/" in plan.problem.name:
        text = f"the job name {plan.problem.name!r} would write the log to another folder"
        help_text = "use letters, digits, dot, dash and underscore"
        sink.report("L15", Finding(text, help=help_text, targets=TARGETS), at="name")


def _check_time_limit(plan: AnyPlan, sink: Sink) -> None:
    """Report a time limit that Slurm cannot parse (L17) and an invalid warning time (L19)."""
    slurm = plan.problem.launch.slurm
    seconds = None
    limit = slurm.time_limit
    if limit is not None and limit.strip() and limit.lower() not in UNLIMITED:
        seconds = time_limit_seconds(limit)
        if seconds is None:
            text = f"Slurm cannot read the time limit {limit!r}"
            meant = convert_time_limit(limit)
            fix = f'launch.slurm.time_limit: "{meant}"' if meant else ""
            finding = Finding(text, help=f"{TIME_FORMS}, quoted", fix=fix, targets=TARGETS)
            sink.report("L17", finding, at="launch.slurm.time_limit")
    if seconds and isinstance(plan, Plan):
        check_run_length(plan, seconds, sink)
    # The warning must come after the start of the job, so it is shorter than the time limit.
    longest = SIGNAL_SECONDS_LIMIT if not seconds else min(SIGNAL_SECONDS_LIMIT, seconds - 1)
    if not 1 <= slurm.signal_seconds <= longest:
        text = (
            f"launch.slurm.signal: {slurm.signal_seconds} s before the time limit is out of range"
        )
        label = f"{slurm.signal_seconds} s must be in 1..{longest} s"
        finding = Finding(text, label=label, targets=TARGETS)
        sink.report("L19", finding, at="launch.slurm.signal")


def _check_log_dir(plan: AnyPlan, sink: Sink) -> None:
    """Report a log folder that is absolute or empty, or that contains special characters (L21)."""
    log_dir = plan.problem.launch.slurm.log_dir
    path = PurePosixPath(log_dir)
    # Backslash and % are special in file name patterns of Slurm; ~ is not expanded in quotes.
    special = [char for char in "\\%~" if char in log_dir]
    if log_dir.strip() and not (
        path.is_absolute() or special or contains_control_character(log_dir)
    ):
        return
    text = f"logs cannot be written to {log_dir!r}"
    help_text = "use a folder relative to the submission folder, without backslash, % and ~"
    finding = Finding(text, help=help_text, fix="launch.slurm.log_dir: logs", targets=TARGETS)
    sink.report("L21", finding, at="launch.slurm.log_dir")


def _check_container(plan: AnyPlan, sink: Sink) -> None:
    """Report container mounts without an image, and invalid mounts or images (L22)."""
    slurm = plan.problem.launch.slurm
    at = "launch.slurm.container_mounts"
    if slurm.container_mounts and slurm.container_image is None:
        text = f"{len(slurm.container_mounts)} container mounts are set, but container_image is not"
        fix = "launch.slurm.container_image: IMAGE"
        sink.report("L22", Finding(text, fix=fix, targets=TARGETS), at=at)
    if slurm.container_runtime is not None and slurm.container_image is None:
        text = f"container_runtime is {slurm.container_runtime}, but container_image is not set"
        finding = Finding(text, fix="launch.slurm.container_image: IMAGE", targets=TARGETS)
        sink.report("L22", finding, at="launch.slurm.container_runtime")
    for index, mount in enumerate(slurm.container_mounts):
        # pyxis and Apptainer separate mounts by commas and the parts of a mount by colons.
        if not re.fullmatch(r"[^:,\x00-\x1f]+(:[^:,\x00-\x1f]+){0,2}", mount):
            text = f"{slurm.container_runtime or 'pyxis'} cannot parse the mount {mount!r}"
            help_text = "use source:target or source:target:flags, without commas"
            finding = Finding(text, help=help_text, targets=TARGETS)
            sink.report("L22", finding, at=f"{at}[{index}]")
    image = slurm.container_image
    if image is not None and (not image.strip() or contains_control_character(image)):
        text = f"{image!r} is not a valid container image"
        finding = Finding(
            text, help="set the path of an image file, or IMAGE[:TAG]", targets=TARGETS
        )
        sink.report("L22", finding, at="launch.slurm.container_image")
    elif image is not None and slurm.container_runtime != "apptainer":
        _check_registry(image, sink)


def _check_registry(image: str, sink: Sink) -> None:
    """Report an image whose registry pyxis would take for a part of its name (L22)."""
    found = explain_registry_without_separator(image)
    if found is None:
        return
    finding, name = found
    fix = f'launch.slurm.container_image: "{name}"'
    finding = replace(finding, fix=fix, targets=TARGETS)
    sink.report("L22", finding, at="launch.slurm.container_image")


def _check_container_paths(plan: AnyPlan, sink: Sink) -> None:
    """Report paths of the job that no mount of the container contains (L37)."""
    slurm = plan.problem.launch.slurm
    if slurm.container_image is None:
        return
    at = f"{AT}.container_mounts"
    targets = [mount.split(":")[min(1, mount.count(":"))] for mount in slurm.container_mounts]
    apptainer = slurm.container_runtime == "apptainer"
    # Apptainer adds the home folder, the working folder and /tmp; pyxis starts in the image.
    own = APPTAINER_FOLDERS if apptainer else ()
    container = Container("slurm", (*targets, *own), keeps_working_folder=apptainer, setting=at)
    missing = missing_paths(plan, container)
    folders = [f"{folder}:{folder}" for folder in missing_folders(missing)]
    fix = f"{at}: {json.dumps([*slurm.container_mounts, *folders])}" if folders else ""
    report_missing_paths(container, fix, missing, sink)


def _check_nvlink_domains(plan: AnyPlan, sink: Sink) -> None:
    """Report that Slurm might use other numbers of hosts per NVLink domain than the plan (L23)."""
    slurm, cluster = plan.problem.launch.slurm, plan.problem.cluster
    if not cluster.node.nvlink_spans_hosts:
        return
    shares = Counter(host.nvlink_domain for host in plan.placement.hosts)
    version = parse_version(slurm.version)
    if not cluster.named and len(shares) > 1 and version < SEGMENT_SINCE:
        text = (
            f"Slurm {slurm.version} has no --segment, so the numbers of hosts per rack may differ "
            "from the plan"
        )
        help_text = (
            f"the job stops unless its racks have {sorted(shares.values(), reverse=True)} hosts"
        )
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L23", finding, at="versions.slurm")
    hosts, whole = len(plan.placement.hosts), cluster.node.nvlink_domain // cluster.node.gpus
    # Up to 25.11, topology/block accepts a host list over several blocks only if fewer blocks would
    # not have enough hosts.
    fewest = -(-hosts // whole)
    if cluster.named and len(shares) > fewest and version < NODELIST_WITH_SEGMENT_SINCE:
        text = f"{hosts} named hosts use {len(shares)} NVLink domains, but {fewest} are enough"
        help_text = (
            "topology/block may reject the host list; list whole domains, or set nodes: N instead"
        )
        finding = Finding(text, help=help_text, targets=TARGETS)
        sink.report("L23", finding, at="cluster.racks")
