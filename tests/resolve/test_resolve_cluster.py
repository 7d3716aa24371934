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
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec

TEXT = (Path(__file__).parent / "cases" / "resolve_cluster.yaml").read_text("utf-8")
CASES = parse_table(TEXT)
LIBRARY = Library()


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
