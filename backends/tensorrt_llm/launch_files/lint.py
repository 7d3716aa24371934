"""Linter for a script that starts TensorRT-LLM: single flags, then the layout they describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from parc.backends.registry import engine
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    rows_of_known_flags,
)
from parc.backends.tensorrt_llm.arguments import CONFIG_FLAG, NAME, PACKAGE
from parc.backends.tensorrt_llm.backend import VERSIONS
from parc.backends.tensorrt_llm.extra_arguments import explain_unknown_flag
from parc.backends.tensorrt_llm.launch_files.import_command import (
    TABLE,
    read_settings,
    server_flags,
    starts_tensorrt_llm,
)
from parc.backends.tensorrt_llm.rules import RULES
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import service_facts
from parc.compiler.tools.lint.launch_lines import read_job_size
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

SIZES = ("--tp_size", "--pp_size", "--ep_size")


def is_tensorrt_llm(script: LintedScript) -> bool:
    """Return True if the script starts a server of TensorRT-LLM."""
    return starts_tensorrt_llm(list(script.words))


def lint_tensorrt_llm(
    script: LintedScript, options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Report all findings about a script that starts TensorRT-LLM; return the skipped rules.

    A rule is skipped if it needs a fact that neither the script nor ``options`` contain.
    """
    flags = server_flags(list(script.words), False)
    if flags:
        sink.checked.update(("F01", "F03"))
    # Each unknown flag is compared with all known ones, so only listed findings are computed.
    version = options.version or VERSIONS[-1]
    faults = ((flag, fault) for flag in flags if (fault := _check_flag(flag, version)))
    for flag, (code, finding) in islice(faults, MOST_PER_CODE + 1):
        sink.report(code, finding, span=flag.word.span)
    written = {flag.name: flag for flag in flags}
    sure = {
        flag.name: flag
        for flag in script.sure_flags(flags)
        if not any(word.dynamic for word in flag.values[:1])
    }
    if flags:
        spans = {
            field: sure[name].word.span
            for name, field in reversed(TABLE.fields.items())
            if name in sure
        }
        sink.locate(spans, TABLE.flag_by_spec_field(), flags[0].word.span)
    unsure = [name for name in SIZES if name in written and name not in sure]
    if CONFIG_FLAG in written:
        # The file can change all sizes, and enable_attention_dp, which no flag sets.
        return [SkippedRule(rule.code, f"the file of {CONFIG_FLAG}") for rule in RULES]
    if unsure or script.is_open(flags, _value_count):
        fact = f"the value of {', '.join(unsure)}" if unsure else "a flag added at run time"
        return [SkippedRule(rule.code, fact) for rule in RULES]
    return _check_layout(script, sure, options, sink)


def _value_count(name: str) -> int | None:
    """Return the number of values that the flag ``name`` accepts."""
    return int(rows_of_known_flags(PACKAGE).get(name, {}).get("takes", 1))


def _check_flag(flag: LaunchFlag, version: str) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) if ``version`` would reject the flag or its value."""
    written = flag.word.text.partition("=")[0]  # flag.name is the first of several names
    row = rows_of_known_flags(PACKAGE, version).get(written)
    if row is None:
        return "F01", explain_unknown_flag(written, version)
    count = int(row.get("takes", 1))
    values = flag.values[:count]
    if any(word.dynamic or re.search(r"[<>{}]", word.text) for word in values):
        return None
    fault = find_value_fault(ExtraArgument(flag.name, tuple(one.text for one in values), 0), row)
    return None if fault is None else ("F03", fault)


def _check_layout(
    script: LintedScript, sure: Mapping[str, LaunchFlag], options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Check the layout of the command with the rules; return the rules that were skipped."""
    tp, pp, ep = (_whole_number(sure.get(name)) for name in SIZES)
    if options.gpus is None:
        options = replace(options, gpus=read_job_size(script).gpus)
    checkpoint = read_settings(script.text, "").get("MODEL", "")
    facts = service_facts(NAME, checkpoint, {"tp": tp, "pp": pp, "dp": 1, "ep": ep}, options)
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    return check_service(facts, engine(NAME), sink)


def _whole_number(flag: LaunchFlag | None) -> int:
    """Return the whole number that ``flag`` sets; 1 if the flag is absent or sets none."""
    return (whole_number(flag.values[0].text) or 1) if flag is not None and flag.values else 1


LINTER = ScriptLinter(is_tensorrt_llm, lint_tensorrt_llm)
