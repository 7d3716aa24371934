"""Properties of placement for any parallel sizes and any racks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from parc.backends.megatron.meshes import FAMILIES, megatron_group_families
from parc.backends.megatron.verify_groups import ParallelDegrees, derive_groups
from parc.compiler.ir import Layout, Mesh
from parc.compiler.topology.node_groups import node_groups, ranks_per_node
from tests.placement.placement_plans import (
    NODE,
    NVL72,
    MegatronOrder,
    cluster,
    estimate,
    layout,
    plan,
)
from tests.property_settings import examples

SMALL = st.sampled_from([1, 2, 3, 4, 8])
ORDERS = st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw parallel sizes for which ep x etp divides a stage, up to 2,048 ranks."""
    tp, cp, pp, dp = draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL)
    stage = tp * cp * dp
    etp = draw(st.sampled_from([n for n in (1, 2, 4, tp) if stage % n == 0]))
    ep = draw(st.sampled_from([n for n in (1, 2, 3, 4, 8, 16) if stage % (n * etp) == 0]))
    assume(stage * pp <= 2048)
    return layout(pp, draw(ORDERS), tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp)


RACKS = st.lists(st.integers(1, 20), min_size=1, max_size=5)
QUICK = examples(30)
DENSE = [one.axes for one in FAMILIES if one.mesh == "dense"]


@QUICK
@given(layouts(), RACKS, st.sampled_from([NODE, NVL72]), st.floats(1e6, 1e12), st.floats(1e6, 1e12))
def test_every_rank_has_one_device_and_every_device_one_rank(
    of: Layout, sizes: list[int], node, dp_bytes: float, pp_bytes: float
) -> None:
    on = cluster(*sizes, node=node)
    assume(of.world // ranks_per_node(node.gpus, of.world) <= on.nodes)
    placement = plan(on, of, estimate(dp_bytes, pp_bytes, ep=1e9), experts=8).placement
    each = placement.ranks_per_node
    devices = {(placement.host_of(rank).name, rank % each) for rank in range(of.world)}
    assert len(devices) == of.world
    assert len(placement.hosts) * each == of.world
    assert each <= node.gpus
    assert {host.name for host in placement.hosts} <= {host.name for host in on.hosts}
    assert sum(one.chosen for one in placement.alternatives) == 1


@QUICK
@given(layouts(), RACKS)
def test_equal_problems_get_equal_placements(of: Layout, sizes: list[int]) -> None:
    on = cluster(*sizes)
    assume(of.world // ranks_per_node(8, of.world) <= on.nodes)
    assert plan(on, of).placement == plan(on, of).placement


@QUICK
@given(layouts(), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3]))
def test_meshes_have_the_groups_of_the_rank_generator(of: Layout, gtp: int, egtp: int) -> None:
    # Ranks share weights only without replicas of the shards.
    gtp = gtp if of.dp_replicate == 1 and of.dp_shard % gtp == 0 else 1
    egtp = egtp if of.dp_replicate == 1 and of.edp % egtp == 0 else 1
    of = replace(of, gtp=gtp, egtp=egtp, dp_shard=of.dp_shard // gtp)
    dense, expert = MegatronOrder().device_meshes(of)
    degrees = ParallelDegrees(
        of.order,
        {"tp": of.tp, "gtp_remat": gtp, "cp": of.cp, "ep": 1, "dp": of.dp // gtp, "pp": of.pp},
        {"tp": of.etp, "cp": 1, "ep": of.ep, "gtp_remat": egtp, "dp": of.edp // egtp, "pp": of.pp},
    )
    families = derive_groups(degrees)
    meshes = {"dense": dense, "expert": expert}
    listed = megatron_group_families(of)
    ours = {one.name: meshes[one.mesh].groups_along(*one.axes) for one in listed}
    assert set(ours) == set(families)
    for name, groups in families.items():
        assert ours[name] == [[b + m for m in groups.members] for b in groups.bases]


@QUICK
@given(layouts(), st.sampled_from([1, 2, 4, 8]), st.sampled_from(DENSE))
def test_groups_by_host_visit_the_hosts_of_their_ranks(
    of: Layout, gpus: int, axes: tuple[str, ...]
) -> None:
    mesh: Mesh = MegatronOrder().device_meshes(of)[0]
    each = ranks_per_node(gpus, of.world)
    coarse = node_groups(mesh, axes, each)
    exact = sorted(tuple(rank // each for rank in group) for group in mesh.groups_along(*axes))
    if not coarse.visits:
        assert all(len(set(visit)) == 1 for visit in exact)
    else:
        assert sorted(list(coarse.visits) * coarse.parallel) == exact
    assert coarse.size * coarse.count == of.world
