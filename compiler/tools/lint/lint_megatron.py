"""A script that starts Megatron-LM: its flags one by one, then what they mean together."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from parc.backends.megatron.advice import ADVICE
from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of, removed_flags, unknown_flag
from parc.backends.megatron.backend import BACKEND
from parc.backends.megatron.programs import wrong_program
from parc.backends.registry import framework
from parc.backends.shared.extra_arguments import Extra, known_flags, value_fault
from parc.compiler.diagnostics import Diagnostic, Finding, Sink, Span
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir.rule import Rule
from parc.compiler.search.explain_invalid import CONSERVATION
from parc.compiler.tools.importers.flags import Flag
from parc.compiler.tools.importers.megatron_args import read_words
from parc.compiler.tools.importers.megatron_flags import TABLE
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.added import written_hosts
from parc.compiler.tools.lint.coupled_flags import MEGATRON, broken_couplings
from parc.compiler.tools.lint.environment import lint_environment
from parc.compiler.tools.lint.launch import shape_of
from parc.compiler.tools.lint.learning_rate import broken_rates
from parc.compiler.tools.lint.megatron_facts import Facts, Known, megatron_facts
from parc.compiler.tools.lint.megatron_launch import MegatronLaunch, read_launch, takes
from parc.compiler.tools.lint.more import More, Skipped
from parc.compiler.tools.lint.needs import in_words
from parc.compiler.tools.lint.script import Script
from parc.compiler.tools.lint.script_sink import ScriptSink
from parc.compiler.tools.lint.unknown import asked
from parc.compiler.topology.readers.reading import Reading

TYPO = 0.93
"""How like a flag a misspelling of it is, at least: programs add flags of their own."""
GUESSED = ("M01", "D10")
"""Rules of dense models, where nobody says whether the model is one."""


def is_megatron(script: Script) -> bool:
    """Whether a flag that only Megatron has is among the words."""
    own = {name for name in TABLE if name.count("-") > 4} | {"--num-attention-heads"}
    return any(word.text.partition("=")[0] in own for word in script.words)


def lint_megatron(script: Script, more: More, sink: ScriptSink) -> list[Skipped]:
    """Report what is wrong; the rules that need what the script does not say."""
    launch = read_launch(script)
    first = launch.flags[0].word.span if launch.flags else Span(script.name, 1, 1)
    reading = Reading(script.text, script.name, Sink())
    words = [word for flag in launch.sure.values() for word in (flag.word, *flag.values)]
    read_words([replace(word, statement=0) for word in words], reading)
    flags = {row.path: name for name, row in reversed(TABLE.items())}
    flags |= {TABLE[name].path: name for name in launch.sure if name in TABLE}
    if "model.pattern" in reading.spans:
        flags["layout.pipeline_layout"] = "--hybrid-layer-pattern"
    sink.locate(reading.spans, flags, first)
    judged = _judge_flags(launch, more.version, sink)
    written = {flag.name: flag for flag in launch.flags}
    for flag, code, finding in broken_couplings(MEGATRON, launch.sure, written, launch.is_open):
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


def _founded(found: Diagnostic, known: Known, more: More) -> bool:
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


def _judge_layout(facts: Facts, sink: ScriptSink) -> list[Skipped]:
    """All rules of a legal layout, and what costs something; each as far as it is known."""
    skipped: list[Skipped] = []
    broken: set[str] = set()
    _judge_split(facts, broken, sink)
    for rule in all_rules(facts.problem, framework("megatron")):
        guessed = facts.guessed_experts and rule.code in GUESSED
        follows = rule.code in broken or (rule.code == "T11" and "D09" in broken)
        if rule.code[0] == "E" or guessed or follows:
            continue
        need = asked(partial(_ask, rule, facts, broken, sink))
        skipped += [Skipped(rule.code, in_words(need, sink.flags))] if need else []
    for advice in () if broken else ADVICE:
        asked(partial(advice, facts.known_problem, facts.known_layout, sink))
    return skipped


def _ask(rule: Rule, facts: Facts, broken: set[str], sink: ScriptSink) -> None:
    """Report ``rule`` where what is known breaks it; the wording may use stand-ins."""
    if rule.broken(facts.known_problem, facts.known_layout):
        broken.add(rule.code)
        sink.report(
            rule.code,
            rule.explain(facts.problem, facts.layout),
            at=sink.positions.first_written(rule.fields),
        )


def _judge_split(facts: Facts, broken: set[str], sink: Sink) -> None:
    """Why the layers cannot be cut as the flags say."""
    problem, layout = facts.problem, facts.known_layout
    if not hasattr(layout, "split") or not hasattr(layout, "vpp"):
        return
    if BACKEND.splits(problem, layout.pp, layout.vpp) is None:
        code, path, finding = BACKEND.why_no_split(problem, layout.pp, layout.vpp)
        sink.report(code, finding, at=path)
        broken.update((code, *CONSERVATION))
