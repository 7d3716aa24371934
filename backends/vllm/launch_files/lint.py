"""Linter for a script that starts ``vllm serve``: single flags, then the layout they describe."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from parc.backends.registry import engine
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
    report_flag_faults,
    rules_without_sizes,
    statements_of_others,
    value_count,
)
from parc.backends.shared.serving.lint_several_servers import (
    Server,
    ServerDefaults,
    check_servers_of_one_host,
)
from parc.backends.shared.serving.lint_visible_gpus import check_gpus_of_server
from parc.backends.shared.serving.server_commands import (
    distinct_flags,
    read_servers,
    server_starts,
)
from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.backend import DEFAULT_VERSION, RULES
from parc.backends.vllm.coupled_flags import COUPLINGS
from parc.backends.vllm.environment import ALLOW_LONG
from parc.backends.vllm.extra_arguments import (
    UNCHUNKED,
    explain_unknown_flag,
    long_flag_name,
    normalize_flag,
)
from parc.backends.vllm.launch_files.facts import (
    FORMAT,
    TRANSFER,
    TYPE,
    VllmFacts,
    flag_number,
    vllm_facts,
)
from parc.backends.vllm.launch_files.import_command import (
    DEGREES,
    SPREAD,
    TABLE,
    find_server,
    served_model,
)
from parc.backends.vllm.plan_checks import ALLOCATOR, EXPANDABLE, PLAN_CHECKS
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, precedes_command
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.complete_facts import with_job_size
from parc.compiler.tools.lint.flag_rules import broken_couplings
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

OPTIMIZATION_LEVEL = re.compile(r"-O=?\w*")
"""Matches ``-O3``, ``-O=3`` and ``-O``, which the parser replaces by ``--optimization-level``
(vllm/utils/argparse_utils.py)."""
OMNI = "--omni"
"""Flag that starts vLLM-Omni instead of vLLM (github.com/vllm-project/vllm-omni)."""
QUANTIZED = re.compile(
    r"(?:torch\.)?(?:(?:fp|float|int|uint|nvfp|mxfp|f|e4m3|e5m2)_?[48]?(?:_?e\dm\d\w*)?|awq|gptq)",
    re.I,
)
"""Matches a format of quantized weights."""
FLOAT8 = re.compile(r"(?:fp|float|f)_?8|e4m3|e5m2", re.I)
RANKS = (
    *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
    "--prefill-context-parallel-size",
)
"""Flags whose product is the number of ranks of all hosts (engine/arg_utils.py)."""

OF_SEVERAL_HOSTS = (
    *("--nnodes", "--headless", "--data-parallel-rank", "--data-parallel-start-rank"),
    *("--data-parallel-backend", "--data-parallel-address", "--device-ids"),
)
"""Flags of a server that has ranks on other hosts, or that chooses its GPUs itself."""
SERVER = ServerDefaults(
    "--gpu-memory-utilization",
    0.9,
    8000,
    RANKS,
    (
        *("--headless", "--data-parallel-rank", "--data-parallel-start-rank", "--nnodes"),
        *("--data-parallel-address", "--data-parallel-hybrid-lb", "--data-parallel-external-lb"),
        *("--distributed-executor-backend", "--device-ids", "--uds"),
    ),
)
"""Defaults of vLLM 0.28 to 0.33; its default share of the memory is 0.9 or more."""
RENDEZVOUS = ("--master-port", "--data-parallel-rpc-port")
"""Flags with ports on which other processes than the API server listen."""


@frozen
class _Command:
    """The flags of a ``vllm serve`` command under their long names."""

    flags: tuple[LaunchFlag, ...]
    sure: Mapping[str, LaunchFlag]
    """Name -> flag, for flags that have the same value in every run of the script."""
    is_open: bool
    """True if the script can add further flags at run time."""
    starts: Mapping[int, Word]
    """Number of each statement that starts a server -> last word of the command."""
    model: str
    """Checkpoint that is served; empty: unknown."""


def is_vllm(script: LintedScript) -> bool:
    """Return True if the script starts ``vllm serve`` or the module of vLLM's API server."""
    return bool(server_starts(script.words, find_server))


