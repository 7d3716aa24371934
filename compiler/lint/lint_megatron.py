"""A script that starts Megatron-LM: its flags one by one, then what they mean together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from parc.backends.extra_arguments import Extra, known_flags, value_fault
from parc.backends.megatron.advice import ADVICE
from parc.backends.megatron.arguments import PACKAGE
from parc.backends.megatron.backend import BACKEND
from parc.backends.megatron.extra_arguments import flags_of, unknown_flag
from parc.backends.registry import framework
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.importers.flags import LAUNCHER, Flag
from parc.compiler.importers.megatron_args import read_words
from parc.compiler.importers.megatron_flags import TABLE
from parc.compiler.importers.shell_words import Word
from parc.compiler.ir.rule import Rule
from parc.compiler.lint.coupled_flags import MEGATRON, broken_couplings
from parc.compiler.lint.environment import lint_environment
from parc.compiler.lint.launch import shape_of
from parc.compiler.lint.megatron_facts import Facts, megatron_facts
from parc.compiler.lint.more import More, Skipped
from parc.compiler.lint.script import Script
from parc.compiler.lint.script_sink import ScriptSink
from parc.compiler.lint.unknown import asked
from parc.compiler.passes.drop_illegal import CONSERVATION
from parc.compiler.passes.layout_rules import all_rules
from parc.compiler.topology.readers.reading import Reading

STOCK = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_bert.py", "pretrain_t5.py")
"""Programs that take Megatron's own flags and no others."""
FORKS = ("--deepspeed", "--deepspeed-activation-checkpointing", "--zero-stage")
"""Flags of forks, which have others too."""
TYPO = 0.93
"""How like a flag a misspelling of it is, at least: programs add flags of their own."""
REMOVED = {
    "--fp8-hybrid": "--fp8-format hybrid",
    "--fp8-e4m3": "--fp8-format e4m3",
    "--checkpoint-num-layers": "--recompute-num-layers",
    "--activations-checkpoint-method": "--recompute-method",
    "--distribute-checkpointed-activations": "--distribute-saved-activations",
    "--layernorm-epsilon": "--norm-epsilon",
    "--DDP-impl": "",
    "--data-impl": "",
    "--mmap-warmup": "",
    "--no-async-tensor-model-parallel-allreduce": "",
}
"""Flags that Megatron-LM once had, and what says the same today."""
GUESSED = ("M01", "D10")
"""Rules of dense models, where nobody says whether the model is one."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """Megatron's flags of one script."""

    flags: tuple[Flag, ...]
    sure: Mapping[str, Flag]
    is_open: bool
    unsure: frozenset[str]
    """Spec paths whose flags are there, and whose values are not."""


def is_megatron(script: Script) -> bool:
    """Whether a flag that only Megatron has is among the words."""
    own = {name for name in TABLE if name.count("-") > 4} | {"--num-attention-heads"}
    return any(word.text.partition("=")[0] in own for word in script.words)


def lint_megatron(script: Script, more: More, sink: ScriptSink) -> list[Skipped]:
    """Report what is wrong; the rules that need what the script does not say."""
    version = more.version or BACKEND.default_version
    launch = _launch(script)
    first = launch.flags[0].word.span if launch.flags else Span(script.name, 1, 1)
    reading = Reading(script.text, script.name, Sink())
    words = [word for flag in launch.sure.values() for word in (flag.word, *flag.values)]
    read_words([replace(word, statement=0) for word in words], reading)
    flags = {row.path: name for name, row in reversed(TABLE.items())}
    sink.locate(reading.spans, flags, first)
    judged = _judge_flags(script, launch, version, sink)
    written = {flag.name: flag for flag in launch.flags}
    for flag, code, finding in broken_couplings(MEGATRON, launch.sure, written, launch.is_open):
        sink.report(code, finding, span=flag.word.span)

    hosts = _hosts(script)
    told = {*reading.spans, *(["cluster.nodes"] if "nodes" in hosts else [])}
    told |= {"cluster.node.gpus_per_node"} if "node" in hosts else set()

    def known(path: str) -> bool:
        said = any(one == path or one.startswith(f"{path}.") for one in told)
        return said or (not launch.is_open and path not in launch.unsure and _defaulted(path))

    spec = {**reading.spec, "cluster": hosts}
    facts, refused = megatron_facts(spec, known, more)
    whole = all(known(f"model.{name}") for name in ("layers", "hidden", "heads"))
    for found in refused:
        if found.path.startswith("model") and not whole:
            continue
        if found.path in reading.spans and reading.spans[found.path] not in judged:
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)
    if facts is None:
        return []
    skipped = _judge_layout(facts, sink)
    lint_environment(script, facts.known_problem, facts.known_layout, sink)
    return skipped


