"""Edges of what readers accept, and agreement of several tools about the same cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.tools.importers.import_files import read_files
from parc.compiler.topology.hostlist import compress_hosts_in_order
from parc.compiler.topology.readers import ibnetdiscover
from parc.compiler.topology.readers.cluster_section import (
    LONGEST_LABEL,
    _merge_host,
    cluster_section,
)
from parc.compiler.topology.readers.reader_state import LocatedHost
from parc.compiler.topology.readers.registry import detect_format
from tests.property_settings import examples
from tests.topology.reading import finding_lines, read

RATES = {
    **{"SDR": 10, "DDR": 20, "QDR": 40, "FDR10": 40, "FDR": 56},
    **{"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800},
}
"""Gbit/s of four lanes, by generation, as adapters are sold."""


@dataclass(frozen=True)
class Fabric:
    """A fabric: hosts of every leaf, leaves of every pod, one core above all pods."""

    pods: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def leaves(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """(leaf, pod, hosts)."""
        return [
            (f"leaf{pod}-{leaf}", f"pod{pod}", hosts)
            for pod, leaves in enumerate(self.pods)
            for leaf, hosts in enumerate(leaves)
        ]

    @property
    def expected(self) -> list[tuple[str, str, list[str]]]:
        """Racks in the form of a spec."""
        return [
            (leaf, compress_hosts_in_order(hosts), [pod, "core"])
            for leaf, pod, hosts in self.leaves
        ]


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Draw up to three pods of up to three leaves, with hosts in any order."""
    shape = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)
    )
    count = sum(map(sum, shape))
    names = iter(draw(st.permutations([f"n{number:02d}" for number in range(count)])))
    return Fabric(
        tuple(tuple(tuple(next(names) for _ in range(size)) for size in pod) for pod in shape)
    )


def slurm_conf(fabric: Fabric) -> str:
    lines = [
        f"SwitchName={leaf} Nodes={compress_hosts_in_order(hosts)}"
        for leaf, _, hosts in fabric.leaves
    ]
    for pod, leaves in enumerate(fabric.pods):
        lines.append(f"SwitchName=pod{pod} Switches=leaf{pod}-[0-{len(leaves) - 1}]")
    return "\n".join([*lines, f"SwitchName=core Switches=pod[0-{len(fabric.pods) - 1}]"])


def slurm_yaml(fabric: Fabric) -> str:
    entries = [
        {"switch": leaf, "nodes": compress_hosts_in_order(hosts)}
        for leaf, _, hosts in fabric.leaves
    ]
    for pod in range(len(fabric.pods)):
        children = ",".join(leaf for leaf, own, _ in fabric.leaves if own == f"pod{pod}")
        entries.append({"switch": f"pod{pod}", "children": children})
    pods = ",".join(f"pod{pod}" for pod in range(len(fabric.pods)))
    entries.append({"switch": "core", "children": pods})
    return "---\n- topology: t\n  tree: " + json.dumps({"switches": entries})


def graph(fabric: Fabric) -> str:
    return json.dumps(
        {
            "instances": [
                {"id": host, "network_layers": [leaf, pod, "core"]}
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ]
        }
    )


def model(fabric: Fabric) -> str:
    pods: dict[str, list[str]] = {}
    for leaf, pod, _ in fabric.leaves:
        pods.setdefault(pod, []).append(leaf)
    switches = {"core": {"switches": list(pods)}}
    switches |= {pod: {"switches": leaves} for pod, leaves in pods.items()}
    blocks = [
        {"switch": leaf, "nodes": [compress_hosts_in_order(hosts)]}
        for leaf, _, hosts in fabric.leaves
    ]
    return f"switches: {json.dumps(switches)}\nblocks: {json.dumps(blocks)}\n"


def aws(fabric: Fabric) -> str:
    return json.dumps(
        {
            "Instances": [
                {"InstanceId": host, "NetworkNodes": ["core", pod, leaf]}
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ]
        }
    )


def kubernetes(fabric: Fabric) -> str:
    prefix = "fabric.topograph.run/tier-"
    return json.dumps(
        {
            "apiVersion": "v1",
            "items": [
                {
                    "metadata": {
                        "name": host,
                        "labels": {
                            f"{prefix}2": "core",
                            f"{prefix}1": pod,
                            f"{prefix}0": leaf,
                            "nvidia.com/gpu.count": "8",
                        },
                    }
                }
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ],
        }
    )


