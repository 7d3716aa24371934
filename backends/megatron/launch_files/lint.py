"""Linter of a script that starts Megatron-LM: each flag, then the layout that the flags set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice

from parc.backends.megatron.advice import ADVICE
from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import (
    explain_unknown_flag,
    flags_of,
    flags_of_copies,
    removed_flags,
)
from parc.backends.megatron.couplings.coupled_flags import COUPLINGS
from parc.backends.megatron.couplings.refused_combinations import REFUSED
from parc.backends.megatron.launch_files.facts import (
    FRAMEWORK,
    Known,
    MegatronJobFacts,
    read_megatron_facts,
)
from parc.backends.megatron.launch_files.import_arguments import TABLE, read_spec_fields
from parc.backends.megatron.launch_files.launch_flags import (
    MegatronLaunch,
    programs_of,
    read_launch,
    value_count,
)
from parc.backends.megatron.launch_files.size_relations import RELATIONS, Found, Launch
from parc.backends.megatron.launch_files.unset_variables import check_unset_connections
from parc.backends.megatron.programs import explain_wrong_program
from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    find_value_fault,
    rows_of_known_flags,
)
from parc.backends.value_range import BOUNDS
from parc.compiler.diagnostics import Diagnostic, Finding, Sink, Span
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.importers.script_commands import find_program_of_others
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.check_rules import check_layout, lint_environment
from parc.compiler.tools.lint.complete_facts import read_hosts
from parc.compiler.tools.lint.flag_rules import broken_couplings, check_learning_rate
from parc.compiler.tools.lint.launch_lines import read_job_size
from parc.compiler.tools.lint.linter import ScriptLinter
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.partial_ir import find_missing_fact
from parc.compiler.tools.lint.script import LintedScript, ScriptSink
from parc.compiler.topology.readers.reader_state import Reading

TYPO = 0.93
"""Similarity (difflib ratio, 0 to 1) from which an unknown flag counts as a misspelled flag.

The value is high because programs add their own flags.
"""
MOST_COMPARED = 100
"""Maximum number of distinct unknown flags that are compared with all known flags, which takes
milliseconds per flag. A script with more unknown flags starts another program."""
MEMORY = (
    *("--activation-offload-fraction", "--cpu-offloading-num-layers", "--offload-modules"),
    *("--fine-grained-activation-offloading", "--optimizer-cpu-offload", "--optimizer"),
    *("--exp-avg-dtype", "--exp-avg-sq-dtype", "--main-grads-dtype", "--main-params-dtype"),
    *("--use-precision-aware-optimizer", "--fp4-param-gather", "--fp8-param-gather"),
    *("--use-torch-fsdp2", "--distribute-saved-activations", "--fsdp-double-buffer"),
    *("--outer-dp-sharding-strategy", "--suggested-communication-unit-size"),
    "--megatron-fsdp-main-params-dtype",
    *("--moe-expert-capacity-factor", "--moe-pad-expert-input-to-capacity"),
)
"""Flags that change the memory of a rank and have no field in a spec, or values without one."""
OF_DENSE_MODELS = ("M01", "D10")
"""Codes of rules on dense models, which are skipped if the model may have experts."""
OF_EXPERTS = ("D10",)
"""Codes of rules on the expert mesh, which copies of Megatron build differently."""
OF_TRAINING = ("S03",)
"""Codes of rules that Megatron enforces only in training (transformer/moe/moe_layer.py)."""
OF_SOFTMAX = ("M06",)
"""Codes of rules on routers that choose experts by a softmax, unlike Sinkhorn's algorithm."""
BALANCING = "--moe-router-load-balancing-type"
NO_TRAINING = re.compile(r"generat|inference|ptq|export|convert|eval|server", re.I)
"""Matches the name of a program that runs or converts a trained model."""


def is_megatron(script: LintedScript) -> bool:
    """Return True if ``script`` contains a flag of Megatron, and no program with similar flags."""
    if find_program_of_others(script.words) is not None:
        return False
    return any(map(_is_own_flag, script.words))


def _is_own_flag(word: Word) -> bool:
    """Return True for a flag that only Megatron has, such as --tensor-model-parallel-size.

    Short names (--lr, --bf16) are not specific.
    """
    name = word.text.partition("=")[0]
    return name == "--num-attention-heads" or (name.count("-") > 4 and name in TABLE.rows)