def _defaulted(path: str) -> bool:
    """Whether Megatron has a value of its own where no flag says one."""
    needed = ("model.layers", "model.hidden", "model.heads", "model.vocab", "layout.micro_batch")
    unsaid = ("cluster", "job", "model.position", "model.experts.top_k", "model.experts.size")
    return path not in needed and not path.startswith(unsaid)


def _launch(script: Script) -> _Launch:
    """Flags of Megatron, those of its launchers apart."""
    flags = [
        flag
        for flag in _after_program(script)
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]
    sure = {
        flag.name: flag
        for flag in script.sure(flags)
        if not any(word.dynamic for word in flag.values[: _takes(flag.name) or 1])
    }
    paths = {flag.name: TABLE[flag.name].path for flag in flags if flag.name in TABLE}
    unsure = {path for name, path in paths.items() if name not in sure}
    starts = any(word.text.endswith(".py") for word in script.words)
    is_open = not starts or script.is_open(flags, _takes)
    return _Launch(tuple(flags), sure, is_open, frozenset(unsure))


def _after_program(script: Script) -> list[Flag]:
    """Flags of statements with one of Megatron's; of a command line those behind its program."""
    flags = script.flags([*TABLE, *known_flags(PACKAGE)])
    programs: dict[int, Span] = {}
    for word in script.words:
        if word.text.endswith(".py") and not word.is_flag:
            programs.setdefault(word.statement, word.span)
    return [
        flag
        for flag in flags
        if (program := programs.get(flag.word.statement)) is None
        or (flag.word.span.line, flag.word.span.column) > (program.line, program.column)
    ]


def _takes(name: str) -> int | None:
    """Values of a flag; None where it takes any number, or where nobody knows."""
    row = known_flags(PACKAGE).get(name)
    takes = row.get("takes", 1) if row is not None else None
    return takes if isinstance(takes, int) else None


def _judge_flags(script: Script, launch: _Launch, version: str, sink: Sink) -> set[Span]:
    """F01 to F03; where they are."""
    spellings = flags_of(version)
    own = _takes_only_its_own(script, launch)
    found: set[Span] = set()

    for flag in launch.flags:
        told = _judge_flag(flag, spellings, own, version)
        if told is not None:
            found.add(flag.word.span)
            sink.report(told[0], told[1], span=flag.word.span)
    return found


def _judge_flag(
    flag: Flag, spellings: list[str], own: bool, version: str
) -> tuple[str, Finding] | None:
    """Code and finding for one flag; None where it is fine, or may be the program's own."""
    if flag.name not in spellings:
        typos = get_close_matches(flag.name, spellings, 1, TYPO)
        misspelt = any(typo.count("-") == flag.name.count("-") for typo in typos)
        if own and flag.name in REMOVED:
            return "F01", _removed(flag.name, version)
        if flag.name in known_flags(PACKAGE) or misspelt:
            return "F01", unknown_flag(flag.name, spellings, version)
        return None
    fault = _fault(flag, own)
    return None if fault is None else ("F03", fault)


def _removed(name: str, version: str) -> Finding:
    return Finding(
        f"Megatron-LM {version} has no flag {name} any more", "removed", fix=REMOVED[name]
    )


def _fault(flag: Flag, own: bool) -> Finding | None:
    """What is wrong with values that are known; other programs may know other ``choices``."""
    takes = _takes(flag.name)
    values = flag.values if takes is None else flag.values[:takes] if takes else ()
    rest = flag.values[len(values) :]
    if any(word.dynamic or _odd(word) for word in (*values, *rest)):
        return None
    words = tuple(word.text for word in flag.values)
    row = known_flags(PACKAGE)[flag.name]
    return value_fault(Extra(flag.name, words, 0), row if own else {**row, "choices": None})


def _odd(word: Word) -> bool:
    """Redirections and the like: the shell takes them away before the program sees them."""
    return any(sign in word.text for sign in "<>{}*?")


def _takes_only_its_own(script: Script, launch: _Launch) -> bool:
    """Whether the program is Megatron's, so that a flag it does not have stops it."""
    programs = [word.text for word in script.words if word.text.endswith(".py")]
    forked = any(flag.name in FORKS for flag in launch.flags)
    return not forked and any(name.endswith(STOCK) for name in programs)


def _hosts(script: Script) -> dict[str, Any]:
    """Hosts and GPUs of ``cluster``, where the launch lines say them."""
    shape = shape_of(script)
    cluster: dict[str, Any] = {}
    if shape.nodes is not None:
        cluster["nodes"] = shape.nodes
    if shape.gpus_per_node is not None:
        cluster["node"] = {"gpus_per_node": shape.gpus_per_node}
    return cluster


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
        skipped += [Skipped(rule.code, need)] if need else []
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
            at=sink.positions.culprit(rule.fields),
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
