"""The table of parallelism strategies, used by the rules and by the matrix in ``parc backends``.

A framework declares the strategies that it supports (``Framework.strategies``: name -> setting). A
layout that needs any other strategy is rejected (E08), never emitted without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from parc.backends.base import LauncherRules
from parc.backends.declaration import Declaration
from parc.backends.registry import find_backend_declaration, serving_backend, wrapped_framework
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import NO_ZERO_PLUS, Layout, Problem, ServingLayout, ServingProblem
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving_plan import ServingRule

Uses = Callable[[Layout], bool]
Requests = Callable[[Problem], bool]


@frozen
class Strategy:
    """A parallelism or memory strategy that a layout may use."""

    name: str
    title: str
    path: str
    """Spec path that requests the strategy."""
    without: str
    """Edit of the spec that avoids the strategy, such as ``layout.tp: 1``."""
    reads: tuple[str, ...]
    """Fields of the layout that ``uses`` reads."""
    uses: Uses
    requested: Requests = lambda problem: False
    """Returns True if the spec requests the strategy by name. The request counts even if each group
    has only one rank: this layout then does not use the strategy, but a layout on another cluster
    could."""


def _uses_zero_stage(stage: int) -> Uses:
    """Return a function that returns True for layouts that shard with ZeRO stage ``stage``.

    The function returns False for layouts with a single shard.
    """
    # The state is sharded over the context-parallel ranks too.
    return lambda layout: layout.zero_stage == stage and layout.dp_shard * layout.cp > 1


def _requests_value(field: str, value: object) -> Requests:
    """Return a function that returns True if a spec sets ``layout.<field>`` to ``value``."""
    return lambda problem: getattr(problem.pins, field) == value


def _uses_context_comm(comm: str) -> Uses:
    """Return a function that returns True if the context parallelism of a layout uses ``comm``.

    ``comm`` is a value of ``layout.cp_comm``, such as "p2p" or "a2a".
    """
    return lambda layout: layout.cp > 1 and layout.cp_comm == comm


def _uses_schedule(name: str) -> Uses:
    """Return a function that returns True for layouts with pp above 1 and the schedule ``name``."""
    return lambda layout: layout.pp > 1 and layout.schedule == name


def _uses_recompute(granularity: str) -> Uses:
    """Return a function that returns True for layouts with the recompute setting ``granularity``.

    ``granularity`` is "full" or "selective".
    """
    return lambda layout: layout.recompute.granularity == granularity


def _uses_axis(name: str) -> Uses:
    """Return a function that returns True for layouts whose parallel size ``name`` is above 1."""
    return lambda layout: bool(getattr(layout, name) > 1)


def _requests_context_comm(comm: str) -> Requests:
    """Return a function that returns True if a spec sets ``cp_comm`` to ``comm``.

    The function returns False if the spec also sets cp to 1.
    """
    # A plan without context parallelism prints the value that the framework would use.
    return lambda problem: problem.pins.cp_comm == comm and problem.pins.cp != 1


_ZERO = ("zero_stage", "dp_shard", "cp")
_CP = ("cp", "cp_comm")
_PP = ("pp", "schedule")

STRATEGIES: tuple[Strategy, ...] = (
    Strategy("dp", "data parallel (DDP)", "layout.dp", "layout.dp: 1",
             ("dp_shard", "dp_replicate", "gtp"), lambda layout: layout.dp > 1),
    Strategy("zero-1", "ZeRO-1", "layout.zero_stage", "layout.zero_stage: 0", _ZERO,
             _uses_zero_stage(1), _requests_value("zero_stage", 1)),
    Strategy("zero-2", "ZeRO-2", "layout.zero_stage", "layout.zero_stage: 1", _ZERO,
             _uses_zero_stage(2), _requests_value("zero_stage", 2)),
    Strategy("zero-3", "ZeRO-3, FSDP", "layout.zero_stage", "layout.zero_stage: 1", _ZERO,
             _uses_zero_stage(3), _requests_value("zero_stage", 3)),
    Strategy("hsdp", "hybrid sharding (HSDP)", "layout.dp_shard", "layout.dp_shard: auto",
             ("dp_replicate", "zero_stage"),
             lambda layout: layout.dp_replicate > 1 and layout.zero_stage > 0),
    Strategy("tp", "tensor parallel", "layout.tp", "layout.tp: 1", ("tp",), _uses_axis("tp")),
    Strategy("sp", "sequence parallel (with tp)", "layout.sequence_parallel",
             "layout.sequence_parallel: false", ("tp", "sequence_parallel"),
             lambda layout: layout.tp > 1 and layout.sequence_parallel,
             _requests_value("sequence_parallel", True)),
    Strategy("cp-p2p", "context parallel (ring)", "layout.cp_comm", "layout.cp: 1", _CP,
             _uses_context_comm("p2p")),
    Strategy("cp-all-gather", "context parallel (all-gather)", "layout.cp_comm",
             "layout.cp: 1", _CP, _uses_context_comm("all_gather")),
    Strategy("cp-a2a", "context parallel (Ulysses)", "layout.cp_comm", "layout.cp: 1", _CP,
             _uses_context_comm("a2a"), _requests_context_comm("a2a")),
    Strategy("cp-hierarchical", "context parallel (Ulysses in a ring)", "layout.cp_comm",
             "layout.cp: 1", _CP, _uses_context_comm("a2a+p2p")),
    Strategy("gpipe", "pipeline (GPipe)", "layout.schedule", "layout.schedule: auto", _PP,
             _uses_schedule("gpipe"), _requests_value("schedule", "gpipe")),
    Strategy("1f1b", "pipeline (1F1B)", "layout.pp", "layout.pp: 1", _PP, _uses_schedule("1f1b")),
    Strategy("interleaved", "pipeline (interleaved, vpp)", "layout.vpp", "layout.vpp: 1", _PP,
             _uses_schedule("interleaved"), _requests_value("schedule", "interleaved")),
    Strategy("zb-h1", "pipeline (zero bubble H1)", "layout.schedule", "layout.schedule: auto", _PP,
             _uses_schedule("zb-h1"), _requests_value("schedule", "zb-h1")),
    Strategy("zb-v", "pipeline (zero bubble V)", "layout.schedule", "layout.schedule: auto", _PP,
             _uses_schedule("zb-v"), _requests_value("schedule", "zb-v")),
    Strategy("dualpipe-v", "pipeline (DualPipeV)", "layout.schedule", "layout.schedule: auto", _PP,
             _uses_schedule("dualpipe-v"), _requests_value("schedule", "dualpipe-v")),
    Strategy("ep", "expert parallel", "layout.ep", "layout.ep: 1", ("ep",), _uses_axis("ep")),
    Strategy("etp", "expert tensor parallel", "layout.etp", "layout.etp: 1", ("etp", "ep"),
             lambda layout: layout.etp > 1 and layout.ep > 1),
    Strategy("gtp", "generalized tensor parallel (shared weights)", "layout.gtp", "layout.gtp: 1",
             ("gtp",), _uses_axis("gtp")),
    Strategy("egtp", "generalized tensor parallel of experts", "layout.egtp", "layout.egtp: 1",
             ("egtp",), _uses_axis("egtp")),
    Strategy("recompute-selective", "selective recompute (modules)", "layout.recompute",
             "layout.recompute: full", ("recompute",), _uses_recompute("selective")),
    Strategy("recompute-full", "full recompute (layers)", "layout.recompute",
             "layout.recompute: none", ("recompute",), _uses_recompute("full")),
    Strategy("offload-optimizer", "optimizer offload to the host", "layout.offload",
             "layout.offload: none", ("offload",),
             lambda layout: layout.offload.optimizer != "none"),
    Strategy("offload-parameters", "weight offload to the host", "layout.offload",
             "layout.offload: none", ("offload",),
             lambda layout: layout.offload.parameters != "none"),
    Strategy("offload-activations", "activation offload to the host", "layout.offload.activations",
             "layout.offload.activations: []", ("offload",),
             lambda layout: bool(layout.offload.activations)),
    Strategy("zero-plus", "ZeRO++", "layout.zero_plus", "remove layout.zero_plus", ("zero_plus",),
             lambda layout: layout.zero_plus != NO_ZERO_PLUS),
    Strategy("cuda-graphs", "CUDA graphs", "layout.cuda_graphs", "layout.cuda_graphs: false",
             ("cuda_graphs",), lambda layout: bool(layout.cuda_graphs),
             lambda problem: bool(problem.pins.cuda_graphs)),
    Strategy("lora", "LoRA fine-tuning", "job.lora", "emit: [fsdp, slurm]", (),
             lambda layout: False, lambda problem: problem.job.lora is not None),
)  # fmt: skip
"""Strategies in the order of the matrix. The ring (p2p) and 1F1B are also the values of layouts
without context parallelism and without a pipeline, so setting them alone requests no strategy."""


def strategy_rules(framework: str, supported: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return one rule (E08) per parallelism strategy that ``framework`` does not support.

    The keys of ``supported`` are the names of the strategies that ``framework`` supports.
    """
    return _unsupported_rules(framework, frozenset(supported))


