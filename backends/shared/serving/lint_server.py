"""Checks of a server's command line that the linters of all serving engines share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

from parc.backends.shared.extra_arguments import ExtraArgument, find_value_fault
from parc.backends.shared.serving.server_commands import FindServer, read_servers
from parc.compiler.diagnostics import Finding, Span
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving_plan import ServingRule
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.tools.lint.options import SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

_SWITCH_VALUE = re.compile(r"-?\d+(\.\d+)?|[Tt]rue|[Ff]alse")
"""Matches a word that can only be meant as the value of the switch before it."""

MOST_HOSTS = 4096
"""Largest number of hosts that a finding lists."""

FlagFault = tuple[str, Finding]
"""(diagnostic code, finding) about one flag."""


def commands_of_servers(script: LintedScript, find: FindServer) -> list[Word]:
    """Return the word that names the server, for each command of ``read_servers``."""
    return [one.start for one in read_servers(script.words, script.text, find)]


def report_flag_faults(
    flags: Sequence[LaunchFlag],
    check: Callable[[LaunchFlag], FlagFault | None],
    sink: ScriptSink,
) -> None:
    """Report unknown flags (F01) and invalid values (F03), as found by ``check``."""
    if flags:
        sink.checked.update(("F01", "F03"))
    # A name such as --model{{- if ... }} is known only when the template is filled in.
    flags = [flag for flag in flags if not re.search(r"[${}]", flag.name)]
    # Each unknown flag is compared with all known ones, so only listed findings are computed.
    faults = ((flag, fault) for flag in flags if (fault := check(flag)) is not None)
    for flag, (code, finding) in islice(faults, MOST_PER_CODE + 1):
        sink.report(code, finding, span=flag.word.span)


def statements_of_others(
    words: Iterable[Word], starts: Collection[int], known: Collection[str]
) -> set[int]:
    """Return the numbers of the statements that start another program than the server.

    Their flags can have the names of the server's flags. A statement that starts with a flag, a
    variable, an assignment, or a key of YAML contains arguments, which belong to the server if one
    of them is a long flag of it.

    Args:
        words: words of the script.
        starts: numbers of the statements that start the server.
        known: flags of the server.
    """

    def is_list(one: list[Word]) -> bool:
        first = one[0]
        if not (first.is_flag or first.dynamic or first.variable):
            return re.match(r"\w+\+?=|\S+:$|#!", first.text) is not None
        flags = {word.text.partition("=")[0].replace("_", "-") for word in one if word.is_flag}
        return not flags or any(flag in known for flag in flags if flag.startswith("--"))

    return {
        one[0].statement
        for one in statements(words)
        if one[0].statement not in starts and not is_list(one)
    }


def value_count(row: Mapping[str, Any]) -> int | None:
    """Return the number of values of a flag, given its row; None if the number varies."""
    count = row.get("takes", 1)
    return count if isinstance(count, int) else 1 if count == "?" else None


def check_values(flag: LaunchFlag, row: dict[str, Any]) -> FlagFault | None:
    """Return the fault if the engine rejects the values of ``flag`` (F03), else None.

    Values that are known only at run time are not checked. ``row`` is the row of the flag in
    ``known_flags.json``.
    """
    count = value_count(row)
    values = flag.values if count is None else flag.values[: max(count, 1)]
    extra = flag.value if count == 0 else ""
    if _SWITCH_VALUE.fullmatch(extra):
        finding = Finding(
            f"{flag.name} takes no value, but {extra!r} follows",
            label="the flag is a switch, and the engine rejects the word after it",
            fix=f"remove {extra}",
        )
        return "F03", finding
    if count is None or any(word.dynamic or re.search(r"[<>{}]", word.text) for word in values):
        return None
    words = tuple(word.text for word in values) if count else ()
    fault = find_value_fault(ExtraArgument(flag.name, words, 0), row)
    return None if fault is None else ("F03", fault)


def certain_flags(script: LintedScript, flags: list[LaunchFlag]) -> dict[str, LaunchFlag]:
    """Return name -> flag for the flags that have the same value in every run of the script."""
    return {
        flag.name: flag
        for flag in script.sure_flags(flags)
        if not any(word.dynamic for word in flag.values[:1])
    }


def field_spans(fields: dict[str, str], sure: Mapping[str, LaunchFlag]) -> dict[str, Span]:
    """Return spec field -> position of its flag in the script.

    ``fields`` maps flags to spec fields. If several flags set a field, the first one counts.
    """
    return {field: sure[name].word.span for name, field in reversed(fields.items()) if name in sure}


def rules_without_sizes(
    rules: Sequence[ServingRule],
    sizes: Sequence[str],
    written: Collection[str],
    sure: Collection[str],
    is_open: bool,
) -> list[SkippedRule]:
    """Return ``rules`` as skipped if the script does not determine the parallel sizes, else [].

    Args:
        rules: layout rules of the engine.
        sizes: flags that set parallel sizes.
        written: names of all flags in the script.
        sure: names of the flags that have the same value in every run.
        is_open: whether the script can add further flags at run time.
    """
    unsure = [name for name in sizes if name in written and name not in sure]
    if not unsure and not is_open:
        return []
    fact = f"the value of {', '.join(unsure)}" if unsure else "a flag added at run time"
    return [SkippedRule(rule.code, fact) for rule in rules]


def first_number(flag: LaunchFlag | None) -> int:
    """Return the whole number that ``flag`` sets; 1 if the flag is absent or sets none."""
    return (whole_number(flag.value) or 1) if flag is not None else 1


def check_hosts(sizes: Sequence[str], sure: Mapping[str, LaunchFlag], sink: ScriptSink) -> None:
    """Report a number of hosts that does not divide the ranks (V05), or an invalid host (F03).

    Only flags that the script contains are checked.

    Args:
        sizes: flags whose product is the number of ranks; a missing flag counts as 1.
        sure: flags that have the same value in every run of the script.
        sink: receives the findings.
    """
    if (nodes := sure.get("--nnodes")) is None:
        return
    hosts = first_number(nodes)
    given = [name for name in sizes if name in sure]
    ranks = prod(first_number(sure[name]) for name in given)
    if given and hosts > 0 and ranks > 0 and ranks % hosts:
        valid = map(str, divisors(ranks, MOST_HOSTS))
        finding = Finding(
            f"{ranks} ranks are not divisible by --nnodes {hosts}",
            label=f"{' x '.join(given)} = {ranks}, and {ranks} % {hosts} = {ranks % hosts}, "
            "must be 0",
            help=f"valid numbers of hosts: {', '.join(valid)}",
        )
        sink.report("V05", finding, span=nodes.word.span)
    rank = sure.get("--node-rank")
    index = whole_number(rank.value) if rank is not None else None
    if rank is not None and index is not None and index >= hosts > 0:
        finding = Finding(
            f"--node-rank {index} does not exist among {hosts} hosts",
            label=f"--nnodes {hosts} allows the ranks 0 to {hosts - 1}",
        )
        sink.report("F03", finding, span=rank.word.span)
