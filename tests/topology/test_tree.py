"""Levels of the cluster, switches of a host, and nearest common switches."""

from __future__ import annotations

import json
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster
from parc.compiler.report.text.estimate_tables import network_levels_text
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.topology.tree import (
    common_switch_level,
    count_hosts_below_switches,
    nvlink_domain_names,
    tree_levels,
    uplink_gb_per_s,
)

PODS = {
    "node": "dgx-h100",
    "levels": [
        {"name": "leaf", "oversubscription": 1},
        {"name": "pod", "oversubscription": 7, "latency": "5us"},
        {"name": "core"},
    ],
    "racks": [
        {"name": "leaf1", "nodes": "a[1-2]", "above": ["pod1", "core"]},
        {"name": "leaf2", "nodes": "b[1-2]", "above": ["pod1", "core"]},
        {"name": "leaf3", "nodes": "c[1-2]", "above": ["pod2", "core"]},
    ],
}


def resolved(given: dict[str, Any]) -> Cluster:
    sink = Sink()
    spec = ClusterSpec.model_validate_json(json.dumps(given))
    cluster = resolve_cluster(spec, Library(), sink)
    assert cluster is not None, sink.diagnostics
    return cluster


def test_the_path_of_a_host_has_a_switch_per_level_the_leaf_first() -> None:
    cluster = resolved(PODS)
    assert cluster.hosts[0].switch_path == ("leaf1", "pod1", "core")
    assert [level.name for level in cluster.switch_tiers] == ["leaf", "pod", "core"]
    assert all(len(host.switch_path) == len(cluster.switch_tiers) for host in cluster.hosts)
    assert [level.oversubscription for level in cluster.switch_tiers] == [1.0, 7.0, 1.0]
    assert cluster.switch_tiers[1].latency_seconds == 5e-6
    assert cluster.switch_tiers[2].latency_seconds == cluster.fabric.latency_seconds


def test_a_cluster_of_racks_has_only_the_leaf_level() -> None:
    cluster = resolved({"node": "dgx-h100", "nodes": 4, "nodes_per_rack": 2})
    assert cluster.upper == ()
    assert [level.name for level in cluster.switch_tiers] == ["leaf"]
    assert cluster.hosts[3].switch_path == ("rack02",)
    assert common_switch_level(cluster.hosts[0], cluster.hosts[3]) == 1


def test_the_leaf_level_sets_the_oversubscription_of_the_fabric() -> None:
    given = {"node": "dgx-h100", "nodes": 4, "levels": [{"name": "leaf", "oversubscription": 3}]}
    assert resolved(given).fabric.oversubscription == 3.0


def test_hosts_meet_at_their_nearest_common_switch() -> None:
    a1, a2, b1, _, c1, _ = resolved(PODS).hosts
    assert [common_switch_level(a1, other) for other in (a2, b1, c1)] == [0, 1, 2]


def test_the_rate_of_an_uplink_is_divided_by_the_oversubscription_of_all_tiers_up_to_it() -> None:
    cluster = resolved(PODS)
    assert uplink_gb_per_s(cluster, 2, 0) == 2 * 8 * 50.0
    assert uplink_gb_per_s(cluster, 4, 1) == 4 * 8 * 50.0 / 7


def test_a_drained_or_spare_host_does_not_narrow_the_uplinks_above_it() -> None:
    whole = resolved(PODS)
    names = [host.name for host in whole.hosts]
    fewer = resolved(PODS | {"spare": names[0], "unavailable": names[1]})
    assert len(fewer.hosts) == len(whole.hosts) - 2
    for level in range(len(whole.switch_tiers)):
        assert count_hosts_below_switches(fewer, level) == count_hosts_below_switches(whole, level)


def test_the_whole_tree_starts_at_the_device() -> None:
    levels = tree_levels(resolved(PODS))
    names = ["device", "nvlink_domain", "host", "leaf", "pod", "core"]
    assert [level.name for level in levels] == names
    assert [level.gpus for level in levels] == [1, 8, 8, 16, 32, 48]
    assert [level.gb_per_s_per_gpu for level in levels] == [3350, 450, 450, 50, 50, 50 / 7]


def test_an_nvlink_domain_of_several_hosts_is_a_level_above_the_host() -> None:
    cluster = resolved({"node": "gb200-nvl72", "nodes": 20, "nodes_per_rack": 10})
    inside = [(level.name, level.gpus) for level in tree_levels(cluster)[:4]]
    assert inside == [("device", 1), ("host", 4), ("nvlink_domain", 40), ("leaf", 40)]


def test_gpus_of_one_index_meet_on_their_rail_before_the_leaf() -> None:
    fabric = {"base": "infiniband-ndr", "rails": 4}
    cluster = resolved({"node": "dgx-h100", "nodes": 4, "nodes_per_rack": 2, "fabric": fabric})
    rail, leaf = tree_levels(cluster)[3:]
    assert [(one.name, one.gpus) for one in (rail, leaf)] == [("rail", 4), ("leaf", 16)]
    assert rail.latency_seconds == leaf.latency_seconds == cluster.fabric.latency_seconds


def test_the_tree_is_printed_as_a_table_with_a_row_per_level() -> None:
    fabric = {"base": "infiniband-ndr", "rails": 8}
    lines = network_levels_text(resolved({**PODS, "fabric": fabric})).splitlines()
    assert lines[0] == "Cluster levels (8 NICs of 400 Gb/s per host)"
    assert [line.split("  ")[0] for line in lines[2:]] == [
        *("GPU", "NVLink domain", "host", "rail", "leaf", "pod", "core")
    ]
    assert lines[-2].split() == ["pod", "32", "50", "5", "us", "7"]


def test_hosts_of_one_rack_may_be_in_several_nvlink_domains() -> None:
    domains = {"d1": "a[1-2]", "d2": "a3"}
    racks = [{"name": "su1", "nodes": "a[1-3]", "nvlink_domains": domains}]
    cluster = resolved({"node": "gb200-nvl72", "racks": racks})
    assert [host.nvlink_domain for host in cluster.hosts] == ["d1", "d1", "d2"]


def test_hosts_of_one_nvlink_domain_are_consecutive_in_their_rack() -> None:
    domains = {"d2": "a[2,4]", "d1": "a[1,3]"}
    racks = [{"name": "su1", "nodes": "a[1-4]", "nvlink_domains": domains}]
    cluster = resolved({"node": "gb200-nvl72", "racks": racks})
    assert [host.name for host in cluster.hosts] == ["a1", "a3", "a2", "a4"]


def test_a_rack_is_divided_into_domains_in_order() -> None:
    hosts = ["a", "b", "c", "d", "e"]
    assert nvlink_domain_names("r", hosts, 1) == hosts
    assert nvlink_domain_names("r", hosts, 0) == hosts
    assert nvlink_domain_names("r", hosts, 5) == ["r"] * 5
    assert nvlink_domain_names("r", hosts, 2) == ["r.0", "r.0", "r.1", "r.1", "r.2"]


def test_levels_inside_a_host_have_neither_latency_nor_oversubscription() -> None:
    inside = [level for level in tree_levels(resolved(PODS)) if level.gb_per_s_per_gpu > 50]
    assert [level.name for level in inside] == ["device", "nvlink_domain", "host"]
    assert {(level.latency_seconds, level.oversubscription) for level in inside} == {(0.0, 1.0)}