def cables(fabric: Fabric) -> str:
    lines = []
    for leaf, pod, hosts in fabric.leaves:
        lines.append(f'Switch\t9 "S-{leaf}"\t\t# "{leaf}"')
        lines += [f'[{n}]\t"H-{host}"[1](a)\t\t# "{host} mlx5_0"' for n, host in enumerate(hosts)]
        lines.append(f'[99]\t"S-{pod}"[{leaf.partition("-")[2]}]\t\t# "{pod}"')
        lines += [f'Ca\t1 "H-{host}"\t\t# "{host} mlx5_0"' for host in hosts]
    for number in range(len(fabric.pods)):
        lines += [f'Switch\t9 "S-pod{number}"\t\t# "pod{number}"', f'[99]\t"S-core"[{number}]']
    return "\n".join([*lines, 'Switch\t9 "S-core"\t\t# "core"'])


FORMS: list[Callable[[Fabric], str]] = [slurm_conf, slurm_yaml, graph, model, aws, kubernetes]


def racks(text: str) -> list[tuple[str, str, list[str]]]:
    kind = detect_format(text)
    assert kind is not None
    sink = Sink()
    fragment = read_files([(kind, text, "file")], sink)
    assert fragment is not None, sink.diagnostics
    cluster, _ = cluster_section(fragment, sink)
    assert not sink.diagnostics
    return [(rack["name"], rack["nodes"], rack["above"]) for rack in cluster["racks"]]


@pytest.mark.parametrize("form", FORMS, ids=[form.__name__ for form in FORMS])
@examples(13)
@given(fabric=fabrics())
def test_every_format_gives_the_same_racks_and_switches(
    form: Callable[[Fabric], str], fabric: Fabric
) -> None:
    assert racks(form(fabric)) == fabric.expected


@examples(13)
@given(fabric=fabrics())
def test_cables_give_the_same_leaves_and_a_tier_for_each_level_that_joins_zones(
    fabric: Fabric,
) -> None:
    sink = Sink()
    fragment = read_files([("ibnetdiscover", cables(fabric), "file")], sink)
    assert fragment is not None, sink.diagnostics
    home = {host.name: host.path for host in fragment.hosts}
    assert home.keys() == {host for _, _, hosts in fabric.leaves for host in hosts}
    tiers = 1 + (len(fabric.leaves) > len(fabric.pods)) + (len(fabric.pods) > 1)
    for leaf, pod, hosts in fabric.leaves:
        wanted = [leaf, *([pod] if len(fabric.leaves) > len(fabric.pods) else [])]
        assert {home[host][: len(wanted)] for host in hosts} == {tuple(wanted)}
        assert {len(home[host]) for host in hosts} == {tiers}


@examples(13)
@given(fabric=fabrics())
def test_a_fragment_resolves_to_hosts_under_their_switches(fabric: Fabric) -> None:
    sink = Sink()
    fragment = read_files([("topograph", graph(fabric), "file")], sink)
    assert fragment is not None
    spec = ClusterSpec.model_validate_json(
        json.dumps({"node": "dgx-h100", **cluster_section(fragment, sink)[0]})
    )
    cluster = resolve_cluster(spec, Library(), sink)
    assert cluster is not None, sink.diagnostics
    assert [(host.name, host.switch_path) for host in cluster.hosts] == [
        (host, (leaf, pod, "core")) for leaf, pod, hosts in fabric.leaves for host in hosts
    ]


def fabric(switch: str = "leaf1", adapter: str = "n1 mlx5_0", rate: str = "4xNDR") -> str:
    """Return ibnetdiscover's output for one switch with one host."""
    return (
        f'Switch	4 "S-1"		# "{switch}"\n'
        f'[1]	"H-1"[1](a1)		# "{adapter}" lid 1 {rate}\n'
        f'Ca	1 "H-1"		# "{adapter}"\n'
    )


@pytest.mark.parametrize(("generation", "gbps"), RATES.items())
def test_four_lanes_have_the_rate_of_their_generation(generation: str, gbps: int) -> None:
    text, _ = read("ibnetdiscover", fabric(rate=f"4x{generation}"))
    assert f"nic_speed: {gbps}}}" in text


def test_every_generation_of_infiniband_has_a_rate() -> None:
    assert RATES.keys() == ibnetdiscover.LANE_GBPS.keys()


@pytest.mark.parametrize(
    ("comment", "name"),
    [("MF0;leaf1:MQM9700/U1", "leaf1"), ("MF0;leaf1", "leaf1"), ("leaf1", "leaf1"), ("", "S-1")],
)
def test_a_switch_is_named_by_its_comment_or_else_by_its_guid(comment: str, name: str) -> None:
    text, _ = read("ibnetdiscover", fabric(switch=comment))
    assert f"name: {name}," in text


