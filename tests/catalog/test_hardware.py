from itertools import chain

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Cluster
from parc.compiler.resolve.check_hardware import PRECISIONS
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec

LIBRARY = Library()
ENTRIES = [
    (kind, name)
    for kind in ("clusters", "fabrics", "gpus", "nodes")
    for name in LIBRARY.names(kind)
]
MIB_TO_GB = 1.048576e-3


def cluster(**spec: object) -> Cluster:
    sink = Sink()
    found = resolve_cluster(ClusterSpec.model_validate(spec), LIBRARY, sink)
    assert found is not None, sink.diagnostics
    return found


def test_the_catalog_is_as_wide_as_promised() -> None:
    assert len(LIBRARY.names("gpus")) >= 22
    assert len(LIBRARY.names("nodes")) >= 12
    assert len(LIBRARY.names("fabrics")) >= 8
    assert len(LIBRARY.names("clusters")) >= 5


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_is_complete_in_itself_and_names_its_source(kind: str, name: str) -> None:
    entry = LIBRARY.entry(kind, name)
    assert len(entry["source"]) > 10
    assert "base" not in entry
    assert "name" not in entry


@pytest.mark.parametrize("name", LIBRARY.names("nodes"))
def test_every_node_type_resolves_with_the_hardware_it_is_sold_with(name: str) -> None:
    found = cluster(node=name, nodes=2)
    assert found.node.name == name
    assert found.node.network_gb_per_s_per_gpu > 0
    assert found.gpus == 2 * found.node.gpus
    assert (found.node.link_kind == "xgmi") == (found.gpu.vendor == "amd")


@pytest.mark.parametrize("name", LIBRARY.names("gpus"))
def test_every_gpu_resolves_with_plausible_figures(name: str) -> None:
    gpu = cluster(
        gpu=name,
        node={"base": "mi300x-8" if name.startswith("mi") else "hgx-h100"},
        nodes=1,
    ).gpu
    marketing_gb = float(name.rsplit("-", 1)[1].removesuffix("gb"))
    # the driver keeps a part; a marketing GB is a GiB on most of these cards
    assert 0.93 * marketing_gb < gpu.memory_bytes / 1e9 < 1.08 * marketing_gb
    assert {precision for precision, _ in gpu.peak_tflops} <= set(PRECISIONS)
    assert (gpu.vendor == "amd") == (gpu.compute_capability == (0, 0))
    fp16, fp8 = gpu.peak_rate("fp16"), gpu.peak_rate("fp8")
    assert fp16 is not None
    assert fp8 is None or fp8 == pytest.approx(2 * fp16, rel=0.02)


def test_only_hardware_that_has_a_precision_states_a_peak_for_it() -> None:
    for name in LIBRARY.names("gpus"):
        gpu = LIBRARY.entry("gpus", name)
        peaks, generation = gpu["peak_tflops"], gpu["generation"]
        assert ("bf16" in peaks) == (generation != "volta"), name
        assert ("fp8" in peaks) == (generation not in {"volta", "ampere", "cdna2"}), name
        assert "mxfp8" not in peaks or generation in {"blackwell", "cdna4"}, name
        assert ("nvfp4" in peaks) == (generation == "blackwell"), name


@pytest.mark.parametrize(
    ("name", "mib", "bf16"),
    [
        ("a100-sxm-80gb", 81920, 312),
        ("h100-sxm-80gb", 81559, 989.4),
        ("h200-sxm-141gb", 143771, 989.4),
        ("b200-180gb", 183359, 2250),
        ("gb200-186gb", 189471, 2500),
        ("mi300x-192gb", 196592, 1307.4),
    ],
)
def test_published_figures_stand_in_the_catalog(name: str, mib: int, bf16: float) -> None:
    entry = LIBRARY.entry("gpus", name)
    assert entry["memory"] == pytest.approx(mib * MIB_TO_GB, abs=1e-3)
    assert entry["peak_tflops"]["bf16"] == bf16


@pytest.mark.parametrize(
    ("name", "gpus", "domain", "gb_per_s"),
    [
        ("dgx-a100", 8, 8, 25.0),
        ("dgx-h100", 8, 8, 50.0),
        ("dgx-b300", 8, 8, 100.0),
        ("gb200-nvl72", 4, 72, 50.0),
        ("gb300-nvl72", 4, 72, 100.0),
        ("h100-pcie-8", 8, 2, 25.0),
        ("l40s-8", 8, 1, 12.5),
        ("aws-p5", 8, 8, 50.0),
        ("frontier", 8, 8, 12.5),
    ],
)
def test_node_types_have_the_published_shape(
    name: str, gpus: int, domain: int, gb_per_s: float
) -> None:
    node = cluster(node=name, nodes=1).node
    assert (node.gpus, node.nvlink_domain) == (gpus, domain)
    assert node.network_gb_per_s_per_gpu == gb_per_s


@pytest.mark.parametrize("name", LIBRARY.names("clusters"))
def test_every_cluster_resolves_by_name_and_as_a_base(name: str) -> None:
    sink = Sink()
    found = resolve_cluster(name, LIBRARY, sink)
    assert found is not None, sink.diagnostics
    assert not found.named
    assert cluster(base=name) == found
    assert cluster(base=name, nodes=1).nodes == 1


def test_published_clusters_have_the_published_number_of_gpus() -> None:
    sizes = {"selene": 4480, "deepseek-h800": 2048, "llama3-24k": 24576, "eos": 4608}
    for name, gpus in sizes.items():
        assert cluster(base=name).gpus == gpus


def test_what_a_node_type_is_sold_with_is_in_the_catalog() -> None:
    nodes = [LIBRARY.entry("nodes", name) for name in LIBRARY.names("nodes")]
    assert {node["gpu"] for node in nodes} <= set(LIBRARY.names("gpus"))
    assert {node["fabric"] for node in nodes} <= set(LIBRARY.names("fabrics"))
    names = chain.from_iterable(node.get("nic_names", ()) for node in nodes)
    assert all(name.startswith("mlx5_") for name in names)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("mi300x-4", "cluster.node: {base: mi300x-8, gpus_per_node: 4}"),
        ("dgx-a-100", "cluster.node: dgx-a100"),
        ("dgx h100", "cluster.node: dgx-h100"),
        # The only entry with this part in its name.
        ("gb200", "cluster.node: gb200-nvl72"),
        ("p5.48xlarge", "cluster.node: aws-p5"),
        ("ml.p5.48xlarge", "cluster.node: aws-p5"),
        # Other hardware with a similar name.
        ("dgx-gb200", ""),
        ("mi300-8", ""),
        ("dgx-h10", ""),
        ("h200", ""),
    ],
)
def test_an_unknown_node_type_gets_a_fix_only_if_it_means_one_entry(name: str, fix: str) -> None:
    sink = Sink()
    assert resolve_cluster(ClusterSpec(node=name, nodes=1), LIBRARY, sink) is None
    assert [one.finding.fix for one in sink.diagnostics] == [fix]
