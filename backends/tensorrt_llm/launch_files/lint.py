"""Linter for a script that starts TensorRT-LLM: single flags, then the layout they describe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from parc.backends.registry import engine
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.lint_server import (
    FlagFault,
    certain_flags,
    check_values,
    commands_of_servers,
    field_spans,
    first_number,
    report_flag_faults,
    rules_without_sizes,
    value_count,
)
from parc.backends.shared.serving.lint_visible_gpus import check_gpus_of_server
from parc.backends.shared.serving.server_commands import distinct_flags, server_starts
from parc.backends.tensorrt_llm.arguments import CONFIG_FLAG, NAME, PACKAGE
from parc.backends.tensorrt_llm.backend import VERSIONS
from parc.backends.tensorrt_llm.extra_arguments import explain_unknown_flag
from parc.backends.tensorrt_llm.launch_files.import_command import (
    OF_HOSTS,
    TABLE,
    find_server,
    read_settings,
    server_flags,
    starts_tensorrt_llm,
)
from parc.backends.tensorrt_llm.rules import RULES
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import service_facts, with_job_size
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
    flags = distinct_flags(server_flags(list(script.words), script.text))
    report_flag_faults(flags, partial(_check_flag, options.version or VERSIONS[-1]), sink)
    sure = certain_flags(script, flags)
    if flags:
        names = TABLE.flag_by_spec_field()
        sink.locate(field_spans(TABLE.fields, sure), names, flags[0].word.span)
    written = {flag.name for flag in flags}
    if CONFIG_FLAG in written:
        # The file can change all sizes, and enable_attention_dp, which no flag sets.
        return [SkippedRule(rule.code, f"the file of {CONFIG_FLAG}") for rule in RULES]
    is_open = script.is_open(flags, _value_count)
    if not is_open and not written & OF_HOSTS - {"--host"}:
        starts = {one.statement: one for one in server_starts(script.words, find_server)}
        check_gpus_of_server(script, starts, sure, ("--tp_size", "--pp_size"), sink)
    skipped = rules_without_sizes(RULES, SIZES, written, sure, is_open)
    return skipped or _check_layout(script, sure, options, sink)


def _value_count(name: str) -> int | None:
    return value_count(rows_of_known_flags(PACKAGE).get(name, {}))


def _check_flag(version: str, flag: LaunchFlag) -> FlagFault | None:
    """Return the fault if ``version`` of TensorRT-LLM would reject the flag or its value."""
    written = flag.word.text.partition("=")[0]  # flag.name is the first of several names
    row = rows_of_known_flags(PACKAGE, version).get(written)
    if row is None:
        return "F01", explain_unknown_flag(written, version)
    return check_values(flag, row)


def _check_layout(
    script: LintedScript, sure: Mapping[str, LaunchFlag], options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Check the layout of the command with the rules; return the rules that were skipped."""
    tp, pp, ep = (first_number(sure.get(name)) for name in SIZES)
    options = with_job_size(options, script)
    checkpoint = read_settings(script.text, "").get("MODEL", "")
    facts = service_facts(NAME, checkpoint, {"tp": tp, "pp": pp, "dp": 1, "ep": ep}, options)
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    return check_service(facts, engine(NAME), sink)


LINTER = ScriptLinter(
    is_tensorrt_llm, lint_tensorrt_llm, partial(commands_of_servers, find=find_server)
)
