"""Read the ``#SBATCH`` lines of a job script as sbatch does, and compare them with the plan."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from parc.backends.shared.verify_known_lines import differing_variables
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.read_emitted import TABLE, MalformedFileError, unfold_hosts
from parc.compiler.verify.verify_ranks import read_outline
from parc.compiler.verify.verify_settings import PLAN, planned_value

JOB = "slurm/job.sbatch"
HOSTS = "placement.hosts"
SLURM = "problem.launch.slurm"
PATHS = {
    "job-name": "problem.name",
    "nodes": HOSTS,
    "nodelist": HOSTS,
    "segment": HOSTS,
    "switches": HOSTS,
    "gpus-per-node": "placement.ranks_per_node",
    "partition": f"{SLURM}.partition",
    "account": f"{SLURM}.account",
    "qos": f"{SLURM}.qos",
    "reservation": f"{SLURM}.reservation",
    "constraint": f"{SLURM}.constraint",
    "exclude": f"{SLURM}.exclude",
    "array": f"{SLURM}.array",
    "comment": f"{SLURM}.comment",
    "mail-user": f"{SLURM}.mail_user",
    "mail-type": f"{SLURM}.mail_type",
    "time": f"{SLURM}.time_limit",
    "signal": f"{SLURM}.signal_seconds",
    "requeue": f"{SLURM}.requeue",
    "no-requeue": f"{SLURM}.requeue",
}
"""Directive -> path in the plan. Other directives are reported under ``SLURM``."""
FIELDS = {"partition": "partition", "account": "account", "qos": "qos"}
FIELDS |= {"reservation": "reservation", "time": "time_limit", "constraint": "constraint"}
FIELDS |= {"exclude": "exclude", "array": "array", "comment": "comment"}
FIELDS |= {"mail-user": "mail_user", "mail-type": "mail_type"}
"""Directive -> field of ``launch.slurm`` with the same value."""
FIXED = {"ntasks-per-node": "1", "mem": "0", "open-mode": "append", "output": "%x.%j.out"}
FIXED |= {"exclusive": ""}
"""Directives of every job: one launcher per host, all memory, and logs that survive a requeue."""
SHORT = {
    **{"A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint"},
    **{"c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile"},
    **{"G": "gpus", "H": "hold", "I": "immediate", "i": "input", "J": "job-name", "k": "no-kill"},
    **{"L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks"},
    **{"O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos"},
    **{"S": "core-spec", "s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait"},
    **{"w": "nodelist", "x": "exclude"},
}
"""Short options of sbatch -> long name. Source: SchedMD, sbatch manual page."""
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
SEGMENT_SINCE, SEGMENT_WITH_NODELIST_SINCE = (24, 5), (26, 5)
"""First versions of Slurm that support --segment, and --segment together with --nodelist."""


def read_directives(text: str) -> dict[str, tuple[str, int]]:
    """Return directive -> (value, line); the value of a directive such as ``--requeue`` is empty.

    sbatch reads only the directives before the first command. If a name occurs several times,
    sbatch uses the last directive.
    """
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("#SBATCH"):
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            raise MalformedFileError(JOB, number, "the directive has an unbalanced quote") from None
        name = ""
        for word in words:
            if word.startswith("--"):
                name, _, value = word.removeprefix("--").partition("=")
                found[name] = (value, number)
            elif word[:1] == "-" and word[1:2] in SHORT:
                name = SHORT[word[1]]
                found[name] = (word[2:], number)
            elif word.startswith("-"):
                name = word
                found[name] = ("", number)
            else:
                # `--flag value` is another notation of `--flag=value`.
                found[name] = (f"{found.get(name, ('', 0))[0]}{word}", number)
    return found


def read_directive_settings(
    text: str, plan: Mapping[str, Any], artifacts: Mapping[str, str]
) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the directives of a job script contain.

    A directive that is missing, or that the plan does not need, yields a setting that differs from
    the plan.
    """
    found = read_directives(text)
    try:
        expected = _expected_directives(plan, artifacts)
    except (TypeError, KeyError, AttributeError, ValueError, IndexError):
        raise MalformedFileError(
            PLAN, 1, f"a value in {SLURM} is missing or has the wrong type"
        ) from None
    if "nodelist" in found and "nodelist" in expected:
        # The order of a host list has no effect; the job orders its hosts itself.
        value, line = found["nodelist"]
        hosts = unfold_hosts(value)
        if hosts is not None and sorted(hosts) == sorted(plan["placement"]["hosts"]):
            expected["nodelist"] = value
    for name, meaning in (("time", _time_in_seconds), ("mail-type", _names), ("exclude", _names)):
        if name in found and name in expected:
            value = found[name][0]
            if meaning(value) is not None and meaning(value) == meaning(expected[name]):
                expected[name] = value
    differing = set()
    for name, text, needed, line in differing_variables(found, expected):
        path = _plan_path(name, plan)
        differing.add(path)
        here, needed = (one and f"#SBATCH --{one.removesuffix('=')}" for one in (text, needed))
        yield DerivedSetting(path, here, JOB, line, here, needed=needed)
    for path in sorted({*PATHS.values(), f"{SLURM}.nodelist", f"{SLURM}.extra"} - differing):
        # The directive is the expected one, or absent as expected.
        yield DerivedSetting(path, planned_value(plan, path), JOB)


