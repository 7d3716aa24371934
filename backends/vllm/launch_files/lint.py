"""A script that starts ``vllm serve``: its flags one by one, then the degrees together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from parc.backends.registry import engine
from parc.backends.shared.extra_arguments import Extra, known_flags, value_fault
from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.extra_arguments import UNCHUNKED, long_name, spelling, unknown_flag
from parc.backends.vllm.launch_files.coupled_flags import COUPLINGS
from parc.backends.vllm.launch_files.facts import Facts, number_of, vllm_facts
from parc.backends.vllm.launch_files.import_command import DEGREES, SPREAD, TABLE
from parc.backends.vllm.rules import RULES
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.flags import Flag
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.check_rules import check_service
from parc.compiler.tools.lint.coupled_flags import broken_couplings
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink

ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Variable with which vLLM starts with requests longer than the model's context."""


@dataclass(frozen=True, slots=True)
class _Command:
    """Flags of ``vllm serve`` under their long names."""

    flags: tuple[Flag, ...]
    sure: Mapping[str, Flag]
    is_open: bool
    model: str
    """What is served; empty: not known."""


def is_vllm(script: Script) -> bool:
    """Whether ``vllm serve``, or the module of its server, is started."""
    return any(_serves(word, after) for word, after in _pairs(script))


def _pairs(script: Script) -> list[tuple[Word, Word]]:
    return list(zip(script.words, script.words[1:], strict=False))


def _serves(word: Word, after: Word) -> bool:
    command = word.text.rpartition("/")[2] == "vllm" and after.text == "serve"
    module = "vllm.entrypoints.openai.api_server"
    return word.statement == after.statement and (command or after.text == module)


def lint_vllm(script: Script, more: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report what is wrong; the rules that need what the script does not say."""
    command = _command(script)
    for flag in command.flags:
        told = _judge(flag)
        if told is not None:
            sink.report(told[0], told[1], span=flag.word.span)
    written = {flag.name: flag for flag in command.flags}
    for flag, code, finding in broken_couplings(COUPLINGS, command.sure, written, command.is_open):
        sink.report(code, finding, span=flag.word.span)
    _long_prompts(command, sink)
    spans = {
        field: command.sure[name].word.span
        for name, field in reversed(TABLE.fields.items())
        if name in command.sure
    }
    if command.flags:
        sink.locate(spans, TABLE.flag_of(), command.flags[0].word.span)
    unsure = [name for name in (*DEGREES, SPREAD) if name in written and name not in command.sure]
    if unsure or command.is_open:
        fact = f"the value of {', '.join(unsure)}" if unsure else "a flag added at run time"
        return [SkippedRule(rule.code, fact) for rule in RULES]
    facts = vllm_facts(command.model, command.sure, written, more)
    if ALLOW_LONG in script.text:
        spans.pop("job.max_model_len", None)
    return [] if facts is None else _judge_layout(facts, spans, sink)


def _command(script: Script) -> _Command:
    """Flags that stand behind the server in its statement, or in arrays of such flags."""
    start = next((after for word, after in _pairs(script) if _serves(word, after)), None)
    found = []
    for flag in script.flags(["serve", *DEGREES, "-tp", "-pp", "-dp"]):
        same = start is not None and flag.word.statement == start.statement
        if start is not None and same and flag.word.span < start.span:
            continue
        found.append(replace(flag, name=long_name(flag.name)))
    sure = {
        flag.name: flag
        for flag in script.sure(found)
        if not any(word.dynamic for word in flag.values[:1])
    }
    return _Command(tuple(found), sure, script.is_open(found, _takes), _model(script, sure))


def _model(script: Script, sure: Mapping[str, Flag]) -> str:
    for word, model in _pairs(script):
        if word.text == "serve" and not model.is_flag and not model.dynamic:
            return model.text
    named = sure.get("--model")
    return named.values[0].text if named is not None and named.values else ""


def _takes(name: str) -> int | None:
    takes = known_flags(PACKAGE).get(spelling(name), {}).get("takes", 1)
    return takes if isinstance(takes, int) else 1 if takes == "?" else None


def _judge(flag: Flag) -> tuple[str, Finding] | None:
    """F01 and F03; None where the flag is fine, or its value is not known."""
    name = flag.name.partition(".")[0]
    row = known_flags(PACKAGE).get(name)
    if row is None:
        return "F01", unknown_flag(flag.name)
    takes = _takes(name)
    unclear = any(word.dynamic or re.search(r"[<>{}]", word.text) for word in flag.values)
    if takes is None or "." in flag.name or unclear:
        return None
    values = tuple(word.text for word in flag.values[: max(takes, 1)])
    kept = values if takes else ()
    fault = value_fault(Extra(flag.name, kept, 0), row)
    return None if fault is None else ("F03", fault)


def _long_prompts(command: _Command, sink: Sink) -> None:
    """V04: prompts stay whole, and a step is shorter than a prompt may be."""
    sizes = [
        number_of(command.sure.get(name))
        for name in ("--max-num-batched-tokens", "--max-model-len")
    ]
    whole = command.sure.get(UNCHUNKED)
    if whole is None or None in sizes:
        return
    tokens, longest = (size or 0 for size in sizes)
    if tokens < longest:
        finding = Finding(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({longest})",
            label=f"{tokens} < {longest}, and prompts stay whole",
            fix=f"--max-num-batched-tokens {longest}",
        )
        sink.report("V04", finding, span=whole.word.span)


def _judge_layout(facts: Facts, spans: Mapping[str, Span], sink: ScriptSink) -> list[SkippedRule]:
    """What is wrong with single values, then the rules of a legal layout, each as far as known."""
    for found in facts.refused:
        if found.path in spans:
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)
    return check_service(facts, engine("vllm"), sink)


LINTER = ScriptLinter(is_vllm, lint_vllm)