def _commands(script: LintedScript) -> list[Word]:
    """Return the program of each command that has a flag of Megatron itself, not in a variable."""
    own = {word.statement for word in script.words if not word.variable and _is_own_flag(word)}
    programs = {
        word.statement: word
        for word in reversed(script.words)
        if word.text.endswith(".py") and word.statement in own
    }
    return sorted(programs.values(), key=lambda word: word.span)


def lint_megatron(
    script: LintedScript, options: LintOptions, sink: ScriptSink
) -> list[SkippedRule]:
    """Report all findings on a script that starts Megatron.

    Return the rules that were skipped because a fact is unknown.
    """
    launch = read_launch(script)
    first = launch.flags[0].word.span if launch.flags else Span(script.name, 1, 1)
    reading = Reading(script.text, script.name, Sink())
    words = [word for flag in launch.sure.values() for word in (flag.word, *flag.values)]
    # The certain flags are read as one statement, wherever the script collects them.
    read_spec_fields([replace(word, statement=0) for word in words], reading)
    flags = TABLE.flag_by_spec_field()
    flags |= {TABLE.fields[name]: name for name in launch.sure if name in TABLE.fields}
    if "model.pattern" in reading.spans:
        flags["layout.pipeline_layout"] = "--hybrid-layer-pattern"
    sink.locate(reading.spans, flags, first)
    reported = _check_flags(launch, options.version, sink)
    _check_flags_of_program(launch, options.version, sink)
    sink.checked.update(("F01", "F03", "F07"))
    written = {flag.name: flag for flag in launch.flags}
    # A copy of Megatron can lift these restrictions.
    table = (*COUPLINGS, *REFUSED) if launch.stock else () if launch.copied else COUPLINGS
    for broken in broken_couplings(table, launch.sure, written, launch.is_open):
        sink.report(broken.code, broken.finding, span=broken.flag.word.span)

    hosts = read_hosts(read_job_size(script))
    given = {*reading.spans, *(["cluster.nodes"] if "nodes" in hosts else [])}
    given |= {"cluster.node.gpus_per_node"} if "node" in hosts else set()
    # The predicate is called hundreds of times, so the sections are looked up in a set.
    sections = {path for one in given for path in _path_and_sections(one)}

    def known(path: str) -> bool:
        return path in sections or (
            not launch.is_open and path not in launch.unsure and _has_megatron_default(path)
        )

    spec = {**reading.spec, "cluster": hosts}
    facts, refused = read_megatron_facts(spec, known, options)
    refused = tuple(one for one in refused if one.code not in _codes_of_specs(launch))
    _report_single_values(
        (*refused, *check_learning_rate(spec.get("job", {}), known)),
        lambda found: _uses_only_known_fields(found, known, options),
        reported,
        sink,
    )
    if facts is None:
        return [SkippedRule("", "a valid model and layout")]
    # Megatron has layer letters that a spec lacks: such a pattern exists but is unknown. Before
    # 0.17, flags with the ratios of layers described the pattern (F01 reports them).
    unread = any(name.startswith("--hybrid-") for name in written) and "model.pattern" not in given
    if not launch.copied:
        _check_program(script, facts, known("model.pattern") and not unread, sink)
    _check_relations(script, launch, facts, sink)
    unmodeled = next((one for one in written if one in MEMORY), "")
    skipped = _check_layout(facts, sink, _exempt_rules(script, launch, facts), unmodeled)
    lint_environment(script, facts.known_problem, facts.known_layout, sink)
    find_missing_fact(partial(check_unset_connections, script, launch, facts, sink))
    return skipped


def _report_single_values(
    findings: Iterable[Diagnostic],
    is_certain: Callable[[Diagnostic], bool],
    reported: Collection[Span],
    sink: ScriptSink,
) -> None:
    """Report findings on single values at their flags, except at flags that are in ``reported``."""
    for found in findings:
        span = sink.positions.values.get(found.path)
        if span is not None and span not in reported and is_certain(found):
            # Causes point to fields of a spec, but the input is a script.
            finding = replace(found.finding, causes=())
            sink.report(found.code.removeprefix("PARC-"), finding, at=found.path)