@pytest.mark.parametrize(
    "adapter", ["n1", "n1 ", "Mellanox Technologies Aggregation Node", "n1 SHARP aggregation"]
)
def test_an_adapter_without_host_and_device_is_no_host(adapter: str) -> None:
    _, sink = read("ibnetdiscover", fabric(adapter=adapter))
    assert [line[:3] for line in finding_lines(sink)] == ["I02"]


def test_a_line_of_an_infiniband_file_may_have_its_maximum_length() -> None:
    longest = ibnetdiscover.LONGEST_LINE
    line = "vendid=0x" + "0" * (longest - 9)
    assert read("ibnetdiscover", fabric() + line)[0]
    _, sink = read("ibnetdiscover", fabric() + line + "0")
    assert [found[:3] for found in finding_lines(sink)] == ["I06"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda hosts: {"items": hosts},
        lambda hosts: {"data": {"items": hosts}},
        lambda hosts: {"data": hosts},
        lambda hosts: hosts,
    ],
    ids=["items", "data.items", "data", "list"],
)
def test_hosts_of_oracle_cloud_are_read_in_every_form(wrap: Callable[[Any], Any]) -> None:
    hosts = [
        {
            "instanceId": f"v{number}",
            "localBlockId": "lb",
            "networkBlockId": "nb",
            "hpcIslandId": "isl",
        }
        for number in (1, 2)
    ]
    text, sink = read("oci", json.dumps(wrap(hosts)))
    assert '{name: lb, nodes: "v[1-2]", above: [nb, isl]}' in text, finding_lines(sink)


def test_long_switch_names_with_the_same_end_stay_different_and_valid() -> None:
    end = "x" * (LONGEST_LABEL + 20)
    given = "".join(f"SwitchName={head}{end} Nodes=n{head}\n" for head in (1, 2, 3))
    text, _ = read("slurm-topology", given)
    names = [part.split(",")[0] for part in text.split("{name: ")[1:]]
    assert len(set(names)) == 3
    assert max(map(len, names)) == LONGEST_LABEL


def test_a_duplicate_switch_of_topology_yaml_is_reported() -> None:
    given = (
        "- topology: tree\n  tree:\n    switches:\n"
        "      - {switch: s1, nodes: n1}\n      - {switch: s1, nodes: n2}\n"
    )
    text, sink = read("slurm-topology", given)
    assert not text
    assert [line.split(" | ")[0] for line in finding_lines(sink)] == ["I03 5:9 duplicate switch s1"]


@pytest.mark.parametrize("line", ["# a comment", "", "vendid=0x2c9", "caguid=0xa1"])
def test_lines_without_meaning_do_not_end_the_block_of_a_device(line: str) -> None:
    switch, port, adapter = fabric().splitlines()
    text, sink = read("ibnetdiscover", "\n".join((switch, line, port, adapter, "")))
    assert text == read("ibnetdiscover", fabric())[0], finding_lines(sink)


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        ((("a",), None), ((), "d"), (("a",), "d")),
        (((), "d"), (("a",), None), (("a",), "d")),
        ((("a",), "d"), ((), None), (("a",), "d")),
        ((("a",), "d"), (("a",), "d"), (("a",), "d")),
        ((("a",), None), (("b",), None), None),
        (((), "d"), ((), "e"), None),
    ],
)
def test_two_files_complete_a_host_and_may_not_contradict_each_other(
    one: tuple[tuple[str, ...], str | None],
    other: tuple[tuple[str, ...], str | None],
    merged: tuple[tuple[str, ...], str | None] | None,
) -> None:
    sink = Sink()
    known, more = (LocatedHost("n1", *each, Span("f", 1, 1)) for each in (one, other))
    found = _merge_host(known, more, sink)
    assert sink.failed() is (merged is None)
    assert merged is None or (found.path, found.nvlink_domain) == merged


@pytest.mark.parametrize(
    ("jobs", "used"),
    [
        ([("COMPLETED", 5, 9), ("COMPLETED", 6, 8)], 5),
        ([("COMPLETED", 5, 9), ("COMPLETED", 6, 9)], 6),
        ([("RUNNING", 5, 7), ("COMPLETED", 6, 9)], 5),
        ([("RUNNING", 6, 7), ("RUNNING", 5, 9)], 5),
    ],
)
def test_a_running_job_is_preferred_then_the_one_that_started_last(
    jobs: list[tuple[str, int, int]], used: int
) -> None:
    rows = [
        {"job_id": number, "job_state": state, "nodes": f"n{number}", "start_time": start}
        for state, number, start in jobs
    ]
    text, _ = read("squeue", json.dumps({"jobs": rows}))
    assert f"nodes: n{used}}}" in text
