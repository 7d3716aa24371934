"""A script that starts Megatron-LM: its flags one by one, then what they mean together."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from parc.backends.megatron.advice import ADVICE
from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags, unknown_flag
from parc.backends.megatron.launch_files.coupled_flags import COUPLINGS
from parc.backends.megatron.launch_files.facts import FRAMEWORK, Facts, Known, megatron_facts
from parc.backends.megatron.launch_files.import_arguments import TABLE, read_words
from parc.backends.megatron.launch_files.launch_flags import MegatronLaunch, read_launch, takes
from parc.backends.megatron.programs import wrong_program
from parc.backends.shared.extra_arguments import Extra, known_flags, value_fault
from parc.compiler.diagnostics import Diagnostic, Finding, Sink, Span
from parc.compiler.tools.importers.flags import Flag
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.added import written_hosts
from parc.compiler.tools.lint.check_rules import check_layout
from parc.compiler.tools.lint.coupled_flags import broken_couplings
from parc.compiler.tools.lint.environment import lint_environment
from parc.compiler.tools.lint.launch import shape_of
from parc.compiler.tools.lint.learning_rate import broken_rates
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.partial_ir import find_missing_fact
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink
from parc.compiler.topology.readers.reading import Reading

TYPO = 0.93
"""How like a flag a misspelling of it is, at least: programs add flags of their own."""
GUESSED = ("M01", "D10")
"""Rules of dense models, where nobody says whether the model is one."""


def is_megatron(script: Script) -> bool:
    """Whether a flag that only Megatron has is among the words."""
    own = {name for name in TABLE.rows if name.count("-") > 4} | {"--num-attention-heads"}
    return any(word.text.partition("=")[0] in own for word in script.words)


def lint_megatron(script: Script, more: LintOptions, sink: ScriptSink) -> list[SkippedRule]:
    """Report what is wrong; the rules that need what the script does not say."""
    launch = read_launch(script)
    first = launch.flags[0].word.span if launch.flags else Span(script.name, 1, 1)
    reading = Reading(script.text, script.name, Sink())
    words = [word for flag in launch.sure.values() for word in (flag.word, *flag.values)]
    read_words([replace(word, statement=0) for word in words], reading)
    flags = TABLE.flag_of()
    flags |= {TABLE.fields[name]: name for name in launch.sure if name in TABLE.fields}
    if "model.pattern" in reading.spans:
        flags["layout.pipeline_layout"] = "--hybrid-layer-pattern"
    sink.locate(reading.spans, flags, first)
    judged = _judge_flags(launch, more.version, sink)
    written = {flag.name: flag for flag in launch.flags}
    for flag, code, finding in broken_couplings(COUPLINGS, launch.sure, written, launch.is_open):
        sink.report(code, finding, span=flag.word.span)

    hosts = written_hosts(shape_of(script))
    told = {*reading.spans, *(["cluster.nodes"] if "nodes" in hosts else [])}
    told |= {"cluster.node.gpus_per_node"} if "node" in hosts else set()

    def known(path: str) -> bool:
        said = any(one == path or one.startswith(f"{path}.") for one in told)
        return said or (not launch.is_open and path not in launch.unsure and _defaulted(path))

    spec = {**reading.spec, "cluster": hosts}
    facts, refused = megatron_facts(spec, known, more)
    for found in (*refused, *broken_rates(spec.get("job", {}), known)):
        span = reading.spans.get(found.path)
        if span is not None and span not in judged and _founded(found, known, more):
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)
    if facts is None:
        return []
    # Megatron knows letters that a spec does not have: such a pattern is one, and not told.
    unread = "letters.text" in told and "model.pattern" not in told
    sure = known("model.pattern") and not unread and "letters.text" not in launch.unsure
    _judge_program(script, facts, sure, sink)
    skipped = _judge_layout(facts, sink)
    lint_environment(script, facts.known_problem, facts.known_layout, sink)
    return skipped


def _founded(found: Diagnostic, known: Known, more: LintOptions) -> bool:
    """Whether all that a finding about the whole spec rests on is known: no stand-in is in it."""
    paths = [cause.path for cause in found.finding.causes if cause.path]
    if found.path.startswith("model"):
        paths += [f"model.{name}" for name in ("layers", "hidden", "heads")]
    added = {"model": more.model, "cluster": more.cluster}
    return all(added.get(path.partition(".")[0]) or known(path) for path in paths)


def _defaulted(path: str) -> bool:
    """Whether Megatron has a value of its own where no flag says one."""
    needed = ("model.layers", "model.hidden", "model.heads", "model.vocab", "layout.micro_batch")
    unsaid = ("cluster", "job", "model.position", "model.experts.top_k", "model.experts.size")
    return path not in needed and not path.startswith(unsaid)


def _judge_flags(launch: MegatronLaunch, version: str, sink: Sink) -> set[Span]:
    """F01 to F03; where they are."""
    spellings = flags_of(version)
    found: set[Span] = set()

    for flag in launch.flags:
        told = _judge_flag(flag, spellings, launch.stock, version)
        if told is not None:
            found.add(flag.word.span)
            sink.report(told[0], told[1], span=flag.word.span)
    return found


def _judge_flag(
    flag: Flag, spellings: list[str], own: bool, version: str
) -> tuple[str, Finding] | None:
    """Code and finding for one flag; None where it is fine, or may be the program's own."""
    if flag.name in removed_flags():
        return ("F01", unknown_flag(flag.name, spellings, version)) if own else None
    if flag.name not in spellings:
        if flag.name in known_flags(PACKAGE) or _misspelt(flag.name, spellings):
            return "F01", unknown_flag(flag.name, spellings, version)
        return None
    fault = _fault(flag, own)
    return None if fault is None else ("F03", fault)


