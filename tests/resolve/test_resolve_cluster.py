from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Diagnostic, Sink, Span, SpecPositions
from parc.compiler.diagnostics.codes import CodeInfo, codes_with_letter
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Cluster, Host
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.reading.source import SpecSource

TEXT = (Path(__file__).parent / "cases" / "resolve_cluster.yaml").read_text("utf-8")
CASES = parse_table(TEXT)
LIBRARY = Library()
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


def resolve(given: dict[str, Any], sink: Sink | None = None) -> tuple[Cluster | None, Sink]:
    sink = sink or Sink()
    spec = ClusterSpec.model_validate_json(json.dumps(given))
    return resolve_cluster(spec, LIBRARY, sink), sink


def shown(cluster: Cluster) -> list[str]:
    """Return one line per rack, then spare and unavailable hosts; ``host@NVLink domain``."""

    def words(hosts: tuple[Host, ...]) -> str:
        return " ".join(f"{host.name}@{host.nvlink_domain}" for host in hosts)

    lines = [f"{rack.name}: {words(rack.hosts)}" for rack in cluster.racks]
    if cluster.spare:
        lines.append(f"spare: {words(cluster.spare)}")
    if cluster.unavailable:
        lines.append(f"unavailable: {' '.join(cluster.unavailable)}")
    return lines


def matches(found: Diagnostic, expected: str) -> bool:
    """Return True if ``found`` is ``CODE path: part of message | part of help or fix``.

    ``cause PATH`` in place of the help is the path of a cause.
    """
    head, _, rest = expected.partition(": ")
    message, _, hint = rest.partition(" |")
    hints = [
        *(found.finding.help, found.finding.fix),
        *(f"cause {cause.path}" for cause in found.finding.causes),
    ]
    return (
        head == f"{found.code.removeprefix('PARC-')} {found.path}"
        and message in found.finding.message
        and any(hint.strip() in text for text in hints)
    )


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_a_cluster_becomes_hosts_or_diagnostics(case: dict[str, Any]) -> None:
    cluster, sink = resolve(case["given"])
    found = sorted(sink.diagnostics, key=lambda item: (item.code, item.path, item.finding.message))
    expected = case.get("expect", [])
    assert [item for item in zip(found, expected, strict=True) if not matches(*item)] == []
    assert (cluster is None) == bool(expected)
    assert cluster is None or shown(cluster) == case["hosts"]


def test_changes_over_a_base_keep_the_other_facts_and_are_named_in_the_source() -> None:
    gpu = {"base": "h100-sxm-80gb", "peak_tflops": {"bf16": 800.0}}
    cluster, _ = resolve({"node": "dgx-h100", "gpu": gpu, "nodes": 1})
    assert cluster is not None
    assert cluster.gpu.peak_rate("bf16") == 800.0
    assert cluster.gpu.peak_rate("fp8") == 1978.9
    assert cluster.gpu.compute_capability == (9, 0)
    assert cluster.gpu.name == "h100-sxm-80gb (changed)"
    assert cluster.gpu.source.endswith("; changed: peak_tflops")


def test_a_hardware_file_with_a_base_equals_a_mapping_with_it(tmp_path: Path) -> None:
    (tmp_path / "gpu.yaml").write_text("base: h100-sxm-80gb\nmemory: 90GB\n")
    (tmp_path / "node.yaml").write_text("base: dgx-h100\nnics: 4\n")
    gpu, node = {"base": "h100-sxm-80gb", "memory": "90GB"}, {"base": "dgx-h100", "nics": 4}
    library = Library(tmp_path, tmp_path)
    found = [
        resolve_cluster(ClusterSpec.model_validate_json(json.dumps(tree)), library, Sink())
        for tree in (
            {"node": "node.yaml", "gpu": "gpu.yaml", "nodes": 2},
            {"node": node, "gpu": gpu, "nodes": 2},
        )
    ]
    assert found[0] is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("base", ["dgx-h1000", "node.yaml", "other.yaml"])
def test_a_hardware_file_may_start_only_from_a_catalog_entry(tmp_path: Path, base: str) -> None:
    (tmp_path / "node.yaml").write_text(f"base: {base}\nnics: 4\n")
    sink = Sink()
    spec = ClusterSpec.model_validate_json('{"node": "node.yaml", "nodes": 2}')
    assert resolve_cluster(spec, Library(tmp_path, tmp_path), sink) is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-K08"
    assert f"node.yaml: base: the catalog has no node type '{base}'" in found.finding.message


def test_a_change_of_counts_updates_the_facts_that_depend_on_it() -> None:
    cluster, _ = resolve({"node": {"base": "dgx-h100", "gpus_per_node": 4, "nics": 4}, "nodes": 2})
    assert cluster is not None
    assert (cluster.node.nvlink_domain, cluster.node.nic_names) == (4, ())
    assert [host.nvlink_domain for host in cluster.hosts] == ["node0001", "node0002"]


