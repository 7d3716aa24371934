"""A script that starts ``vllm serve``: its flags one by one, then the degrees together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from parc.backends.registry import engine
from parc.backends.shared.extra_arguments import Extra, known_flags, value_fault
from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.backend import RULES
from parc.backends.vllm.environment import ALLOW_LONG
from parc.backends.vllm.extra_arguments import UNCHUNKED, long_name, spelling, unknown_flag
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir.serving_plan import ServingRule
from parc.compiler.tools.importers.flags import Flag
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.importers.vllm_args import DEGREES, SPREAD
from parc.compiler.tools.lint.coupled_flags import VLLM, broken_couplings
from parc.compiler.tools.lint.more import More, Skipped
from parc.compiler.tools.lint.needs import in_words
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink
from parc.compiler.tools.lint.unknown import asked
from parc.compiler.tools.lint.vllm_facts import PATHS, Facts, number_of, vllm_facts


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


def lint_vllm(script: Script, more: More, sink: ScriptSink) -> list[Skipped]:
    """Report what is wrong; the rules that need what the script does not say."""
    command = _command(script)
    for flag in command.flags:
        told = _judge(flag)
        if told is not None:
            sink.report(told[0], told[1], span=flag.word.span)
    written = {flag.name: flag for flag in command.flags}
    for flag, code, finding in broken_couplings(VLLM, command.sure, written, command.is_open):
        sink.report(code, finding, span=flag.word.span)
    _long_prompts(command, sink)
    spans = {
        path: command.sure[name].word.span for name, path in PATHS.items() if name in command.sure
    }
    if command.flags:
        flags = {path: name for name, path in PATHS.items()}
        sink.locate(spans, flags, command.flags[0].word.span)
    unsure = [name for name in (*DEGREES, SPREAD) if name in written and name not in command.sure]
    if unsure or command.is_open:
        return [
            Skipped(rule.code, ", ".join(unsure) or "the flags that come at run time")
            for rule in RULES
        ]
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


def _judge_layout(facts: Facts, spans: Mapping[str, Span], sink: ScriptSink) -> list[Skipped]:
    """What is wrong with single values, then the rules of a legal layout, each as far as known."""
    for found in facts.refused:
        if found.path in spans:
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)
    skipped = []
    for rule in service_rules(facts.problem, engine("vllm")):
        if rule.code == "V01" and any(one.code == "PARC-V02" for one in sink.diagnostics):
            continue  # no room for one block: none for a long request
        need = asked(partial(_ask, rule, facts, sink))
        skipped += [Skipped(rule.code, in_words(need, sink.flags))] if need else []
    return skipped


def _ask(rule: ServingRule, facts: Facts, sink: ScriptSink) -> None:
    """Report ``rule`` where what is known breaks it; the wording may use stand-ins."""
    if rule.broken(facts.known, facts.layout):
        finding = rule.explain(facts.problem, facts.layout)
        sink.report(rule.code, finding, at=sink.positions.first_written(rule.fields))
