"""Layout search that leaves hosts idle if fewer hosts are faster than all of them.

The product of the parallel sizes must equal the number of GPUs. If this number has a factor that
divides neither the batch nor the layers, such as 9 of 288 GPUs with a batch of 256, the layouts on
all GPUs are slow or invalid, and a layout on 256 GPUs is faster. If a batch is too small for the
cluster, the GPUs mostly communicate or wait, and a fraction of the hosts is faster.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from math import ceil, inf, log2

from parc.backends.base import Framework
from parc.compiler.cost.counts.params import layer_params_on_rank
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.ir import Cluster, Problem, Search
from parc.compiler.ir.problem import is_size_allowed
from parc.compiler.placement.try_other_rank_order import place_layout
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import MAX_VPP, dense_choices, fills_chunks_evenly
from parc.compiler.search.explain_oversized import OVERSIZED
from parc.compiler.search.rank_layouts import KEPT
from parc.compiler.search.search_layouts import search_layouts

MIN_GAIN = 0.05
"""Smallest fraction of the step time for which hosts are left idle (heuristic). A smaller gain is
within the error of the comparison between layouts with different numbers of GPUs."""
MAX_TRIALS = 3
"""Largest number of host counts with a layout that are searched, because each search takes as long
as the first one."""
MAX_COUNTS = 8
"""Largest number of host counts that are searched if some have no layout, which takes less time. An
example are frameworks without tensor and pipeline parallelism for the model."""
SMALL_LOSS = 0.97
"""Ideal speed per GPU above which no other number of hosts is tried (heuristic)."""
LOW_MFU = 0.3
"""MFU below which a fraction of the hosts may be faster than all of them (heuristic): half of them
would need twice the MFU."""
FEW_TOKENS = 8192
"""Number of tokens per GPU and step up to which the same is possible (heuristic). In 243 searches
at random over the catalog, all 9 steps that fewer hosts made 5 % shorter had fewer."""
SPEED_AFTER_DOUBLING = 0.97
"""Assumed speed after each doubling of tp x cp x pp, for the order of the trials (heuristic)."""
BF16_BYTES = 2


def search_with_idle_hosts(cost_model: CostModel, sink: Sink) -> Search | None:
    """Return the result of the layout search, on fewer hosts if the step is then 5 % shorter.

    Fewer hosts are tried only if ``may_leave_hosts_idle``. If a layout on fewer hosts is chosen,
    the best layout on all hosts is one of the ranked candidates. Returns None after a diagnostic if
    there are no candidates.
    """
    found = Sink(sink.positions)
    search = _search_whole_cluster(cost_model, found)
    if not may_leave_hosts_idle(cost_model.problem) or _has_other_cause(found):
        sink.extend(found)
        return search
    too_large = any(one.code == f"PARC-{OVERSIZED}" for one in found.diagnostics)
    # If all hosts split the model evenly and it does not fit, it does not fit on fewer hosts.
    gpus = cost_model.problem.cluster.gpus
    is_hopeless = too_large and gpus & (gpus - 1) == 0
    is_batch_small = search is not None and _is_batch_small(cost_model.problem, search)
    is_valid = (search is not None or is_hopeless) and not is_batch_small
    counts = _promising_host_counts(cost_model, is_valid=is_valid)
    if too_large:
        counts = counts[:MAX_TRIALS]
    trials = _try_parts_of_cluster(cost_model, counts)
    if search is None and not trials and not too_large:
        trials = _try_parts_of_cluster(cost_model, _replicated_host_counts(cost_model.problem))
    if is_batch_small:
        trials += _halve_while_faster(cost_model)
    best = min(trials, key=_seconds, default=None)
    if best is None or (search is not None and _seconds(best) > (1 - MIN_GAIN) * _seconds(search)):
        sink.extend(found)
        return search
    return best if search is None else _merge_searches(cost_model, best, search)


def _try_parts_of_cluster(cost_model: CostModel, counts: list[int]) -> list[Search]:
    """Return the results of the layout searches on fewer hosts, without those that found nothing.

    Up to MAX_TRIALS numbers of ``counts`` that have a layout are tried, in their order. For a model
    with experts, equal NVLink domains are tried too.
    """
    problem, framework = cost_model.problem, cost_model.framework

    def searched(cluster: Cluster) -> Search | None:
        return search_other_problem(replace(problem, cluster=cluster), framework)

    found = (searched(_with_fewer_hosts(problem.cluster, nodes)) for nodes in counts)
    trials = list(islice((one for one in found if one is not None), MAX_TRIALS))
    if problem.model.experts is not None:
        equal = map(searched, _with_equal_domains(problem.cluster))
        trials += [one for one in equal if one is not None]
    return trials


def _is_batch_small(problem: Problem, search: Search) -> bool:
    """Return True if the best layout in ``search`` has little work per GPU, and a low MFU."""
    tokens = problem.job.global_batch * problem.job.sequence_length / problem.cluster.gpus
    return tokens <= FEW_TOKENS and search.ranked[0].mfu < LOW_MFU


def _halve_while_faster(cost_model: CostModel) -> list[Search]:
    """Return the results of the searches on a half, a quarter and so on of the hosts.

    The last one is the first that is slower than the one before.
    """
    problem, trials, fastest = cost_model.problem, list[Search](), inf
    nodes = problem.cluster.nodes // 2
    while nodes:
        part = replace(problem, cluster=_with_fewer_hosts(problem.cluster, nodes))
        found = search_other_problem(part, cost_model.framework)
        if found is None or _seconds(found) > fastest:
            break
        trials.append(found)
        fastest, nodes = _seconds(found), nodes // 2
    return trials


def may_leave_hosts_idle(problem: Problem) -> bool:
    """Return True if the search may choose a layout that uses fewer hosts than the cluster has.

    It may not if the spec forbids it or decides the number of ranks, or if parallel sizes that the
    spec fixes do not divide the number of GPUs, which is an error of the spec (D09).
    """
    pins, goals = problem.pins, problem.goals
    fixed = (pins.tp or 1) * (pins.cp or 1) * (pins.pp or 1)
    return (
        goals.idle_hosts == "allow"
        and goals.maximize != "fewest-gpus"
        and pins.dp is None
        and problem.cluster.nodes > 1
        and problem.cluster.gpus % fixed == 0
    )


def _replicated_host_counts(problem: Problem) -> list[int]:
    """Return the numbers of hosts on which replicas of the fixed sizes divide the batch.

    They are valid even if the framework can only replicate the model. The largest one comes first.
    """
    pins, gpus_per_host = problem.pins, problem.cluster.node.gpus
    fixed = (pins.tp or 1) * (pins.cp or 1) * (pins.pp or 1)
    batch = problem.job.global_batch // (pins.micro_batch or 1)
    return [
        nodes
        for nodes in range(problem.cluster.nodes - 1, 0, -1)
        if nodes * gpus_per_host % fixed == 0 and batch % (nodes * gpus_per_host // fixed) == 0
    ]


def _has_other_cause(found: Sink) -> bool:
    """Return True if an error in ``found`` is about a layout value that the spec fixes."""
    return any(
        one.severity == "error"
        and one.path.startswith("layout.")
        # A finding can also point to a field that the spec does not set: a value of the search.
        and found.positions.is_path_in_spec(one.path)
        for one in found.diagnostics
    )


def _promising_host_counts(cost_model: CostModel, *, is_valid: bool) -> list[int]:
    """Return at most MAX_COUNTS numbers of hosts, the most promising one first.

    The result is empty if a layout on all hosts splits batch and layers almost without loss.
    ``is_valid`` is False if no layout on all hosts is valid, or if all of them are slow.
    """
    problem, smallest = cost_model.problem, _fewest_model_ranks(cost_model)
    gpus, gpus_per_host = problem.cluster.gpus, problem.cluster.node.gpus
    if is_valid and _ideal_speed(problem, smallest, gpus) >= SMALL_LOSS * gpus:
        return []
    best: list[tuple[float, int]] = []
    for nodes in range(problem.cluster.nodes - 1, 0, -1):
        # The speed is at most the number of GPUs, so no smaller number of hosts is better.
        if len(best) == MAX_COUNTS and nodes * gpus_per_host <= best[-1][0]:
            break
        speed = _ideal_speed(problem, smallest, nodes * gpus_per_host, SPEED_AFTER_DOUBLING)
        best = sorted([*best, (speed, nodes)], reverse=True)[:MAX_COUNTS]
    return [nodes for speed, nodes in best if speed > 0]


def _ideal_speed(problem: Problem, smallest: int, gpus: int, doubling: float = 1.0) -> float:
    """Return an upper bound of the number of GPUs that compute at the same time.

    The considered losses are pipeline stages with unequal numbers of layers, and the pipeline
    bubble. Each doubling of tp x cp x pp multiplies the speed by ``doubling``.

    Args:
        problem: problem whose cluster has at least ``gpus`` GPUs.
        smallest: least number of ranks per model copy.
        gpus: number of GPUs to use.
        doubling: factor, at most 1.
    """
    layers, batch = problem.model.layers, problem.job.global_batch
    speed = 0.0
    for tp, cp, pp, dp in _splitting_sizes(problem, smallest, gpus):
        balance, vpp = _stage_balance(layers, pp)
        micro_batches = batch // dp
        # Bubble of interleaved stages (Narayanan et al. 2021, arXiv:2104.04473, section 2.2).
        busy = balance * micro_batches / (micro_batches + (pp - 1) / vpp)
        speed = max(speed, gpus * busy * doubling ** log2(tp * cp * pp))
    return speed


def _splitting_sizes(
    problem: Problem, smallest: int, gpus: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the sizes (tp, cp, pp, dp) that divide ``gpus``, the batch and the sequence."""
    job = problem.job
    for tp, cp, pp, dp in dense_choices(problem, gpus):
        sizes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
        if (
            tp * cp * pp * dp == gpus
            and job.global_batch % dp == 0
            and job.sequence_length % cp == 0
            and tp * pp >= smallest
            and all(is_size_allowed(problem.goals.limits, *size) for size in sizes.items())
        ):
            yield tp, cp, pp, dp