def _time_in_seconds(text: str) -> int | str | None:
    """Return a time limit of sbatch in seconds; None if ``text`` is none.

    Valid forms are MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS and a word for no limit. Source:
    SchedMD, sbatch manual page, --time.
    """
    if text.lower() in ("infinite", "unlimited"):
        return "no limit"
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) < 3:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    else:
        hours, minutes, seconds = numbers
    return 86_400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds


def _names(text: str) -> list[str] | None:
    """Return the sorted names in a list such as ``END,FAIL`` or ``n[1-2],n5``."""
    hosts = unfold_hosts(text)
    return None if hosts is None else sorted(hosts)


def _plan_path(name: str, plan: Mapping[str, Any]) -> str:
    """Return the path in ``plan`` of the setting that determines the directive ``name``."""
    launch = plan["problem"]["launch"]["slurm"]
    if name == "nodelist" and not plan["problem"]["cluster"]["named"]:
        return f"{SLURM}.nodelist"
    options = {entry.removeprefix("--").partition("=")[0] for entry in launch["extra"]}
    return f"{SLURM}.extra" if name in options else PATHS.get(name, SLURM)


def _expected_directives(plan: Mapping[str, Any], artifacts: Mapping[str, str]) -> dict[str, str]:
    """Return the directives that the plan needs, with their values."""
    problem, placement = plan["problem"], plan["placement"]
    slurm, hosts = problem["launch"]["slurm"], placement["hosts"]
    found = {
        **FIXED,
        "job-name": problem["name"],
        "nodes": str(len(hosts)),
        "gpus-per-node": str(placement["ranks_per_node"]),
        "signal": f"B:USR1@{slurm['signal_seconds']}",
        "requeue" if slurm["requeue"] else "no-requeue": "",
    }
    found |= {name: str(slurm[key]) for name, key in FIELDS.items() if slurm[key] is not None}
    named, version = problem["cluster"]["named"], _version_numbers(slurm["version"])
    if named:
        found["nodelist"] = ",".join(hosts)
    elif slurm["nodelist"] is not None:
        found["nodelist"] = slurm["nodelist"]
    if slurm["array"] is not None:
        found["output"] = "%x.%A_%a.out"
    for entry in slurm["extra"]:
        name, _, value = entry.removeprefix("--").partition("=")
        found[name] = value
    homes = rack_name_by_host(plan, artifacts)
    if nvlink_spans_hosts(problem["cluster"]):
        size = gcd(*(homes.count(home) for home in set(homes)))
        useful = version >= SEGMENT_WITH_NODELIST_SINCE if named else size != 1
        if useful and version >= SEGMENT_SINCE:
            found["segment"] = str(size)
    elif not named and len(set(homes)) > 1:
        # Slurm waits up to an hour for hosts on this number of leaf switches.
        found["switches"] = f"{len(set(homes))}@01:00:00"
    return found


def _version_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,6}", text)))


def nvlink_spans_hosts(cluster: Mapping[str, Any]) -> bool:
    """Return True if an NVLink domain contains several hosts."""
    node = cluster["node"]
    return bool(node["link_kind"] == "nvlink" and node["nvlink_domain"] > node["gpus"])


def rack_name_by_host(plan: Mapping[str, Any], artifacts: Mapping[str, str]) -> Sequence[str]:
    """Return the name of each host's rack, or of its NVLink domain if domains span hosts.

    The names are in the order of node ranks.
    """
    cluster = plan["problem"]["cluster"]
    domains = nvlink_spans_hosts(cluster)
    outline = read_outline(artifacts[TABLE]) if TABLE in artifacts else None
    if outline is not None:
        return outline.domains if domains else outline.racks
    homes: dict[str, str] = {}
    for rack in cluster["racks"]:
        names = rack["nvlink_domains"] if domains else [rack["name"]] * len(rack["hosts"])
        homes |= zip(rack["hosts"], names, strict=True)
    return [homes.get(host, "") for host in plan["placement"]["hosts"]]
