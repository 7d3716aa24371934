"""Parts of the search for an order: node axes, boxes, packing, loads after swaps, cuts of grids."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations, product
from math import prod

import pytest

from parc.compiler.ir import Cluster, Host, Mesh
from parc.compiler.placement.build_placement_problem import build_placement_problem
from parc.compiler.placement.order.enumerate_orders import enumerate_orders
from parc.compiler.placement.order.equivalent_hosts import (
    HostSites,
    group_hosts_into_sites,
    sort_hosts_by_switch,
)
from parc.compiler.placement.order.link_loads import LinkLoads, messages_by_node
from parc.compiler.placement.order.orders_from_boxes import (
    bins_by_level,
    box_shapes,
    node_axis_sizes,
    pack_node_ranks,
    ranks_by_box,
)
from parc.compiler.placement.order.placement_problem import PlacementCost, PlacementProblem
from parc.compiler.placement.order.swaps import _is_better_score
from parc.compiler.placement.order.switch_cuts import CutModel, GridView, smallest_grid_cuts
from parc.compiler.placement.replan_hosts import _best_replacement
from tests.placement.placement_plans import NVL72, MegatronOrder, cluster, estimate, layout
from tests.placement.random_clusters import in_pods, irregular


def random_problem(seed: int) -> PlacementProblem:
    on, of, costs = irregular(seed, 7)
    return build_placement_problem(on, MegatronOrder().device_meshes(of), of, costs)


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 3), (2, 5), (4, 3)])
def test_no_set_of_cells_cuts_fewer_lines_than_the_bound(rows: int, columns: int) -> None:
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    for size in range(1, len(cells)):
        counted = smallest_grid_cuts(size, columns, rows)
        reached = {_lines_cut(chosen, rows, columns) for chosen in combinations(cells, size)}
        for found in reached:
            assert any(a <= found[0] and b <= found[1] for a, b in counted), (size, found)


def _lines_cut(chosen: tuple[tuple[int, int], ...], rows: int, columns: int) -> tuple[int, int]:
    by_row = Counter(row for row, _ in chosen)
    by_column = Counter(column for _, column in chosen)
    return (
        sum(count < columns for count in by_row.values()),
        sum(count < rows for count in by_column.values()),
    )


def test_the_axes_of_both_meshes_split_the_node_axes() -> None:
    meshes = MegatronOrder().device_meshes(layout(tp=8, cp=2, dp=64, pp=4, ep=64, etp=1))
    assert node_axis_sizes(meshes, 8) == (2, 4, 16, 4)
    assert prod(node_axis_sizes(meshes, 8)) == 512


def test_a_sequence_has_every_node_rank_once_and_consecutive_boxes() -> None:
    sizes = (2, 4, 3)
    for shape in box_shapes(sizes, 8):
        ranks = ranks_by_box(sizes, [shape], range(3))
        assert sorted(ranks) == list(range(24))
        box = ranks[: prod(shape)]
        assert {rank // 8 for rank in box} == set(range(shape[2]))


@pytest.mark.parametrize("largest_first", [False, True])
@pytest.mark.parametrize("sizes", [[], [4], [8], [0], [16]])
def test_packing_fills_no_site_beyond_its_hosts(sizes: list[int], largest_first: bool) -> None:
    on = cluster(7, 16, 9, 5, 3)
    sites = group_hosts_into_sites(on, sort_hosts_by_switch(on))
    place = pack_node_ranks(sites, list(range(36)), sizes, largest_first)
    for site, used in Counter(place).items():
        assert used <= sites.hosts_per_site[site]


def test_whole_blocks_share_a_switch_if_they_fit() -> None:
    on = in_pods(cluster(9, 9, 9, 9), 2, 2.0)
    sites = group_hosts_into_sites(on, sort_hosts_by_switch(on))
    place = pack_node_ranks(sites, list(range(32)), [4, 16])
    assert all(len(set(place[start : start + 4])) == 1 for start in range(0, 32, 4))
    assert [sorted(set(place[start : start + 16])) for start in (0, 16)] == [[0, 1], [2, 3]]


def test_sites_have_their_domains_and_the_uplinks_above() -> None:
    on = in_pods(cluster(18, 18, 9, node=NVL72), 2, 2.0)
    sites = group_hosts_into_sites(on, sort_hosts_by_switch(on))
    assert sites.hosts_per_site == (18, 18, 9)
    assert sites.multi_host_domains
    assert [tier.name for tier in sites.tiers] == ["leaf", "pod"]
    assert len(bins_by_level(sites)) == 3
    # Oversubscription 2 at the leaf and 2 at the pod: a quarter of what its NICs send.
    assert sites.tiers[1].bytes_per_s == (36 * 4 * 50e9 / 4, 9 * 4 * 50e9 / 4)


@pytest.mark.parametrize("seed", range(12))
def test_loads_after_swaps_equal_a_full_count(seed: int) -> None:
    problem = random_problem(seed)
    draw = random.Random(seed)
    place = pack_node_ranks(problem.sites, draw.sample(range(problem.nodes), problem.nodes), ())
    flows = [messages_by_node(one, problem.nodes) for one in problem.flows]
    loads = LinkLoads(problem, flows, place)
    for _ in range(50):
        loads.swap_hosts(*draw.sample(range(len(loads.place)), 2))
    fresh = LinkLoads(problem, flows, loads.place[: problem.nodes])
    assert loads.score() == pytest.approx(fresh.score())
    cost = problem.cost(loads.place[: problem.nodes])
    bytes_ = (cost.busiest_weighted, cost.total_weighted)
    assert loads.score() == pytest.approx((cost.exposed_seconds, *bytes_[::-1]))
    assert loads.score(1e6) == pytest.approx((1e6, *bytes_))


def test_messages_leaving_a_set_of_node_ranks_are_counted() -> None:
    problem = random_problem(5)
    inside = set(range(0, problem.nodes, 3))
    for one in problem.flows:
        found = messages_by_node(one, problem.nodes)
        pairs = zip(one.senders, one.receivers, strict=True)
        count = sum(a in inside and b not in inside for a, b in pairs)
        for visit in one.member_nodes:
            here = sum(node in inside for node in visit)
            count += here * (len(visit) - here)
        assert found.count_leaving_messages(inside) == count * one.parallel


def test_equal_empty_racks_are_interchangeable_in_the_enumeration() -> None:
    on = cluster(2, 2)
    sites = group_hosts_into_sites(on, sort_hosts_by_switch(on))
    places = [tuple(place) for place in enumerate_orders(4, sites)]
    assert places == [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)]
    uneven = cluster(1, 2)
    sites = group_hosts_into_sites(uneven, sort_hosts_by_switch(uneven))
    assert len(list(enumerate_orders(3, sites))) == 3


def test_an_axis_that_ends_inside_a_host_splits_no_digit() -> None:
    # dp ends after 4 x 5 = 20 ranks, in the middle of the third host of 8.
    assert node_axis_sizes([Mesh.from_sizes((("tp", 4), ("dp", 5), ("pp", 4)))], 8) == (10,)
    assert node_axis_sizes([Mesh.from_sizes((("tp", 4), ("dp", 6), ("pp", 4)))], 8) == (3, 4)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_score_is_better_only_if_it_differs_by_more_than_rounding(scale: float) -> None:
    best = (scale, scale, scale)
    less, same = scale * (1 - 1e-6), scale * (1 - 1e-12)
    assert not _is_better_score(best, best)
    assert not _is_better_score((same, same, same), best)
    assert _is_better_score((less, scale, scale), best)
    assert _is_better_score((same, less, 2 * scale), best)
    assert not _is_better_score((2 * scale, less, less), best)
    assert not _is_better_score((same, 2 * scale, less), best)


@pytest.mark.parametrize("weights", [(1.0, 10.0), (10.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize(("per_row", "per_column"), [(3, 2), (2, 3), (4, 2), (3, 3)])
def test_a_bound_on_rows_and_columns_is_reached_by_whole_rows_and_never_exceeded(
    per_row: int, per_column: int, weights: tuple[float, float]
) -> None:
    models = (CutModel((0,), per_row, 1.0, False), CutModel((1,), per_column, 1.0, False))
    grid = GridView(models, None, None, 0, 1, 1, (per_row, per_column))
    cells = [(row, column) for row in range(per_column) for column in range(per_row)]
    for size in range(1, len(cells)):
        least = min(
            weights[0] * rows + weights[1] * columns
            for rows, columns in (
                _lines_cut(chosen, per_column, per_row) for chosen in combinations(cells, size)
            )
        )
        bound = grid.least_cost(size, weights, (0.0, 0.0))
        assert bound <= least
        if size == per_row and weights[0] > weights[1]:
            assert bound == least == weights[1] * per_row


def test_traffic_inside_a_domain_of_several_hosts_does_not_use_their_nics() -> None:
    of = layout(tp=4, pp=1, dp=36, ep=1)
    problem, apart = (
        build_placement_problem(on, MegatronOrder().device_meshes(of), of, estimate(1e9, 1e8))
        for on in (cluster(18, 18, node=NVL72), cluster(18, 18))
    )
    # Site of each node rank: the ring over all hosts leaves a domain once, or at every host.
    blocks, alternating = [0] * 18 + [1] * 18, [0, 1] * 18
    near, far = (sum(problem._nic_seconds(place)) for place in (blocks, alternating))
    assert 0 < near == far
    # In one domain nothing leaves; if each host is a domain, every order sends the same.
    assert sum(problem._nic_seconds([0] * 36)) == 0.0
    assert list(apart._nic_seconds(blocks)) == list(apart._nic_seconds(alternating))


def across_leaves() -> Cluster:
    """Return two racks of two hosts, and two NVLink domains with a host of each rack."""
    on = cluster(2, 2, node=NVL72)
    racks = tuple(
        replace(
            rack,
            hosts=tuple(
                replace(host, nvlink_domain=f"domain{number}")
                for number, host in enumerate(rack.hosts)
            ),
        )
        for rack in on.racks
    )
    return replace(on, racks=racks)


def _symmetries(sites: HostSites) -> list[tuple[int, ...]]:
    """Return the permutations of sites that keep their sizes and what any two of them share."""
    paths, every = sites.tree_paths, range(len(sites.hosts_per_site))

    def shared(one: int, other: int) -> list[bool]:
        return [a == b for a, b in zip(paths[one], paths[other], strict=True)][:-1]

    return [
        order
        for order in permutations(every)
        if all(sites.hosts_per_site[one] == sites.hosts_per_site[order[one]] for one in every)
        and all(
            shared(one, other) == shared(order[one], order[other])
            for one in every
            for other in every
        )
    ]


@pytest.mark.parametrize(
    ("on", "once"),
    [
        (cluster(2, 2), True),
        (cluster(1, 2, 2), True),
        (in_pods(cluster(1, 1, 1, 1), 2, 2.0), True),
        (in_pods(cluster(1, 1, 2, 2), 2, 2.0), True),
        (in_pods(cluster(1, 1, 1, 1, 1), 2, 2.0), True),
        (cluster(2, 2, node=NVL72), True),
        (across_leaves(), False),
    ],
    ids=[
        *("two racks", "uneven racks", "pods", "uneven racks in pods", "uneven pods"),
        *("domains", "domains across leaves"),
    ],
)
def test_all_orders_are_enumerated_up_to_symmetry(on: Cluster, once: bool) -> None:
    sites = group_hosts_into_sites(on, sort_hosts_by_switch(on))
    symmetries = _symmetries(sites)
    for nodes in (2, 3, 4):
        found = Counter(
            min(tuple(order[site] for site in place) for order in symmetries)
            for place in enumerate_orders(nodes, sites)
        )
        whole = {
            min(tuple(order[site] for site in place) for order in symmetries)
            for place in product(range(len(sites.hosts_per_site)), repeat=nodes)
            if all(place.count(site) <= size for site, size in enumerate(sites.hosts_per_site))
        }
        assert found.keys() == whole
        assert not once or set(found.values()) == {1}


@pytest.mark.parametrize("seed", range(8))
def test_a_drained_host_is_replaced_by_the_host_of_least_cost(seed: int) -> None:
    draw = random.Random(seed)
    on = in_pods(cluster(3, 3, 3, 3), 2, 2.0)
    pp = draw.choice((1, 2, 4))
    of = layout(tp=8, pp=pp, dp=8 // pp, ep=1)
    meshes = MegatronOrder().device_meshes(of)
    problem = build_placement_problem(on, meshes, of, estimate(1e9, 1e9))
    hosts = draw.sample(on.hosts, len(on.hosts))
    seats, free = hosts[: problem.nodes], hosts[problem.nodes :]
    site = problem.sites.site_by_host
    node = draw.randrange(problem.nodes)
    free = [host for host in free if site[host.name] != site[seats[node].name]]

    def cost(new: Host) -> PlacementCost:
        placed = [*seats[:node], new, *seats[node + 1 :]]
        return problem.cost([site[host.name] for host in placed])

    chosen = _best_replacement(problem, seats, node, free)
    assert chosen in free
    assert cost(chosen) == min(map(cost, free))


@pytest.mark.parametrize("weights", [(1.0, 10.0), (10.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize(("count", "size"), [(2, 3), (3, 2), (3, 3), (4, 2), (2, 5)])
def test_a_bound_on_lines_and_slices_is_reached_by_whole_slices_and_never_exceeded(
    count: int, size: int, weights: tuple[float, float]
) -> None:
    models = (CutModel((1,), count, 1.0, False), CutModel((0,), size, 1.0, False))
    grid = GridView(models, 0, 1, None, None, count, (size, 1))
    cells = list(product(range(count), range(size)))
    for contained in range(1, len(cells)):
        least = min(
            weights[0] * lines + weights[1] * slices
            for slices, lines in (
                _lines_cut(chosen, count, size) for chosen in combinations(cells, contained)
            )
        )
        bound = grid.least_cost(contained, weights, (0.0, 0.0))
        assert bound <= least
        if contained % size == 0 or contained < min(count, size):
            assert bound == least