def _misspelt(name: str, spellings: list[str]) -> bool:
    """Whether a known flag is meant; a known one with more behind it is the program's own."""
    typos = get_close_matches(name, spellings, 1, TYPO)
    same = [typo for typo in typos if typo.count("-") == name.count("-")]
    return any(not name.startswith(typo) for typo in same)


def _fault(flag: Flag, own: bool) -> Finding | None:
    """What is wrong with values that are known; other programs may know other ``choices``."""
    count = takes(flag.name)
    values = flag.values if count is None else flag.values[:count]
    rest = flag.values[len(values) :]
    if any(word.dynamic or _odd(word) for word in (*values, *rest)):
        return None
    words = tuple(word.text for word in flag.values)
    row = known_flags(PACKAGE)[flag.name]
    return value_fault(Extra(flag.name, words, 0), row if own else {**row, "choices": None})


def _odd(word: Word) -> bool:
    """Redirections and the like: the shell takes them away before the program sees them."""
    return any(sign in word.text for sign in "<>{}*?")


def _judge_program(script: Script, facts: Facts, known: bool, sink: Sink) -> None:
    """E10 where the program is Megatron's own and builds another kind of model."""
    problem = facts.problem
    if not (known or problem.model.pattern):
        return
    for word in script.words:
        finding = wrong_program(word.text, problem.model, problem.version("megatron"))
        if finding is not None:
            sink.report("E10", replace(finding, causes=()), span=word.span)


def _judge_layout(facts: Facts, sink: ScriptSink) -> list[SkippedRule]:
    """All rules of a legal layout, and what costs something; each as far as it is known."""
    exempt = GUESSED if facts.guessed_experts else ()
    skipped, broken = check_layout(facts, FRAMEWORK, sink, exempt)
    for advice in () if broken else ADVICE:
        find_missing_fact(partial(advice, facts.known_problem, facts.known_layout, sink))
    return skipped


LINTER = ScriptLinter(is_megatron, lint_megatron)
