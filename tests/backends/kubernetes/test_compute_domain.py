"""Pods that use NVLink between hosts claim the IMEX channels of a ComputeDomain."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.compiled import (
    Files,
    Spec,
    changed,
    emitted,
    findings_of,
    planned,
    verification_codes,
)

TRAINED: Spec = {
    "parc": 1,
    "name": "imex",
    "model": "llama-3-8b",
    "cluster": {"node": "gb200-nvl72", "nodes": 4, "nodes_per_rack": 4},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "emit": ["fsdp", "kubernetes"],
    "launch": {"kubernetes": {"image": "image", "namespace": "research"}},
}
SERVED = changed(
    TRAINED,
    {
        "job": {"kind": "serve", "traffic": {"input_tokens": 9, "output_tokens": 9}},
        "layout": {"tp": 8},
        "emit": ["vllm", "kubernetes"],
    },
)
CHOICE = "launch.kubernetes.compute_domain"
CLUSTER = {"node": "dgx-h100", "nodes": 4}
NAMED_HOSTS = {"node": "gb200-nvl72", "racks": [{"name": "r", "nodes": "n[1-4]"}]}


def files_of(spec: Spec) -> Files:
    """Return the files of a training job or a service."""
    plan, _ = planned(spec)
    assert plan is not None
    return emitted(plan)


def manifest_of(files: Files) -> str:
    """Return the path of the only manifest among ``files``."""
    (path,) = (one for one in files if one.startswith("kubernetes/"))
    return path


def objects_of(files: Files) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(files[manifest_of(files)]))


def pods_of(value: Any) -> list[dict[str, Any]]:
    """Return the specs of all pods in ``value``."""
    if isinstance(value, dict):
        return [value] if "containers" in value else pods_of(list(value.values()))
    return [pod for one in value for pod in pods_of(one)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [
        (TRAINED, 4),
        (changed(TRAINED, {"cluster": NAMED_HOSTS}), 4),
        (SERVED, 4),
        (changed(SERVED, {"cluster": NAMED_HOSTS}), 4),
        (changed(TRAINED, {"launch.env": {"NCCL_MNNVL_ENABLE": {"from": "environment"}}}), 4),
        (changed(TRAINED, {"launch.env": {"NCCL_MNNVL_ENABLE": "0"}, CHOICE: True}), 4),
        (changed(TRAINED, {"launch.env": {"NCCL_MNNVL_ENABLE": "0"}}), 0),
        (changed(TRAINED, {CHOICE: False}), 0),
        (changed(TRAINED, {"cluster": CLUSTER}), 0),
        (changed(TRAINED, {"cluster": {"node": "gb200-nvl72", "nodes": 1}}), 0),
        (changed(SERVED, {"layout.tp": 4}), 0),
    ],
)
def test_every_pod_claims_a_channel_of_the_compute_domain(spec: Spec, hosts: int) -> None:
    files = files_of(spec)
    objects, pods = objects_of(files), pods_of(objects_of(files))
    domains = [one for one in objects if one["kind"] == "ComputeDomain"]
    assert pods
    assert verification_codes(files) == set()
    if not hosts:
        assert domains == []
        assert not any("resourceClaims" in pod for pod in pods)
        return
    (domain,) = domains
    assert domain["metadata"] == {"name": "imex", "namespace": "research"}
    assert domain["spec"]["numNodes"] == hosts
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    for pod in pods:
        (claim,) = pod["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == template
        assert pod["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]


@pytest.mark.parametrize("spec", [TRAINED, SERVED])
def test_a_claim_without_a_channel_is_named(spec: Spec) -> None:
    files = files_of(spec)
    path = manifest_of(files)
    text = files[path]
    documents = text.split("---\n")
    without = "---\n".join(one for one in documents if "kind: ComputeDomain" not in one)
    for damaged in (
        without,
        text.replace("numNodes: 4", "numNodes: 2"),
        text.replace("resourceClaimTemplateName: imex-imex", "resourceClaimTemplateName: other", 1),
    ):
        assert damaged != text
        assert verification_codes({**files, path: damaged}), damaged


@pytest.mark.parametrize(
    "spec",
    [
        changed(TRAINED, {"cluster": CLUSTER, CHOICE: True}),
        changed(TRAINED, {"cluster": {"node": "gb200-nvl72", "nodes": 1}, CHOICE: False}),
        changed(SERVED, {"layout.tp": 4, CHOICE: True}),
    ],
)
def test_a_choice_without_nvlink_between_hosts_is_reported(spec: Spec) -> None:
    (found,) = findings_of(spec, "PARC-E13")
    assert CHOICE in found.message
