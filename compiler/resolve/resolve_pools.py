"""Problems of the two pools of a disaggregated service that one spec describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from parc.compiler.catalog.find_model import Library
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import POOLS
from parc.compiler.ir.serving_plan import PoolProblems, ServingProblem
from parc.compiler.resolve.resolve_hosts import expand_host_lists, format_hosts, is_or_are
from parc.compiler.resolve.resolve_service import resolve_service
from parc.compiler.spec.base import StrictModel
from parc.compiler.spec.service_spec import DisaggregateSpec, ServingSpec

AT = "job.disaggregate"
T = TypeVar("T", bound=StrictModel)


def resolve_disaggregated(
    spec: ServingSpec, model: Model, cluster: Cluster, library: Library, sink: Sink
) -> ServingProblem | None:
    """Return the problem of the whole service, which contains the problems of its pools.

    With ``disaggregate: auto``, the result has no pools if they are not possible, which is reported
    as advice (G11). Returns None after an error that leaves the problem incomplete.
    """
    whole = resolve_service(spec, model, cluster, library, sink)
    if whole is None:
        return None
    tried = Sink(sink.positions)
    pools = _resolve_pools(spec, whole, library, tried)
    if pools is not None or spec.job.disaggregate != "auto":
        sink.extend(tried)
        return replace(whole, pools=pools)
    reason = next(one.finding for one in tried.diagnostics if one.severity == "error")
    finding = Finding("two pools are not possible, so engines serve whole requests", reason.message)
    sink.report("G11", finding, at=AT)
    return whole


def _with_values(model: T, values: dict[str, Any]) -> T:
    """Return a copy of a spec model with ``values``; keys with the value None become absent."""
    copy = model.model_copy(
        update={
            key: type(model).model_fields[key].default if value is None else value
            for key, value in values.items()
        }
    )
    copy.model_fields_set.difference_update(key for key, one in values.items() if one is None)
    return copy


def _resolve_pools(
    spec: ServingSpec, whole: ServingProblem, library: Library, sink: Sink
) -> PoolProblems | None:
    """Return the problems of both pools; None after reporting errors."""
    _check_service(spec, whole, sink)
    wanted = spec.job.disaggregate
    section = wanted if isinstance(wanted, DisaggregateSpec) else DisaggregateSpec()
    hosts = _split_hosts(section, whole.cluster, sink)
    found = []
    for pool, allowed in zip(POOLS, hosts, strict=True):
        problem = resolve_service(
            _pool_spec(spec, section, pool), whole.model, whole.cluster, library, sink
        )
        if problem is not None:
            # plan.json of each pool contains the spec that the user wrote.
            own = replace(problem, spec_json=whole.spec_json, digest=whole.digest)
            found.append((own, allowed))
    if sink.failed() or len(found) < len(POOLS):
        return None
    return PoolProblems(*found[0], *found[1], required=wanted != "auto")


def _pool_spec(spec: ServingSpec, section: DisaggregateSpec, pool: str) -> ServingSpec:
    """Return the spec of one pool, with the limits and the layout that apply to this pool."""
    goals = _with_values(spec.goals, {"e2e": None})
    if pool == "prefill":
        # Prompts have no time per token. A share of requests needs a limit on each request.
        removed: dict[str, Any] = {"tpot": None}
        if not isinstance(goals.ttft, float):
            removed["goodput"] = None
        goals = _with_values(goals, removed)
    elif not isinstance(goals.ttft, float) and not isinstance(goals.tpot, float):
        goals = _with_values(goals, {"goodput": None})
    own = getattr(section, pool).layout
    layout = _with_values(spec.layout, {name: getattr(own, name) for name in own.model_fields_set})
    values: dict[str, Any] = {
        "name": f"{spec.name}-{pool}",
        "job": _with_values(spec.job, {"pool": pool, "disaggregate": None}),
        "goals": goals,
        "layout": layout,
        # The setting is checked with the whole service, which has a router for any engine.
        "launch": _with_default(spec.launch, "router_port"),
    }
    return _with_values(spec, values)


def _with_default(model: T, key: str) -> T:
    """Return a copy of ``model`` in which ``key`` counts as absent from the spec."""
    copy = model.model_copy()
    copy.model_fields_set.discard(key)
    return copy


def _check_service(spec: ServingSpec, whole: ServingProblem, sink: Sink) -> None:
    """Report settings that a service with two pools cannot have (V46)."""
    traffic, goals = whole.service.traffic, whole.goals
    if spec.job.pool != "both":
        finding = Finding(
            "job sets both pool and disaggregate",
            label="with disaggregate, PARC plans both pools",
            fix="remove job.pool",
            causes=(Cause(AT, "two pools are planned here"),),
        )
        sink.report("V46", finding, at="job.pool", key=True)
    if traffic.concurrency is not None:
        finding = Finding(
            "two pools need a request rate instead of a concurrency",
            label="with a fixed concurrency, the load of each pool depends on the speed of both",
            help="set job.traffic.request_rate, or limits on ttft and tpot without a load",
            causes=(Cause(AT, "two pools are planned here"),),
        )
        sink.report("V46", finding, at="job.traffic.concurrency", key=True)
    elif traffic.request_rate is None and (
        goals.ttft_seconds is None or goals.tpot_seconds is None
    ):
        finding = Finding(
            "two pools need a request rate, or limits on both ttft and tpot",
            label="PARC sizes both pools for the same request rate",
            help="set job.traffic.request_rate, or goals.ttft and goals.tpot",
            fix="job.traffic.request_rate: 1",
        )
        sink.report("V46", finding, at=AT)
    if goals.e2e_seconds is not None:
        finding = Finding(
            "the latency e2e of a service with two pools cannot be limited",
            label="each pool determines a part of this time",
            help="limit goals.ttft and goals.tpot instead",
            fix="remove goals.e2e",
            causes=(Cause(AT, "two pools are planned here"),),
        )
        sink.report("V46", finding, at="goals.e2e", key=True)


def _split_hosts(
    section: DisaggregateSpec, cluster: Cluster, sink: Sink
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the names of the hosts of each pool; None for a pool that may use all other hosts.

    Reports hosts that do not exist or have two pools, and pools without a host (V46).
    """
    free = dict.fromkeys(host.name for host in cluster.hosts)
    found: dict[str, tuple[str, ...] | None] = {}
    # Names first, because a number counts the hosts that remain.
    for pool in sorted(POOLS, key=lambda one: isinstance(getattr(section, one).hosts, int)):
        wanted, at = getattr(section, pool).hosts, f"{AT}.{pool}.hosts"
        if wanted is None:
            found[pool] = None
            continue
        names = (
            list(free)[:wanted]
            if isinstance(wanted, int)
            else [name for _, part in expand_host_lists(wanted, sink, at) for name in part]
        )
        if isinstance(wanted, int) and len(names) < wanted:
            _report_too_few(wanted, len(names), sink, at)
        if unknown := [name for name in names if name not in free]:
            finding = Finding(
                f"{format_hosts(unknown)} {is_or_are(unknown)} not among the free hosts",
                label="each host must be in the cluster, usable, and assigned to one pool only",
                help=f"usable hosts: {format_hosts(list(free))}" if free else "",
            )
            sink.report("V46", finding, at=at)
        for name in names:
            free.pop(name, None)
        found[pool] = tuple(names)
    if len(free) < sum(one is None for one in found.values()):
        _report_too_few(cluster.nodes + 1, cluster.nodes, sink, AT)
    return found["prefill"], found["decode"]


def _report_too_few(needed: int, available: int, sink: Sink, at: str) -> None:
    finding = Finding(
        f"the pools need {needed} hosts; free hosts: {available}",
        label="each host belongs to one pool",
        help="add hosts to the cluster, or let engines serve whole requests (disaggregate: false)",
    )
    sink.report("V46", finding, at=at)
