"""Linter for a script that starts SGLang: single flags, then the layout they describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from parc.backends.registry import engine
from parc.backends.sglang.arguments import PACKAGE
from parc.backends.sglang.backend import RULES
from parc.backends.sglang.extra_arguments import explain_unknown_flag
from parc.backends.sglang.launch_files.import_command import (
    DP,
    OLD_DP,
    TABLE,
    TP,
    server_flags,
    starts_sglang,
)
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    rows_of_known_flags,
)
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import service_facts
from parc.compiler.tools.lint.flag_rules import FlagCoupling, broken_couplings
from parc.compiler.tools.lint.launch_lines import read_job_size
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

SIZES = (TP, "--pp-size", DP, "--ep-size")
COUPLINGS: tuple[FlagCoupling, ...] = (
    FlagCoupling(
        "V11",
        "--enable-dp-lm-head",
        (DP,),
        why="each data-parallel rank of attention computes its own logits",
    ),
    FlagCoupling(
        "V11",
        OLD_DP,
        excludes=(DP,),
        why="copies of the engine cannot be combined with attention data parallelism",
    ),
)
"""Flags that need or exclude another flag (arg_groups/parallel_hook.py)."""


def is_sglang(script: LintedScript) -> bool:
    """Return True if the script starts SGLang's server."""
    return starts_sglang(list(script.words))


def lint_sglang(script: LintedScript, options: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report all findings about a script that starts SGLang; return the rules that were skipped.

    A rule is skipped if it needs a fact that neither the script nor ``options`` contain.
    """
    flags = server_flags(list(script.words), False)
    if flags:
        sink.checked.update(("F01", "F03"))
    # Each unknown flag is compared with all known ones, so only listed findings are computed.
    faults = ((flag, fault) for flag in flags if (fault := _check_flag(flag)) is not None)
    for flag, (code, finding) in islice(faults, MOST_PER_CODE + 1):
        sink.report(code, finding, span=flag.word.span)
    written = {flag.name: flag for flag in flags}
    sure = {
        flag.name: flag
        for flag in script.sure_flags(flags)
        if not any(word.dynamic for word in flag.values[:1])
    }
    is_open = script.is_open(flags, _value_count)
    for flag, code, finding in broken_couplings(COUPLINGS, sure, written, is_open):
        sink.report(code, finding, span=flag.word.span)
    if flags:
        spans = {
            field: sure[name].word.span
            for name, field in reversed(TABLE.fields.items())
            if name in sure
        }
        names = TABLE.flag_by_spec_field()
        # With data-parallel ranks, --tp-size is not layout.tp, so that a fix cannot name the flag.
        own = {field: flag for field, flag in names.items() if field != "layout.tp"}
        sink.locate(spans, own if DP in written else names, flags[0].word.span)
    unsure = [name for name in SIZES if name in written and name not in sure]
    if unsure or is_open:
        fact = f"the value of {', '.join(unsure)}" if unsure else "a flag added at run time"
        return [SkippedRule(rule.code, fact) for rule in RULES]
    return _check_layout(script, sure, options, sink)


def _value_count(name: str) -> int | None:
    """Return the number of values that the flag ``name`` accepts; None if the number varies."""
    count = rows_of_known_flags(PACKAGE).get(name, {}).get("takes", 1)
    return count if isinstance(count, int) else 1 if count == "?" else None


def _check_flag(flag: LaunchFlag) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) if SGLang would reject the flag or its value, else None.

    Values that are known only at run time are not checked.
    """
    row = rows_of_known_flags(PACKAGE).get(flag.name)
    if row is None:
        return "F01", explain_unknown_flag(flag.name)
    count = _value_count(flag.name)
    if count is None or any(
        word.dynamic or re.search(r"[<>{}]", word.text) for word in flag.values
    ):
        return None
    values = tuple(word.text for word in flag.values[: max(count, 1)])
    fault = find_value_fault(ExtraArgument(flag.name, values if count else (), 0), row)
    return None if fault is None else ("F03", fault)


def _check_layout(
    script: LintedScript, sure: Mapping[str, LaunchFlag], options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Check the layout of the command with SGLang's rules; return the rules that were skipped."""
    tp, pp, dp, ep = (_whole_number(sure.get(name)) for name in SIZES)
    if tp % dp:
        finding = Finding(
            f"--tp-size {tp} is not divisible by --attn-dp-size {dp}",
            label=f"{tp} % {dp} = {tp % dp}, must be 0: tp includes the data-parallel ranks",
        )
        sink.report("D01", finding, span=sure[DP].word.span)
        return []
    if options.gpus is None:
        options = replace(options, gpus=read_job_size(script).gpus)
    named = sure.get("--model-path")
    checkpoint = named.values[0].text if named is not None and named.values else ""
    mode = sure.get("--disaggregation-mode")
    pool = mode.values[0].text if mode is not None and mode.values else "both"
    sizes = {"tp": tp // dp, "pp": pp, "dp": dp, "ep": ep}
    pool = pool if pool in ("prefill", "decode") else "both"
    facts = service_facts("sglang", checkpoint, sizes, options, pool)
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    return check_service(facts, engine("sglang"), sink)


def _whole_number(flag: LaunchFlag | None) -> int:
    """Return the whole number that ``flag`` sets; 1 if the flag is absent or sets none."""
    return (whole_number(flag.values[0].text) or 1) if flag is not None and flag.values else 1


LINTER = ScriptLinter(is_sglang, lint_sglang)