@cache
def _unsupported_rules(framework: str, supported: frozenset[str]) -> tuple[Rule, ...]:
    """Return one rule (E08) per strategy that is not in ``supported``.

    The help of a finding lists the supported strategies that the same spec field selects.
    """
    rules = []
    known = [one for one in STRATEGIES if one.name in supported]
    for one in STRATEGIES:
        if one.name not in supported:
            alternatives = [other for other in known if other.path == one.path]
            explain = _explain_unsupported(framework, one, alternatives)
            rules.append(Rule("E08", (one.path, "emit"), _uses_strategy(one), explain, one.reads))
    return tuple(rules)


def _uses_strategy(strategy: Strategy) -> Callable[[Problem, Layout], bool]:
    """Return a function that tests whether the layout uses or the spec requests ``strategy``."""
    return lambda problem, layout: strategy.uses(layout) or strategy.requested(problem)


def _explain_unsupported(
    framework: str, strategy: Strategy, alternatives: list[Strategy]
) -> Callable[[Problem, Layout], Finding]:
    """Return a function that builds the finding that ``framework`` does not support ``strategy``.

    The finding suggests the strategies in ``alternatives``.
    """
    names = ", ".join(one.title for one in alternatives)
    known = f"{framework} supports: {names}"
    if not names:
        known = f"parc backends lists the strategies that {framework} supports"

    def explain_strategy(_: Problem, layout: Layout) -> Finding:
        del layout
        return Finding(
            f"{framework} does not support {strategy.title}",
            label=f"not supported by {framework}",
            help=known + _supported_with_other_framework(framework, strategy),
            fix=strategy.without,
            targets=(framework,),
        )

    return explain_strategy