def lint_vllm(script: LintedScript, options: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report all findings about a script that starts vLLM; return the rules that were skipped.

    A rule is skipped if it needs a fact that neither the script nor ``options`` contain.
    """
    version = options.version or DEFAULT_VERSION
    command = _read_command(script, version)
    written = {flag.name: flag for flag in command.flags}
    report_flag_faults(command.flags, partial(_check_flag, version, written), sink)
    for broken in broken_couplings(COUPLINGS, command.sure, written, command.is_open):
        sink.report(broken.code, broken.finding, span=broken.flag.word.span)
    if not command.is_open:
        check_hosts(RANKS, command.sure, sink)
        _check_replicas(command, sink)
    port = None if command.is_open else SERVER.port
    if "--headless" not in written:
        listens = port_of_server(command.sure, written, port)
        check_ports_of_manifest(script, command.starts, listens, sink)
    for flag in RENDEZVOUS:
        ports = RendezvousPorts(flag, 1, port, (29501, 29550))
        check_rendezvous_port(script, list(command.flags), ports, sink)
    _check_gpus(script, command, written, sink)
    _check_long_prompts(command, sink)
    _check_allocator(script, command, sink)
    spans = field_spans(TABLE.fields, command.sure)
    if command.flags:
        sink.locate(spans, TABLE.flag_by_spec_field(), command.flags[0].word.span)
    sizes = (*DEGREES, SPREAD)
    skipped = rules_without_sizes(RULES, sizes, written, command.sure, command.is_open)
    if skipped:
        return skipped
    options = with_job_size(options, script)
    facts = vllm_facts(command.model, command.sure, written, options)
    # The script lifts vLLM's limit on the length, so that a finding about it would be wrong.
    if ALLOW_LONG in script.text:
        spans.pop("job.max_model_len", None)
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    return _check_layout(facts, spans, "--all2all-backend" in written, sink)


def _check_gpus(
    script: LintedScript, command: _Command, written: Collection[str], sink: ScriptSink
) -> None:
    """Report a server on one host with more ranks than GPUs that it can see (L34).

    vLLM stops if tp x pp is larger than the number of visible GPUs, unless Ray or --nnodes spreads
    the ranks over hosts (vllm/config/parallel.py).
    """
    backend = command.sure.get("--distributed-executor-backend")
    executor = "--distributed-executor-backend"
    alone = executor not in written or (backend is not None and backend.value == "mp")
    if command.is_open or not alone or any(name in written for name in OF_SEVERAL_HOSTS):
        return
    local = "--data-parallel-size-local"
    replicas = local if local in written else "--data-parallel-size"
    sizes = [replicas if name == "--data-parallel-size" else name for name in RANKS]
    if all(name in command.sure for name in sizes if name in written):
        check_gpus_of_server(script, command.starts, command.sure, sizes, sink)


def _check_allocator(script: LintedScript, command: _Command, sink: ScriptSink) -> None:
    """Report an allocator that makes vLLM refuse to start a KV cache connector (V45)."""
    if TRANSFER not in command.sure:
        return
    for word in script.words:
        name, _, value = word.text.partition("=")
        if name == ALLOCATOR and EXPANDABLE in value:
            finding = Finding(
                f"{ALLOCATOR} moves memory that a KV cache connector has registered",
                label=f"vLLM does not start with {EXPANDABLE} and {TRANSFER}",
                help=f"remove {EXPANDABLE} from the value",
            )
            sink.report("V45", finding, span=word.span)


def _read_command(script: LintedScript, version: str) -> _Command:
    """Return the command of the script that starts ``version`` of ``vllm serve``.

    Its flags are those after ``vllm serve``, and those in variables and arrays that it uses.
    """
    servers = read_servers(script.words, script.text, find_server)
    if servers:
        starts = {one.start.statement: one.start for one in servers}
        found = distinct_flags(_long_flags(one.flags) for one in servers)
    else:
        starts = {one.statement: one for one in server_starts(script.words, find_server)}
        others = statements_of_others(script.words, starts, rows_of_known_flags(PACKAGE))
        flags = script.flags(["serve", *DEGREES, "-tp", "-pp", "-dp"])
        found = [
            flag
            for flag in _long_flags(flags)
            if not precedes_command(flag, starts) and flag.word.statement not in others
        ]
    sure = certain_flags(script, found)
    is_open = script.is_open(found, partial(_value_count, version), starts)
    model = served_model(script.words)
    named = sure.get("--model")
    return _Command(
        tuple(found),
        sure,
        is_open or (not servers and _has_several_lists(script, found, starts)),
        starts,
        model.text if model and not model.dynamic else named.value if named else "",
    )


def _long_flags(flags: Iterable[LaunchFlag]) -> list[LaunchFlag]:
    return [replace(flag, name=long_flag_name(flag.name)) for flag in flags]


def _has_several_lists(
    script: LintedScript, flags: list[LaunchFlag], starts: Mapping[int, Word]
) -> bool:
    """Return True if several lists of flags are outside the command and outside variables.

    A recipe in YAML lists the flags of optional features in this way, and may leave them out.
    """
    numbers = {flag.word.statement for flag in flags} - starts.keys()
    return (
        sum(one[0].is_flag for one in statements(script.words) if one[0].statement in numbers) > 1
    )


def _value_count(version: str, name: str) -> int | None:
    return value_count(rows_of_known_flags(PACKAGE, version).get(normalize_flag(name), {}))


def _check_flag(version: str, written: Collection[str], flag: LaunchFlag) -> FlagFault | None:
    """Return the fault if ``version`` of vLLM rejects the flag or its value, else None.

    ``written`` are the names of all flags of the command.
    """
    name = flag.name.partition(".")[0]
    row = rows_of_known_flags(PACKAGE, version).get(name)
    # vLLM-Omni adds flags of its own.
    if row is None and (OMNI in written or OPTIMIZATION_LEVEL.fullmatch(flag.name)):
        return None
    if row is None:
        return "F01", explain_unknown_flag(flag.name, version)
    # A name such as --speculative-config.method sets one key of a JSON value.
    fault = None if "." in flag.name else check_values(flag, row)
    value = flag.value
    if fault is None or flag.name != TYPE or not QUANTIZED.fullmatch(value):
        return fault
    format_flag = " --quantization fp8" if FLOAT8.search(value) and FORMAT not in written else ""
    finding = replace(
        fault[1],
        help=f"{TYPE} is the type of the activations; {FORMAT} sets the format of the weights",
        fix=f"{TYPE} auto{format_flag}",
    )
    return "F03", finding


def _check_replicas(command: _Command, sink: Sink) -> None:
    """Report a replica, or a number of replicas of a host, beyond --data-parallel-size (F03)."""
    size = command.sure.get("--data-parallel-size")
    dp = flag_number(size)
    if dp is None:
        return
    for name, largest in (
        ("--data-parallel-size-local", dp),
        ("--data-parallel-rank", dp - 1),
        ("--data-parallel-start-rank", dp - 1),
    ):
        number = flag_number(command.sure.get(name))
        if number is None or number <= largest:
            continue
        finding = Finding(
            f"{name} {number} exceeds what --data-parallel-size {dp} allows",
            label=f"the value must be from 0 to {largest}",
        )
        sink.report("F03", finding, span=command.sure[name].word.span)


def _check_long_prompts(command: _Command, sink: Sink) -> None:
    """Report prompts that can be longer than the number of tokens per step (V04).

    Such prompts are a problem only if the command disables chunked prefill.
    """
    sizes = [
        flag_number(command.sure.get(name))
        for name in ("--max-num-batched-tokens", "--max-model-len")
    ]
    whole = next((command.sure[name] for name in UNCHUNKED if name in command.sure), None)
    if whole is None or None in sizes:
        return
    tokens, longest = (size or 0 for size in sizes)
    if tokens < longest:
        finding = Finding(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({longest})",
            label=f"a step processes up to {tokens} tokens, but a prompt can have {longest}, and "
            f"{whole.name} disables chunked prefill",
            fix=f"--max-num-batched-tokens {longest}",
        )
        sink.report("V04", finding, span=whole.word.span)


def _check_layout(
    facts: VllmFacts, spans: Mapping[str, Span], has_kernels: bool, sink: ScriptSink
) -> list[SkippedRule]:
    """Check the layout of the command with vLLM's rules; return the rules that were skipped.

    Findings about single values in ``facts`` are reported too.

    Args:
        facts: problem and layout of the command.
        spans: position of each spec field in the script.
        has_kernels: True if the command selects the kernels that exchange tokens of experts.
        sink: receives the findings.
    """
    for found in facts.refused:
        if found.path in spans:
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)
    done = {"F01"}  # flags are checked above
    if not has_kernels:  # vLLM's default kernels for experts have no limit
        sink.checked.add("V28")
        done.add("V28")
    checks = [check for check in PLAN_CHECKS if done.isdisjoint(check.codes)]
    return check_service(facts, engine("vllm"), sink, checks)


def _lint_servers_together(script: LintedScript, sink: ScriptSink) -> None:
    """Report servers that need the GPUs or the port of another one."""
    servers = read_servers(script.words, script.text, find_server)
    named = [Server(one.start, tuple(_long_flags(one.flags))) for one in servers]
    check_servers_of_one_host(script, named, SERVER, sink)


LINTER = ScriptLinter(
    is_vllm, lint_vllm, partial(commands_of_servers, find=find_server), _lint_servers_together
)