@cache
def _stage_balance(layers: int, pp: int) -> tuple[float, int]:
    """Return (mean number of layers per stage relative to the largest one, largest vpp to try)."""
    longest = ceil(layers / pp)
    sizes = range(min(MAX_VPP, longest), 1, -1)
    vpp = next((vpp for vpp in sizes if fills_chunks_evenly(layers, pp * vpp)), 1)
    return layers / (pp * longest), vpp


def _fewest_model_ranks(cost_model: CostModel) -> int:
    """Return the least tp x pp for weights and gradients outside of experts to fit into memory.

    The result is 1 if the framework can shard them over data-parallel ranks.
    """
    problem = cost_model.problem
    if any(one.zero_stage > 1 for one in cost_model.framework.layout_variants(problem)):
        return 1
    model = problem.model
    dense = sum(layer_params_on_rank(model, layer, 1, 1, 1)[0] for layer in range(model.layers))
    size = dense * (BF16_BYTES + problem.job.gradient_bytes)
    return ceil(size / memory_limit_bytes(cost_model))


_SearchKey = tuple[Problem, Framework, float]
"""(problem, framework, seconds per step above which layouts are not improved)."""
_recent: OrderedDict[_SearchKey, Search | None] = OrderedDict()
"""Results of the latest searches, because the points of a sweep over the number of hosts search the
same smaller numbers, and those of other points."""
MAX_RECENT = 1024
"""Largest number of these results."""


