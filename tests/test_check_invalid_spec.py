"""Mistakes in an invalid section are reported in one run; numbers of GPUs get matching hosts."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.fixes import overrides_of_fix
from tests.compiled import Spec, changed, resolved, source_of

SPEC: Spec = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "hgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 96},
}


def findings(spec: Spec) -> set[tuple[str, str]]:
    _, sink = resolved(spec)
    return {(one.code.removeprefix("PARC-"), one.path) for one in sink.diagnostics}


def test_an_invalid_cluster_section_is_still_checked_for_names() -> None:
    cluster = {"gpu": "h100", "node": "x", "fabric": "y", "nodes": 0, "nodez": 3}
    assert findings(changed(SPEC, {"cluster": cluster})) == {
        ("K01", "cluster.gpu"),
        ("K01", "cluster.node"),
        ("K01", "cluster.fabric"),
        ("X11", "cluster.nodes"),
        ("X01", "cluster.nodez"),
    }
    nested = {"node": {"base": "x", "q": 1}, "gpu": {"base": "h100"}, "fabric": {"base": 3}}
    assert findings(changed(SPEC, {"cluster": nested})) == {
        ("K01", "cluster.node.base"),
        ("K01", "cluster.gpu.base"),
        ("X01", "cluster.node.q"),
        ("X02", "cluster.fabric.base"),
    }


def test_all_names_of_a_valid_cluster_section_are_checked() -> None:
    cluster: Spec = {"gpu": "h100", "node": "x", "fabric": "y", "nodes": 1}
    paths = {("K01", f"cluster.{key}") for key in ("gpu", "node", "fabric")}
    assert findings(changed(SPEC, {"cluster": cluster})) == paths
    del cluster["node"]
    assert findings(changed(SPEC, {"cluster": cluster})) == {
        ("K01", "cluster.gpu"),
        ("K01", "cluster.fabric"),
        ("H05", "cluster"),
    }


def test_targets_for_another_kind_of_job_are_reported_with_other_mistakes() -> None:
    spec = changed(SPEC, {"job.steps": 0, "emit": ["megatron", "fsdp", "vllm"]})
    expected = {("X11", "job.steps"), ("X21", "emit[2]"), ("X22", "emit[1]")}
    assert findings(spec) == expected
    # A key of services might mean that kind: serve is missing, so its targets may be right.
    assert ("X21", "emit[2]") not in findings(changed(spec, {"job.traffic": {}}))


def test_targets_are_checked_besides_other_mistakes() -> None:
    for other in ({"cluster.node": "x"}, {"model": "x"}, {"cluster.nodes": 0}, {"job.x": 1}):
        found = findings(changed(SPEC, {**other, "emit": ["torch", "slurm", "slurm"]}))
        assert {("X16", "emit[0]"), ("X17", "emit[2]")} < found
        assert len(found) == 3
    assert findings(changed(SPEC, {"cluster.nodes": 0, "emit": [3]})) == {
        ("X11", "cluster.nodes"),
        ("X02", "emit[0]"),
    }


@pytest.mark.parametrize(
    ("name", "names", "fix"),
    [
        ("h100", "h100-sxm-80gb or h100-sxm-96gb or h100-pcie-80gb or h100-nvl-94gb", "set "),
        ("nvidia_a100_40gb", "a100-sxm-40gb or a100-pcie-40gb", "set "),
        ("h100-pcie", "h100-pcie-80gb", "cluster.gpu: h100-pcie-80gb"),
        ("xyz", "`parc catalog gpus` lists the valid names", ""),
    ],
)
def test_a_gpu_name_of_several_gpus_gets_the_catalog_names(name: str, names: str, fix: str) -> None:
    _, sink = resolved(changed(SPEC, {"cluster.gpu": name}))
    (found,) = sink.diagnostics
    assert names in found.finding.help
    assert found.finding.fix.startswith(fix) if fix else not found.finding.fix


@pytest.mark.parametrize(
    ("cluster", "gpus", "hosts"),
    [
        ({"node": "hgx-h100", "gpus": 4}, 4, 1),
        ({"node": "hgx-h100", "gpus": 1}, 1, 1),
        ({"node": "hgx-h100", "gpus": 16}, 16, 2),
        ({"node": "hgx-h100", "gpus": 12}, 12, 2),
        ({"node": "hgx-h100", "gpus": 8, "nodes": 1}, 8, 1),
        ({"node": {"base": "hgx-h100", "gpus_per_node": 4}, "gpus": 8}, 8, 2),
        ({"node": "gh200-quad", "num_gpus": 8}, 8, 2),
        ({"gpu": "h200-sxm-141gb", "gpus": 4}, 4, 1),
        ({"gpu": "h200-sxm-141gb", "gpus": 32}, 32, 4),
    ],
)
def test_a_number_of_gpus_becomes_hosts_with_this_number(
    cluster: dict[str, Any], gpus: int, hosts: int
) -> None:
    source = source_of(changed(SPEC, {"cluster": cluster}))
    sink = Sink()
    assert resolve_spec(source, (), sink) is None
    (found,) = sink.diagnostics
    problem = resolve_spec(source, overrides_of_fix(found.finding.fix), Sink())
    assert problem is not None
    assert (problem.cluster.gpus, problem.cluster.nodes) == (gpus, hosts)


@pytest.mark.parametrize(
    "cluster",
    [
        {"node": "hgx-h100", "gpus": 5, "nodes": 2},
        {"node": "hgx-h100", "gpus": 8, "nodes": 2},
        {"node": "x", "gpus": 4},
        {"gpu": "h100", "gpus": 4},
        {"gpus": 4},
        {"node": "hgx-h100", "gpus": "many"},
        {"node": "hgx-h100", "gpus": 4, "racks": [{"name": "r", "nodes": "a[1-2]"}]},
    ],
)
def test_a_number_of_gpus_without_certain_hosts_gets_no_fix(cluster: dict[str, Any]) -> None:
    _, sink = resolved(changed(SPEC, {"cluster": cluster}))
    found = next(one for one in sink.diagnostics if one.code == "PARC-X01")
    assert not found.finding.fix
    assert "1 hosts" not in found.finding.help


def test_the_example_of_a_missing_cluster_has_the_gpus_of_the_spec() -> None:
    spec = {key: value for key, value in SPEC.items() if key != "cluster"} | {"gpus": 4}
    _, sink = resolved(spec)
    missing = next(one for one in sink.diagnostics if one.code == "PARC-X08")
    example = "cluster: {node: {base: dgx-h100, gpus_per_node: 4}, nodes: 1}"
    assert missing.finding.fix == f"set cluster, for example {example}"
