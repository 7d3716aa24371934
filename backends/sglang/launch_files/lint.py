"""Linter for a script that starts SGLang: single flags, then the layout they describe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from parc.backends.registry import engine
from parc.backends.sglang.arguments import PACKAGE
from parc.backends.sglang.backend import RULES
from parc.backends.sglang.coupled_flags import COUPLINGS
from parc.backends.sglang.extra_arguments import explain_unknown_flag
from parc.backends.sglang.launch_files.import_command import (
    DP,
    TABLE,
    TP,
    find_server,
    server_flags,
    starts_sglang,
)
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.lint_manifest_ports import check_ports_of_manifest, port_of_server
from parc.backends.shared.serving.lint_rendezvous_port import (
    RendezvousPorts,
    check_rendezvous_port,
)
from parc.backends.shared.serving.lint_server import (
    FlagFault,
    certain_flags,
    check_hosts,
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
from parc.compiler.diagnostics import Finding
from parc.compiler.ir.serving import POOLS
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import service_facts, with_job_size
from parc.compiler.tools.lint.flag_rules import broken_couplings
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

API_PORT = 30000
"""Port of the API server without --port (server_args.py)."""
DERIVED_PORTS = 6
"""Ports after that of --dist-init-addr that data-parallel ranks use (server_args.py, PortArgs)."""
SIZES = (TP, "--pp-size", DP, "--ep-size")


def is_sglang(script: LintedScript) -> bool:
    """Return True if the script starts SGLang's server."""
    return starts_sglang(list(script.words))


def lint_sglang(script: LintedScript, options: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report all findings about a script that starts SGLang; return the rules that were skipped.

    A rule is skipped if it needs a fact that neither the script nor ``options`` contain.
    """
    flags = distinct_flags(server_flags(list(script.words), script.text))
    report_flag_faults(flags, _check_flag, sink)
    written = {flag.name: flag for flag in flags}
    sure = certain_flags(script, flags)
    is_open = script.is_open(flags, _value_count)
    for broken in broken_couplings(COUPLINGS, sure, written, is_open):
        sink.report(broken.code, broken.finding, span=broken.flag.word.span)
    starts = {one.statement: one for one in server_starts(script.words, find_server)}
    port = None if is_open else API_PORT
    check_ports_of_manifest(script, starts, port_of_server(sure, written, port), sink)
    if not is_open:
        check_hosts((TP, "--pp-size"), sure, sink)
        # Replicas need further GPUs, so that these sizes need at least this number.
        if "--nnodes" not in written:
            check_gpus_of_server(script, starts, sure, (TP, "--pp-size"), sink)
    count = 1 + DERIVED_PORTS * (first_number(sure.get(DP)) > 1)
    ports = RendezvousPorts("--dist-init-addr", count, port, (20000, 25000))
    check_rendezvous_port(script, flags, ports, sink)
    if flags:
        spans = field_spans(TABLE.fields, sure)
        names = TABLE.flag_by_spec_field()
        # With data-parallel ranks, --tp-size is not layout.tp, so that a fix cannot name the flag.
        own = {field: flag for field, flag in names.items() if field != "layout.tp"}
        sink.locate(spans, own if DP in written else names, flags[0].word.span)
    skipped = rules_without_sizes(RULES, SIZES, written, sure, is_open)
    return skipped or _check_layout(script, sure, options, sink)


def _value_count(name: str) -> int | None:
    return value_count(rows_of_known_flags(PACKAGE).get(name, {}))


def _check_flag(flag: LaunchFlag) -> FlagFault | None:
    """Return the fault if SGLang would reject the flag or its value, else None."""
    row = rows_of_known_flags(PACKAGE).get(flag.name)
    return ("F01", explain_unknown_flag(flag.name)) if row is None else check_values(flag, row)


def _check_layout(
    script: LintedScript, sure: Mapping[str, LaunchFlag], options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Check the layout of the command with SGLang's rules; return the rules that were skipped."""
    tp, pp, dp, ep = (first_number(sure.get(name)) for name in SIZES)
    if tp % dp:
        finding = Finding(
            f"--tp-size {tp} is not divisible by --attn-dp-size {dp}",
            label=f"{tp} % {dp} = {tp % dp}, must be 0: tp includes the data-parallel ranks",
        )
        sink.report("D01", finding, span=sure[DP].word.span)
        return []
    options = with_job_size(options, script)
    named = sure.get("--model-path")
    checkpoint = named.value if named is not None else ""
    mode = sure.get("--disaggregation-mode")
    pool = mode.values[0].text if mode is not None and mode.values else "both"
    sizes = {"tp": tp // dp, "pp": pp, "dp": dp, "ep": ep}
    pool = pool if pool in POOLS else "both"
    facts = service_facts("sglang", checkpoint, sizes, options, pool)
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    return check_service(facts, engine("sglang"), sink)


LINTER = ScriptLinter(is_sglang, lint_sglang, partial(commands_of_servers, find=find_server))
