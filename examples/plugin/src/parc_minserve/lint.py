"""Linter of scripts with ``minserve serve``: each flag, then the layout that they describe."""

from __future__ import annotations

from difflib import get_close_matches

from parc.backends.registry import engine
from parc.compiler.diagnostics import Finding
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import service_facts
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink
from parc_minserve.read import FLAGS, TABLE, starts_minserve

DEGREES = {"tp": "--tensor-parallel", "dp": "--data-parallel"}


def lint(script: LintedScript, options: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report invalid flags, or else the rules that the layout breaks; return skipped rules."""
    flags = script.flags(FLAGS)
    for flag in flags:
        _check_flag(flag, sink)
    if not flags or sink.diagnostics:
        return []
    # No finding is derived from a flag that runs of the script may lack, or set to other values.
    sure = {flag.name: flag for flag in script.sure_flags(flags) if not _is_dynamic(flag)}
    spans = {field: sure[name].word.span for name, field in TABLE.fields.items() if name in sure}
    sink.locate(spans, TABLE.flag_by_spec_field(), flags[0].word.span)
    if not sure.keys() >= set(DEGREES.values()):
        return []
    degrees = {axis: _number(sure[flag]) for axis, flag in DEGREES.items()}
    checkpoint = sure["--model"].values[0].text if "--model" in sure else ""
    facts = service_facts("minserve", checkpoint, degrees, options)
    return [] if facts is None else check_service(facts, engine("minserve"), sink)


def _check_flag(flag: LaunchFlag, sink: ScriptSink) -> None:
    """Report F01 for a flag that Minserve does not have, F03 for a missing or invalid value."""
    row = TABLE.rows.get(flag.name)
    if flag.name not in FLAGS:
        near = get_close_matches(flag.name, FLAGS, 1)
        finding = Finding(f"Minserve has no flag {flag.name}", fix=near[0] if near else "")
        sink.report("F01", finding, span=flag.word.span)
    elif not flag.values:
        sink.report("F03", Finding(f"{flag.name} has no value"), span=flag.word.span)
    elif row is not None and row.kind == "int" and not (_is_dynamic(flag) or _number(flag)):
        finding = Finding(f"{flag.name} needs a whole number above 0", flag.values[0].text[:40])
        sink.report("F03", finding, span=flag.word.span)


def _is_dynamic(flag: LaunchFlag) -> bool:
    """Return True if the value is computed at run time: ``--tensor-parallel $TP``."""
    return flag.values[0].dynamic


def _number(flag: LaunchFlag) -> int:
    """Return the value of a flag; 0 if it is not a whole number."""
    return whole_number(flag.values[0].text) or 0


LINTER = ScriptLinter(lambda script: starts_minserve(list(script.words)), lint)