SERVING_FIELDS: tuple[tuple[str, str], ...] = (
    ("tp", "tp"),
    ("dp", "dp"),
    ("1f1b", "pp"),
    ("cp-all-gather", "pcp"),
    ("cp-all-gather", "dcp"),
    ("ep", "ep"),
    ("ep", "all2all"),
    ("ep", "redundant_experts"),
)
"""(strategy, field of ``layout`` that requests the strategy in the spec of a serving job)."""


def serving_strategy_rules(engine: str, supported: Mapping[str, str]) -> tuple[ServingRule, ...]:
    """Return rules (E08) that reject ``layout`` fields whose strategy ``engine`` does not support.

    There is one rule per field. The keys of ``supported`` are the names of the strategies that
    ``engine`` supports.
    """
    titles = {one.name: one.title for one in STRATEGIES}
    return tuple(
        _serving_rule(engine, titles[strategy], field)
        for strategy, field in SERVING_FIELDS
        if strategy not in supported
    )


def launcher_rules(problem: ServingProblem) -> Iterator[ServingRule]:
    """Yield the rules of the targets that start the engine, such as those of Ray."""
    for name in problem.emit:
        target = serving_backend(name)
        if isinstance(target, LauncherRules):
            yield from target.launcher_rules(problem)


def _serving_rule(engine: str, title: str, field: str) -> ServingRule:
    """Return a rule (E08) that rejects ``layout.<field>`` because ``engine`` does not support it.

    ``title`` is the name of the strategy that the field requests, as messages show it.
    """
    is_degree = field not in ("all2all", "redundant_experts")
    absent = (None, "off", 1) if is_degree else (None,)

    def requests_strategy(problem: ServingProblem, layout: ServingLayout) -> bool:
        pinned = getattr(problem.pins, field) not in absent
        return pinned or (is_degree and getattr(layout, field) > 1)

    def explain_field(problem: ServingProblem, layout: ServingLayout) -> Finding:
        pinned = getattr(problem.pins, field)
        return Finding(
            f"{engine} does not support {title}",
            label=f"{field} = {getattr(layout, field) if pinned is None else pinned}",
            help=f"parc backends lists the strategies that {engine} supports",
            fix=f"layout.{field}: 1" if is_degree else f"remove layout.{field}",
            targets=(engine,),
        )

    reads = (field,) if is_degree else ()
    return ServingRule("E08", (f"layout.{field}", "emit"), requests_strategy, explain_field, reads)


def _supported_with_other_framework(framework: str, strategy: Strategy) -> str:
    """Return a text that names the frameworks that give ``framework`` the ``strategy``.

    For example, Accelerate supports more strategies when it starts DeepSpeed. The text is empty if
    there is no such framework.
    """
    found = find_backend_declaration(framework)
    if not isinstance(found, Declaration):  # a pair such as "accelerate + deepspeed"
        return ""
    wrapped = (one.framework for one in found.wrapped_frameworks)
    names = [
        name for name in wrapped if strategy.name in wrapped_framework(framework, name).strategies
    ]
    return "".join(f"; with {name} it supports {strategy.title}" for name in names)