def _codes_of_specs(launch: MegatronLaunch) -> tuple[str, ...]:
    """Return the codes of findings on single values that apply to a spec, but not to the script.

    F03 reports values that Megatron rejects. A spec has fewer choices (X09), and other programs
    can replace a value that a spec rejects (X11).
    """
    return ("PARC-X09",) if launch.stock else ("PARC-X09", "PARC-X11")


def _exempt_rules(
    script: LintedScript, launch: MegatronLaunch, facts: MegatronJobFacts
) -> tuple[str, ...]:
    """Return the codes of layout rules that may not apply to the program of the script."""
    programs = programs_of(script)
    balanced = {word.text for one in launch.flags if one.name == BALANCING for word in one.values}
    return (
        *(OF_SOFTMAX if "sinkhorn" in balanced else ()),
        *(OF_DENSE_MODELS if facts.guessed_experts else ()),
        *(OF_EXPERTS if launch.copied else ()),
        *(OF_TRAINING if any(map(NO_TRAINING.search, programs)) else ()),
    )


def _check_relations(
    script: LintedScript, launch: MegatronLaunch, facts: MegatronJobFacts, sink: Sink
) -> None:
    """Run the checks of ``size_relations``, each of which needs its own facts."""
    written = frozenset(flag.name for flag in launch.flags)
    given = Launch(launch.sure, written, launch.is_open, facts, programs_of(script))
    for relation in RELATIONS:
        find_missing_fact(partial(_check_relation, relation, given, sink))


def _check_relation(relation: Callable[[Launch], Found | None], launch: Launch, sink: Sink) -> None:
    """Report the finding of one check of ``size_relations``, if it has one."""
    found = relation(launch)
    if found is not None:
        name, code, finding = found
        sink.report(code, finding, span=launch.sure[name].word.span)


def _uses_only_known_fields(found: Diagnostic, known: Known, options: LintOptions) -> bool:
    """Return True if the finding ``found`` depends on no placeholder for an unknown value."""
    paths = [cause.path for cause in found.finding.causes if cause.path]
    if found.path.startswith("model"):
        paths += [f"model.{name}" for name in ("layers", "hidden", "heads")]
    added = {"model": options.model, "cluster": options.cluster}
    return all(added.get(path.partition(".")[0]) or known(path) for path in paths)


def _path_and_sections(path: str) -> Iterable[str]:
    """Return ``path`` and the sections that contain it: ``a``, ``a.b`` and ``a.b.c``."""
    return accumulate(path.split("."), lambda section, name: f"{section}.{name}")


def _has_megatron_default(path: str) -> bool:
    """Return True if Megatron has a default for the spec field ``path``."""
    needed = ("model.layers", "model.hidden", "model.heads", "model.vocab", "layout.micro_batch")
    without_default = (
        "cluster",
        "job",
        "model.position",
        "model.experts.top_k",
        "model.experts.size",
    )
    return path not in needed and not path.startswith(without_default)


def _check_flags(launch: MegatronLaunch, version: str, sink: Sink) -> set[Span]:
    """Report unknown flags (F01) and invalid values (F03); return the positions of these flags."""
    spellings = flags_of(version)
    found: set[Span] = set()
    unknown = dict.fromkeys(one.name for one in launch.flags if one.name not in spellings)
    compared = set(islice(unknown, MOST_COMPARED))
    for flag in launch.flags:
        if len(found) > MOST_PER_CODE:
            break
        if flag.name in unknown and flag.name not in compared:
            continue
        fault = _check_flag(flag, spellings, launch, version)
        if fault is not None:
            found.add(flag.word.span)
            sink.report(*fault, span=flag.word.span)
    return found


def _check_flag(
    flag: LaunchFlag, spellings: Collection[str], launch: MegatronLaunch, version: str
) -> tuple[str, Finding] | None:
    """Return (code, finding) for an invalid flag, else None.

    A flag that may belong to the user's program counts as valid.
    """
    if flag.name in removed_flags():
        finding = explain_unknown_flag(flag.name, spellings, version)
        return ("F01", finding) if launch.stock else None
    if flag.name in flags_of_copies():
        return None
    if flag.name not in spellings:
        if flag.name in rows_of_known_flags(PACKAGE) or _is_misspelled(flag.name, spellings):
            return "F01", explain_unknown_flag(flag.name, spellings, version)
        return None
    # Copies of Megatron can read other values, such as one number of experts per layer.
    fault = None if launch.copied else _check_flag_values(flag, launch.stock)
    return None if fault is None else ("F03", fault)