def test_hardware_written_in_full_needs_no_catalog() -> None:
    cluster, sink = resolve(
        {
            "gpu": {
                "name": "x1",
                "vendor": "amd",
                "generation": "cdna3",
                "memory": 100.0,
                "memory_gb_per_s": 4000,
                "peak_tflops": {"fp8": 2.0, "bf16": 1.0},
            },
            "node": {
                "gpus_per_node": 4,
                "nvlink_domain": 4,
                "link_gb_per_s": 100,
                "link_kind": "xgmi",
                "nics": 2,
                "nic_speed": 400,
                "cpu_cores": 64,
            },
            "fabric": {"kind": "ethernet", "latency": 1e-5, "oversubscription": 2},
            "nodes": 1,
        }
    )
    assert cluster is not None, sink.diagnostics
    assert cluster.gpu.memory_bytes == 100_000_000_000
    assert cluster.gpu.peak_tflops == (("bf16", 1.0), ("fp8", 2.0))
    assert cluster.node.network_gb_per_s_per_gpu == 25.0
    assert (cluster.node.name, cluster.fabric.source) == ("custom", "the spec")


@pytest.mark.parametrize("info", codes_with_letter("H").values(), ids=codes_with_letter("H"))
def test_the_bad_example_of_a_code_violates_it_and_the_good_one_no_rule(info: CodeInfo) -> None:
    def codes(example: str) -> set[str]:
        tree = parse_table(example)
        given = {"node": "dgx-h100", **tree.get("cluster", tree)}
        given = given if {"nodes", "racks"} & set(given) else {**given, "nodes": 1}
        return {found.code for found in resolve(given)[1].diagnostics}

    assert codes(info.bad) == {f"PARC-{info.code}"}
    assert codes(info.good) == set()


def test_an_invalid_character_is_underlined_at_its_position() -> None:
    line = '  spare: ["n1", "n[1,x]"]'
    place = Span("spec.yaml", 1, 17, 8)
    positions = SpecPositions(
        "spec.yaml", values={"cluster.spare[1]": place}, lines={"spec.yaml": (line,)}
    )
    given = {"node": "dgx-h100", "racks": [{"name": "r", "nodes": "n[1-2]"}]}
    _, sink = resolve({**given, "spare": ["n1", "n[1,x]"]}, Sink(positions))
    assert [found.span for found in sink.diagnostics] == [Span("spec.yaml", 1, line.index("x") + 1)]


@pytest.mark.parametrize("form", ["racks", "nodes"])
def test_sixteen_thousand_hosts_resolve_within_a_second(form: str) -> None:
    racks = [{"name": f"r{rack}", "nodes": f"r{rack}n[01-16]"} for rack in range(1024)]
    hosts = {"racks": racks} if form == "racks" else {"nodes": 16384, "nodes_per_rack": 16}
    start = time.process_time()
    cluster, _ = resolve({"node": "dgx-h100", **hosts})
    seconds = time.process_time() - start
    assert cluster is not None
    assert cluster.gpus == 131_072
    assert seconds < 1  # measured: 0.04; the margin is for a busy machine


def resolve_file(folder: Path, text: str, **given: Any) -> tuple[Cluster | None, list[str]]:
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
    cluster, reported = resolve_file(tmp_path, TREE)
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
    cluster, reported = resolve_file(
        tmp_path, TREE, levels=levels, spare="n1", unavailable="n[2,3]"
    )
    assert reported == []
    assert cluster is not None
    assert cluster.fabric.oversubscription == 3
    assert [level.name for level in cluster.upper] == ["hall"]
    assert [host.name for host in cluster.spare] == ["n1"]
    assert [host.name for host in cluster.hosts] == ["n4"]


def test_hosts_that_are_down_in_the_file_are_unavailable_once(tmp_path: Path) -> None:
    cluster, reported = resolve_file(tmp_path, NODES, unavailable=["n2"])
    assert reported == []
    assert cluster is not None
    assert cluster.unavailable == ("n2", "n3")
    cluster, reported = resolve_file(tmp_path, NODES, spare="n3")
    assert reported == []
    assert cluster is not None
    assert [host.name for host in cluster.spare] == ["n3"]


def test_a_node_type_in_the_file_need_not_be_in_the_spec(tmp_path: Path) -> None:
    instance = {"InstanceId": "i-1", "InstanceType": "p5.48xlarge", "NetworkNodes": ["a", "b"]}
    cluster, reported = resolve_file(tmp_path, json.dumps({"Instances": [instance]}), node=None)
    assert reported == []
    assert cluster is not None
    assert cluster.node.name == "aws-p5"


def test_another_number_of_gpus_than_the_node_type_has_is_reported(tmp_path: Path) -> None:
    cluster, reported = resolve_file(tmp_path, NODES.replace("gpu:8", "gpu:4"))
    assert cluster is None
    assert reported == [
        "H07 cluster.topology: the topology file has 4 GPUs per host, but node type dgx-h100 has 8"
    ]


def test_a_domain_wider_than_the_node_type_is_reported(tmp_path: Path) -> None:
    layer = {"network_layers": ["l"], "labels": {"accelerator.topograph.run/domain": "d"}}
    graph = {"instances": [{"id": name, **layer} for name in ("n1", "n2")]}
    cluster, reported = resolve_file(tmp_path, json.dumps(graph, indent=1))
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
    cluster, found = resolve_file(tmp_path, TREE, **given)
    assert cluster is None
    assert len(found) == 1
    assert found[0].startswith(message)


def test_a_matrix_of_one_host_contains_no_host_name(tmp_path: Path) -> None:
    cluster, reported = resolve_file(tmp_path, "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
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