def _search_whole_cluster(cost_model: CostModel, sink: Sink) -> Search | None:
    """Return the result of the layout search; None after a diagnostic if there are no layouts."""
    key = _search_key(cost_model.problem, cost_model.framework)
    # A diagnostic names the spec, so it is not kept: a search without layouts runs again for it.
    search = _recent.get(key) or search_layouts(cost_model, sink)
    return _remember(key, search)


def search_other_problem(
    problem: Problem, framework: Framework, most_seconds: float = inf
) -> Search | None:
    """Return the result of the layout search for a change of the spec; None without layouts.

    Errors are not reported, because the spec does not ask for this change. Layouts that take longer
    than ``most_seconds`` per step are not improved (``search_layouts``).
    """
    key = _search_key(problem, framework, most_seconds)
    if key in _recent:
        return _remember(key, _recent[key])
    return _remember(key, search_layouts(cost_model_for(*key[:2]), None, most_seconds))


def _search_key(problem: Problem, framework: Framework, most_seconds: float = inf) -> _SearchKey:
    """Return the arguments, of ``problem`` without parts that the search does not need."""
    cluster = problem.cluster
    # Nothing leaves a single rack, so the width of its uplinks does not matter. The search does not
    # read the text of the spec.
    wired = () if len(cluster.racks) == 1 else cluster.wired_hosts
    cluster = replace(cluster, wired_hosts=wired)
    return replace(problem, cluster=cluster, spec_json="", digest=""), framework, most_seconds