def _check_flags_of_program(launch: MegatronLaunch, version: str, sink: Sink) -> None:
    """Report flags that Megatron's own program does not have and that are not typos (F07).

    The script gets a single finding, because a user's copy of the program may define many flags.
    """
    compared = launch.unknown[:MOST_COMPARED] if launch.named else ()
    unknown = [name for name in compared if not _is_misspelled(name, flags_of(version))]
    if not unknown:
        return
    first = next(one for one in launch.flags if one.name == unknown[0])
    rest = ", ".join(name[:60] for name in unknown[1:6])
    finding = Finding(
        f"Megatron-LM {version} has no flag {unknown[0][:60]}",
        label="the program stops here, unless your copy of it defines the flag",
        help=f"further flags that Megatron does not have: {rest}; PARC checks the program like a "
        "copy that defines them, which can read other values and sizes"
        if rest
        else "",
        fix=f"remove {unknown[0][:60]}",
    )
    sink.report("F07", finding, span=first.word.span)


def _is_misspelled(name: str, spellings: Iterable[str]) -> bool:
    """Return True if ``name`` looks like a typo of a known flag.

    A name that starts with a known flag is not a typo, but a flag of the user's program.
    """
    # Names of other lengths cannot reach the ratio; without them a script with thousands of flags
    # of the user's program is checked several times faster.
    size = len(name)
    alike = [one for one in spellings if 2 * min(size, len(one)) >= TYPO * (size + len(one))]
    typos = close_matches(name, alike, 1, TYPO)
    # A typo changes letters; a name with another number of words is more likely another flag.
    same = [typo for typo in typos if typo.count("-") == name.count("-")]
    return any(not name.startswith(typo) for typo in same)


def _check_flag_values(flag: LaunchFlag, stock: bool) -> Finding | None:
    """Return a finding if the flag's values are invalid, else None.

    Values that are known only at run time are not checked. The allowed values of a flag (choices
    and ranges) are checked only if ``stock`` is true, which means that the program is Megatron's
    own. Other programs can replace a value, such as ``--num-layers -1`` by that of a checkpoint.
    """
    count = value_count(flag.name)
    values = flag.values if count is None else flag.values[:count]
    rest = flag.values[len(values) :]
    if any(word.dynamic or _is_redirection(word) for word in (*values, *rest)):
        return None
    words = tuple(word.text for word in flag.values)
    row = rows_of_known_flags(PACKAGE)[flag.name]
    limits = () if stock else ("choices", *BOUNDS)
    row = {key: limit for key, limit in row.items() if key not in limits}
    return find_value_fault(ExtraArgument(flag.name, words, 0), row)


def _is_redirection(word: Word) -> bool:
    """Return True if ``word`` contains a redirection or wildcard, which the shell replaces."""
    return any(sign in word.text for sign in "<>{}*?")


def _check_program(script: LintedScript, facts: MegatronJobFacts, known: bool, sink: Sink) -> None:
    """Report a program of Megatron that cannot build the model that the flags describe (E10).

    ``known`` is True if the script shows whether the model has a layer pattern.
    """
    problem = facts.problem
    if not (known or problem.model.pattern):
        return
    for word in script.words:
        finding = explain_wrong_program(word.text, problem.model, problem.version("megatron"))
        if finding is not None:
            sink.report("E10", replace(finding, causes=()), span=word.span)


def _check_layout(
    facts: MegatronJobFacts, sink: ScriptSink, exempt: Collection[str], unmodeled: str
) -> list[SkippedRule]:
    """Check all layout rules; return the rules that need a fact which the script does not contain.

    Rules with a code in ``exempt`` are left out. If no rule is violated, report advice on
    performance as well. ``unmodeled`` is a flag of the script whose effect on memory PARC does not
    model, or "" if there is no such flag.
    """
    skipped, broken = check_layout(facts, FRAMEWORK, sink, exempt, unmodeled)
    for advice in () if broken else ADVICE:
        find_missing_fact(partial(advice, facts.known_problem, facts.known_layout, sink))
    return skipped


LINTER = ScriptLinter(is_megatron, lint_megatron, _commands)
