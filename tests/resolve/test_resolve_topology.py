"""``cluster.topology``: racks from a file, and contradictions with the spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink, Span, SpecPositions
from parc.compiler.ir import Cluster
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.reading.source import SpecSource

TREE = """\
SwitchName=leaf1 Nodes=n[1,3]
SwitchName=leaf2 Nodes=n[2,4]
SwitchName=core Switches=leaf[1-2]
"""
NODES = json.dumps(
    {
        "nodes": [
            {"name": "n1", "gres": "gpu:8", "state": ["IDLE"]},
            {"name": "n2", "gres": "gpu:8", "state": ["DOWN"]},
            {"name": "n3", "gres": "gpu:8", "state": ["DOWN"]},
        ]
    }
)


def resolve(folder: Path, text: str, **given: Any) -> tuple[Cluster | None, list[str]]:
    """Return the cluster, and ``CODE path: message`` per finding."""
    (folder / "file").write_text(text, encoding="utf-8")
    sink = Sink(SpecPositions())
    whole = {"node": "dgx-h100", "topology": "file", **given}
    spec = ClusterSpec.model_validate_json(json.dumps(whole))
    cluster = resolve_cluster(spec, Library(folder), sink)
    return cluster, [
        f"{one.code.removeprefix('PARC-')} {one.path}: {one.finding.message}"
        for one in sink.diagnostics
    ]


def test_racks_and_tiers_are_read_from_the_file(tmp_path: Path) -> None:
    cluster, reported = resolve(tmp_path, TREE)
    assert reported == []
    assert cluster is not None
    assert [(host.name, host.switch_path) for host in cluster.hosts] == [
        ("n1", ("leaf1", "core")),
        ("n3", ("leaf1", "core")),
        ("n2", ("leaf2", "core")),
        ("n4", ("leaf2", "core")),
    ]
    assert [level.name for level in cluster.switch_tiers] == ["leaf", "spine"]
    assert cluster.named


def test_levels_spare_and_unavailable_of_the_spec_override_the_file(tmp_path: Path) -> None:
    levels = [{"name": "rack", "oversubscription": 3}, {"name": "hall"}]
    cluster, reported = resolve(tmp_path, TREE, levels=levels, spare="n1", unavailable="n[2,3]")
    assert reported == []
    assert cluster is not None
    assert cluster.fabric.oversubscription == 3
    assert [level.name for level in cluster.upper] == ["hall"]
    assert [host.name for host in cluster.spare] == ["n1"]
    assert [host.name for host in cluster.hosts] == ["n4"]


def test_hosts_that_are_down_in_the_file_are_unavailable_once(tmp_path: Path) -> None:
    cluster, reported = resolve(tmp_path, NODES, unavailable=["n2"])
    assert reported == []
    assert cluster is not None
    assert cluster.unavailable == ("n2", "n3")
    cluster, reported = resolve(tmp_path, NODES, spare="n3")
    assert reported == []
    assert cluster is not None
    assert [host.name for host in cluster.spare] == ["n3"]


def test_a_node_type_in_the_file_need_not_be_in_the_spec(tmp_path: Path) -> None:
    instance = {"InstanceId": "i-1", "InstanceType": "p5.48xlarge", "NetworkNodes": ["a", "b"]}
    cluster, reported = resolve(tmp_path, json.dumps({"Instances": [instance]}), node=None)
    assert reported == []
    assert cluster is not None
    assert cluster.node.name == "aws-p5"


def test_another_number_of_gpus_than_the_node_type_has_is_reported(tmp_path: Path) -> None:
    cluster, reported = resolve(tmp_path, NODES.replace("gpu:8", "gpu:4"))
    assert cluster is None
    assert reported == [
        "H07 cluster.topology: the topology file has 4 GPUs per host, but node type dgx-h100 has 8"
    ]


def test_a_domain_wider_than_the_node_type_is_reported(tmp_path: Path) -> None:
    layer = {"network_layers": ["l"], "labels": {"accelerator.topograph.run/domain": "d"}}
    graph = {"instances": [{"id": name, **layer} for name in ("n1", "n2")]}
    cluster, reported = resolve(tmp_path, json.dumps(graph, indent=1))
    assert cluster is None
    assert reported == [
        "H07 cluster.racks[0].nvlink_domain: NVLink domain d has 2 hosts with 8 GPUs each",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": 4}, "H04 cluster.nodes: the cluster sets both nodes and topology"),
        (
            {"racks": [{"name": "r", "nodes": "n1"}]},
            "H04 cluster.racks: the cluster sets both racks and topology",
        ),
        (
            {"topology": None, "topology_format": "aws"},
            "H04 cluster.topology_format: topology_format is set without topology",
        ),
        (
            {"topology": "missing"},
            "K07 cluster.topology: missing cannot be read: No such file or directory",
        ),
        ({"topology_format": "aws"}, "I02 : the file is text, expected a mapping"),
        ({"spare": "n9"}, "H03 cluster.spare: n9 is not among the 4 hosts"),
    ],
)
def test_a_contradiction_is_reported(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    cluster, found = resolve(tmp_path, TREE, **given)
    assert cluster is None
    assert len(found) == 1
    assert found[0].startswith(message)


def test_a_matrix_of_one_host_contains_no_host_name(tmp_path: Path) -> None:
    cluster, reported = resolve(tmp_path, "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    assert cluster is None
    assert reported == ["I02 cluster.topology: file contains no hosts"]


def test_findings_about_racks_point_to_the_line_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.conf").write_text(TREE.replace("leaf2", "leaf2 "), encoding="utf-8")
    spec = (
        "parc: 1\nname: a\nmodel: llama-3-8b\ncluster: {node: dgx-h100, topology: t.conf}\n"
        "job: {sequence_length: 8192, global_batch: 64}\n"
    )
    sink = Sink()
    text = TREE.replace("Nodes=n[2,4]", "Nodes=n[2,").encode()
    (tmp_path / "t.conf").write_bytes(text)
    assert resolve_spec(SpecSource("spec.yaml", spec, tmp_path), (), sink) is None
    assert [found.span for found in sink.diagnostics] == [Span("t.conf", 2, 25)]
    assert sink.positions.lines["t.conf"][1] == "SwitchName=leaf2 Nodes=n[2,"


def test_specs_with_different_topology_files_have_different_digests(
    tmp_path: Path,
) -> None:
    digests = []
    for text in (TREE, TREE.replace("n[1,3]", "n[1,2]").replace("n[2,4]", "n[3,4]")):
        (tmp_path / "t.conf").write_text(text, encoding="utf-8")
        spec = (
            "parc: 1\nname: a\nmodel: llama-3-8b\ncluster: {node: dgx-h100, topology: t.conf}\n"
            "job: {sequence_length: 8192, global_batch: 64}\n"
        )
        problem = resolve_spec(SpecSource("spec.yaml", spec, tmp_path), (), Sink())
        assert problem is not None
        digests.append(problem.digest)
    assert digests[0] != digests[1]
