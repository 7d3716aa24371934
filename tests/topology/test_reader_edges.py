"""Edges of what readers of topologies accept: rates, names, forms and lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink, Span
from parc.compiler.topology.readers import ibnetdiscover
from parc.compiler.topology.readers.cluster_section import LONGEST_LABEL, _merge_host
from parc.compiler.topology.readers.reader_state import LocatedHost
from tests.topology.reading import finding_lines, read

RATES = {
    **{"SDR": 10, "DDR": 20, "QDR": 40, "FDR10": 40, "FDR": 56},
    **{"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800},
}
"""Gbit/s of four lanes, by generation, as adapters are sold."""


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