def _remember(key: _SearchKey, search: Search | None) -> Search | None:
    """Return ``search``, and keep it as the latest result."""
    _recent[key] = search
    _recent.move_to_end(key)
    if len(_recent) > MAX_RECENT:
        _recent.popitem(last=False)
    return search


def _with_equal_domains(cluster: Cluster) -> list[Cluster]:
    """Return ``cluster`` with the same power of two of hosts in each NVLink domain, if it differs.

    Expert groups are fast only inside a domain. With 18, 17 and 15 hosts per domain, no large group
    fits into all of them; with 16, 16 and 0 hosts, groups of 16 hosts do. The result is empty if
    hosts are domains of their own, or if nothing would change.
    """
    if cluster.node.nvlink_domain <= cluster.node.gpus:
        return []
    sizes = Counter(host.nvlink_domain for host in cluster.hosts)
    powers = [2**power for power in range(max(sizes.values()).bit_length())]
    most = max(powers, key=lambda power: power * sum(size >= power for size in sizes.values()))
    left = {name: most if size >= most else 0 for name, size in sizes.items()}
    kept = set()
    for host in cluster.hosts:
        if left[host.nvlink_domain]:
            left[host.nvlink_domain] -= 1
            kept.add(host.name)
    return [_with_hosts(cluster, kept)] if len(kept) < cluster.nodes else []


def _with_fewer_hosts(cluster: Cluster, nodes: int) -> Cluster:
    """Return ``cluster`` with its first ``nodes`` hosts."""
    return _with_hosts(cluster, {host.name for host in cluster.hosts[:nodes]})


def _with_hosts(cluster: Cluster, names: Container[str]) -> Cluster:
    """Return ``cluster`` with the hosts in ``names``."""
    racks = [
        replace(rack, hosts=tuple(host for host in rack.hosts if host.name in names))
        for rack in cluster.racks
    ]
    racks = [rack for rack in racks if rack.hosts]
    return replace(cluster, racks=tuple(racks))


def _seconds(search: Search) -> float:
    """Return the seconds per step of the chosen layout of ``search``."""
    return search.ranked[0].step_seconds


def _merge_searches(cost_model: CostModel, chosen: Search, on_all_hosts: Search) -> Search:
    """Return ``chosen`` with the best layout on all hosts as the last candidate.

    This layout is placed as if it were chosen, so that its step time is that of a plan without idle
    hosts.
    """
    last = place_layout(cost_model, on_all_hosts.ranked[0].layout).candidate
    return replace(chosen, ranked=(*chosen.ranked[: KEPT - 1], last))
