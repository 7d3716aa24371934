"""Tests of ``parc init --from-kubernetes``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.specs import parc

pytestmark = pytest.mark.usefixtures("few_requests")


def kubernetes_nodes(product: str = "NVIDIA-H100-80GB-HBM3", **labels: str) -> str:
    """Return the list of two Kubernetes nodes with 8 GPUs each."""
    own = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "8", **labels}
    nodes = [{"kind": "Node", "metadata": {"name": name, "labels": own}} for name in ("a1", "a2")]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})


def test_hosts_come_from_a_list_of_kubernetes(tmp_path: Path) -> None:
    names = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    nodes = tmp_path / "nodes.json"
    nodes.write_text(kubernetes_nodes(**names), encoding="utf-8")
    options = ("--model", "qwen3-0.6b", "--gpus", "8", "--image", "me/train:1")
    result = parc("init", "--from-kubernetes", str(nodes), *options)
    assert result.exit_code == 0, result.output
    assert "node: aws-p5\n" in result.stdout
    assert "nodes: a1}" in result.stdout
    assert '"me/train:1"' in result.stdout
    assert "emit: [kubernetes, megatron, rankmap]" in result.stdout
    served = parc("init", "--kind", "serve", "--from-kubernetes", str(nodes), *options[:4])
    assert 'image: "vllm/vllm-openai:v0.33.0"' in served.stdout


def test_pods_on_several_hosts_request_the_devices_of_the_network(tmp_path: Path) -> None:
    listed = json.loads(kubernetes_nodes())
    for node in listed["items"]:
        node["status"] = {"allocatable": {"rdma/ib": "1k"}}
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(listed), encoding="utf-8")
    words = ("init", "--from-kubernetes", str(nodes), "--model", "llama-3-8b", "--image", "me:1")
    text = parc(*words).stdout
    assert '{image: "me:1", resources: {rdma/ib: "1"}}' in text
    assert "L45" not in parc("check", "-", given=text).stderr
    assert "rdma" not in parc(*words, "--gpus", "8").stdout
    with_site = parc(*words, "--preset", "kubernetes-roce").stdout
    assert "rdma" not in with_site


def test_labels_of_nvlink_domains_are_not_used_for_hosts_without_shared_nvlink(
    tmp_path: Path,
) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(
        kubernetes_nodes(**{"nvidia.com/gpu.clique": "one.1", "example.com/x": "y"}), "utf-8"
    )
    words = ("--from-kubernetes", str(nodes), "--model", "qwen3-0.6b")
    text = parc("init", *words).stdout
    assert 'nodes: "a[1-2]"' in text
    assert "nvlink_domain" not in text
    assert parc("check", "-", given=text).exit_code == 0
    nodes.write_text(
        kubernetes_nodes("NVIDIA-GB200", **{"nvidia.com/gpu.clique": "one.1"}).replace('"8"', '"4"')
    )
    assert "nvlink_domain: one.1" in parc("init", *words).stdout
