"""Judge ``launch.args``: flags that the user adds to those of the plan.

``known_flags.json`` holds every spelling of the real parser of `vllm serve`, version 0.33.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.vllm.arguments import Argument, planned_flags
from parc.backends.vllm.commands import processes
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import ServingPlan

TARGETS = ("vllm",)
COUNTS = {"?": (0, 1), "*": (0, 10**6), "+": (1, 10**6)}
SERVERS = ("--api-server-count", "-asc")
UNCHUNKED = "--disable-chunked-prefill"


@dataclass(frozen=True, slots=True)
class Extra:
    """One flag of the user with its values; ``at`` is its index in ``launch.args``."""

    flag: str
    values: tuple[str, ...]
    at: int


@cache
def known_flags() -> dict[str, dict[str, Any]]:
    """Spelling -> takes (values: 0, 1, ?, * or +), type, choices, and what it is short for."""
    text = (files("parc.backends.vllm") / "known_flags.json").read_text("utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {row["flag"]: row for row in rows}


def read_extra(args: tuple[str, ...]) -> tuple[tuple[Extra, ...], tuple[tuple[int, str], ...]]:
    """Flags with their values, and the words that stand before the first flag."""
    extras: list[Extra] = []
    stray: list[tuple[int, str]] = []
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if word.startswith("--") or flag in known_flags():
            name = spelling(flag)
            extras.append(Extra(name, (value,) if equals else (), at))
        elif extras:
            last = extras[-1]
            extras[-1] = Extra(last.flag, (*last.values, word), last.at)
        else:
            stray.append((at, word))
    return tuple(extras), tuple(stray)


def spelling(flag: str) -> str:
    """As the parser turns it: dashes, and --no-enable-X is --disable-X (argparse_utils.py)."""
    if not flag.startswith("--"):
        return flag
    return re.sub(r"^--no-enable-", "--disable-", flag.replace("_", "-"))


def check_extra(plan: ServingPlan, planned: tuple[Argument, ...], sink: Sink) -> None:
    """Report what the parser would refuse, and what the plan already says or leaves out."""
    extras, stray = read_extra(plan.problem.launch.args)
    for at, word in stray:
        finding = Finding(f"{word!r} is no flag", label="a flag starts with --", targets=TARGETS)
        sink.report("F01", finding, at=f"launch.args[{at}]")
    seen: set[str] = set()
    for extra in extras:
        found = _judge(extra, planned)
        if found is None and extra.flag in seen:
            found = "F02", Finding(f"{extra.flag} is given twice", label="the last one would win")
        seen.add(extra.flag)
        if found is not None:
            sink.report(found[0], found[1], at=f"launch.args[{extra.at}]")
    if UNCHUNKED in seen:
        _check_unchunked(plan, sink)
    _check_servers(plan, extras, sink)


def _check_servers(plan: ServingPlan, extras: tuple[Extra, ...], sink: Sink) -> None:
    """F03: a number of API servers, which hosts that only compute refuse."""
    headless = [one.node for one in processes(plan) if not one.ports]
    found = next((one for one in extras if one.flag in SERVERS), None)
    if found is None or not headless:
        return
    finding = Finding(
        f"{found.flag} cannot be used with --headless (no API servers are started in headless "
        "mode)",
        label=f"{len(headless)} of {len(plan.placement.hosts)} hosts are headless, and all get "
        "the same arguments",
        fix="remove it from launch.args",
        targets=TARGETS,
    )
    sink.report("F03", finding, at=f"launch.args[{found.at}]")


def _judge(extra: Extra, planned: tuple[Argument, ...]) -> tuple[str, Finding] | None:
    """Code and finding for one flag; None where it is fine."""
    name = extra.flag.partition(".")[0]  # --eplb-config.window_size 100
    row = known_flags().get(name)
    if row is None:
        return "F01", unknown_flag(extra.flag)
    means = str(row.get("means", name)).replace("--no-", "--", 1)
    if means in planned_flags():
        return "F02", _twice(extra.flag, means, planned)
    fault = None if "." in extra.flag else value_fault(extra, row)
    return None if fault is None else ("F03", fault)


def unknown_flag(flag: str) -> Finding:
    """F01: what the parser has in place of ``flag``."""
    near = get_close_matches(flag, known_flags(), 3)
    return Finding(
        f"vllm serve 0.33 has no flag {flag[:60]}",
        label="no such flag",
        help=f"did you mean: {', '.join(near)}" if near else "see vllm serve --help=all",
        fix=near[0] if near else "",
        targets=TARGETS,
    )


def _twice(flag: str, means: str, planned: tuple[Argument, ...]) -> Finding:
    said = next((" ".join(one.words) for one in planned if one.flag == means), "")
    return Finding(
        f"{flag} is a matter of the plan",
        label=f"the plan says: {said}" if said else f"the plan decides {means} for every host",
        help="change the field of the spec that it comes from",
        fix="remove it from launch.args",
        targets=TARGETS,
    )


def value_fault(extra: Extra, row: dict[str, Any]) -> Finding | None:
    """What is wrong with the values."""
    takes, count = row["takes"], len(extra.values)
    low, high = COUNTS.get(str(takes), (takes, takes))
    if not low <= count <= high:
        wanted = f"{low}" if low == high else f"{low} or more"
        return Finding(
            f"{extra.flag} takes {wanted} values, not {count}",
            label=f"{count} given",
            targets=TARGETS,
        )
    choices = row.get("choices")
    for value in extra.values:
        if choices and value not in choices:
            return Finding(
                f"{value[:60]!r} is no value of {extra.flag}",
                label=f"must be one of {', '.join(choices)}",
                targets=TARGETS,
            )
        if not _reads(value, row.get("type")):
            kind = "whole number" if row["type"] == "int" else "number"
            return Finding(
                f"{value[:60]!r} is no {kind}",
                label=f"{extra.flag} takes a {kind}",
                targets=TARGETS,
            )
    return None


def _reads(value: str, kind: str | None) -> bool:
    """Whether ``value`` is of ``kind``."""
    readers = {"int": int, "float": float}
    try:
        readers.get(kind or "", str)(value)
    except ValueError:
        return False
    return True


def _check_unchunked(plan: ServingPlan, sink: Sink) -> None:
    """V04: whole prompts in one step, and steps that are shorter than a prompt may be."""
    tokens, longest = plan.limits.max_num_batched_tokens, plan.limits.max_model_len
    if tokens >= longest:
        return
    finding = Finding(
        f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({longest})",
        label=f"{tokens} < {longest}, and {UNCHUNKED} keeps prompts whole",
        fix=f"job.max_num_batched_tokens: {longest}",
        targets=TARGETS,
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")
