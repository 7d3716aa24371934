"""Directives of ``slurm/job.sbatch``: their values, their quoting, and lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from math import gcd
from typing import Any

from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.backends.shared.versions import is_in_range, parse_version
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import AnyPlan

SWITCHES_WAIT = "01:00:00"
"""Time, HH:MM:SS, that Slurm waits for hosts on few leaf switches before it ignores
``--switches``."""
NODELIST_WITH_SEGMENT_SINCE = (26, 5)
"""First Slurm version whose topology/block accepts ``--nodelist`` together with ``--segment``.
Older versions reject the pair ("Requested node configuration is not available"). With
``--segment``, newer versions also accept host lists that they would not choose themselves."""


@cache
def directive_table() -> dict[str, Any]:
    """Return the parsed file ``flags.yaml``.

    The table contains the directives in their order, and the fields of ``launch`` that reach the
    job in another way.
    """
    text = files("parc.backends.slurm").joinpath("flags.yaml").read_text("utf-8")
    table: dict[str, Any] = parse_table(text)
    return table


def slurm_directives(plan: AnyPlan) -> tuple[str, ...]:
    """Return the ``#SBATCH`` lines of a plan, for the Slurm version of the plan.

    Raises:
        ValueError: a value contains a control character; the rules reject such plans earlier.
    """
    version = plan.problem.launch.slurm.version
    values = _directive_values(plan)
    known = [
        row
        for row in directive_table()["directives"]
        if is_in_range(version, row.get("since"), None)
    ]
    lines = [
        sbatch_directive(row["flag"], value)
        for row in known
        if (value := values[row["flag"]]) is not None
    ]
    requeue = "requeue" if plan.problem.launch.slurm.requeue else "no-requeue"
    extra = [extra_directive(text) for text in plan.problem.launch.slurm.extra]
    return (*lines, *extra, "#SBATCH --exclusive", f"#SBATCH --{requeue}")


def extra_directive(text: str) -> str:
    """Return the ``#SBATCH`` line of one entry of ``launch.slurm.extra``.

    Raises:
        ValueError: the value contains a control character; the rules reject such plans earlier.
    """
    flag, equals, value = text.removeprefix("--").partition("=")
    return sbatch_directive(flag, value) if equals else f"#SBATCH --{flag}"


def _segment_value(plan: AnyPlan, version: tuple[int, ...]) -> str | None:
    """Return the value of ``--segment``, the number of hosts per segment; None to omit the option.

    The option is omitted if segments have no effect, or if this version of Slurm does not accept it
    together with named hosts.
    """
    named, size = plan.problem.cluster.named, hosts_per_segment(plan)
    # A segment of one host has no effect, except that Slurm then accepts any host list.
    useful = version >= NODELIST_WITH_SEGMENT_SINCE if named else size != 1
    return str(size) if size is not None and useful else None


def _switches_value(plan: AnyPlan) -> str | None:
    """Return the value of ``--switches``, such as ``2@01:00:00``; None to omit the option.

    The first number is the number of leaf switches that the plan uses. The time after ``@`` is how
    long Slurm waits for hosts on so few switches. After this time Slurm ignores the option, so the
    job itself checks its racks.

    The option is omitted in three cases: the plan uses a single rack; the hosts have names, which
    already determine the leaf switches; or NVLink domains span hosts, for which ``--segment`` is
    more specific.
    """
    cluster = plan.problem.cluster
    leaves = len({host.rack for host in plan.placement.hosts})
    if cluster.named or leaves < 2 or cluster.node.nvlink_spans_hosts:
        return None
    return f"{leaves}@{SWITCHES_WAIT}"


def _directive_values(plan: AnyPlan) -> dict[str, str | None]:
    """Return directive -> value; the batch script omits a directive whose value is None."""
    slurm = plan.problem.launch.slurm
    return {
        "job-name": plan.problem.name,
        "nodes": str(len(plan.placement.hosts)),
        "ntasks-per-node": "1",
        "gpus-per-node": str(plan.placement.ranks_per_node),
        # 0 requests all memory of each host; --exclusive does not include it.
        "mem": "0",
        "nodelist": planned_nodelist(plan) or slurm.nodelist,
        "exclude": slurm.exclude,
        "constraint": slurm.constraint,
        "array": slurm.array,
        "comment": slurm.comment,
        "mail-user": slurm.mail_user,
        "mail-type": slurm.mail_type,
        "segment": _segment_value(plan, parse_version(slurm.version)),
        "switches": _switches_value(plan),
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "reservation": slurm.reservation,
        "time": slurm.time_limit,
        # B: sends the signal only to the batch shell, which forwards it if the program can save a
        # checkpoint.
        "signal": f"B:USR1@{slurm.signal_seconds}",
        # A requeued job must not overwrite the log of its earlier attempts.
        "open-mode": "append",
        # %j differs between the tasks of an array too, but does not name the array.
        "output": "%x.%j.out" if slurm.array is None else "%x.%A_%a.out",
    }


def planned_nodelist(plan: AnyPlan) -> str | None:
    """Return the hosts of the plan as a Slurm host list; None if they have no names."""
    if not plan.problem.cluster.named:
        return None
    return fold_hosts(host.name for host in plan.placement.hosts)


_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


def contains_control_character(text: str) -> bool:
    """Return True if ``text`` contains a control character, which cannot be quoted for sbatch."""
    return _CONTROL.search(text) is not None


def sbatch_directive(flag: str, value: str) -> str:
    r"""Return the line ``#SBATCH --flag=value``, with quotes around the value if necessary.

    sbatch expands no variables; only quotes, ``\`` and ``#`` are special. A value with such
    characters is put in double quotes, with ``"`` and ``\`` escaped (slurm/src/sbatch/opt.c,
    ``_get_argument``).

    Raises:
        ValueError: ``value`` contains a control character; the rules reject such plans earlier.
    """
    if contains_control_character(value):
        raise ValueError(f"control character in --{flag}: {value!r}")
    if not _PLAIN.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH --{flag}={value}"


def hosts_per_segment(plan: AnyPlan) -> int | None:
    """Return the number of hosts per Slurm segment; None if no NVLink domain spans several hosts.

    The number is the greatest common divisor of the numbers of hosts that the plan uses per domain.
    Without segments Slurm fills one block and puts the remaining hosts into the next, for example
    18 + 14 hosts instead of 16 + 16.
    """
    if not plan.problem.cluster.node.nvlink_spans_hosts:
        return None
    size = 0
    for share in _hosts_per_rack(plan).values():
        size = gcd(size, share)
    return size


def _hosts_per_rack(plan: AnyPlan) -> dict[int, int]:
    """Return rack number -> number of hosts of the plan in that rack."""
    shares: dict[int, int] = {}
    for rack, hosts in contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts):
        shares[rack] = shares.get(rack, 0) + hosts
    return shares


_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold_hosts(names: Iterable[str]) -> str:
    """Return the host names as one Slurm host list, without duplicates.

    Names that differ only in their last number are folded into one item with ranges of that number;
    zero padding is kept. Names without a number come first; the remaining names are sorted by the
    text around the number.
    """
    plain: set[str] = set()
    groups: dict[tuple[str, str], set[str]] = {}
    for name in names:
        prefix, digits, suffix = _split_at_last_number(name)
        if digits:
            groups.setdefault((prefix, suffix), set()).add(digits)
        else:
            plain.add(name)
    folded = [
        _fold_numbers(prefix, numbers, suffix)
        for (prefix, suffix), digits in sorted(groups.items())
        for numbers in _group_by_width(digits)
    ]
    return ",".join([*sorted(plain), *folded])


def _split_at_last_number(name: str) -> tuple[str, str, str]:
    """Return (prefix, last number, suffix) of a host name; the number is "" if there is none."""
    prefix = name.rstrip("0123456789")
    if len(prefix) < len(name):
        # Fast path: most host names end in a number.
        return prefix, name[len(prefix) :], ""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


def _group_by_width(digits: set[str]) -> Iterator[list[str]]:
    """Yield lists of numbers that can be in one bracket of a host list, such as ``[01-08]``.

    If any number is zero-padded, all numbers of a bracket must have the same width; otherwise one
    bracket can contain all numbers.
    """
    # Slurm expands [08-11] to numbers of equal width, but [8-11] to 8, 9, 10 and 11.
    if not any(text.startswith("0") and len(text) > 1 for text in digits):
        yield sorted(digits, key=int)
        return
    for width in sorted({len(text) for text in digits}):
        yield sorted(text for text in digits if len(text) == width)


def _fold_numbers(prefix: str, numbers: list[str], suffix: str) -> str:
    """Return one item of a host list, such as ``r01n[01-02]``, for all ``numbers``."""
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    ranges = (
        first if first == last else f"{first}-{last}" for first, last in _consecutive_runs(numbers)
    )
    return f"{prefix}[{','.join(ranges)}]{suffix}"


def _consecutive_runs(numbers: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (first, last) of each run of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if int(number) != int(last) + 1:
            yield first, last
            first = number
        last = number
    yield first, last
