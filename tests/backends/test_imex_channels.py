"""Pods that use NVLink between hosts need a claim of an IMEX channel (L40)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiled import Spec, changed, findings_of

BASE: Spec = {
    "parc": 1,
    "name": "imex",
    "model": "llama-3-8b",
    "cluster": {"node": "gb200-nvl72", "nodes": 4, "nodes_per_rack": 4},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "emit": ["fsdp", "kubernetes"],
    "launch": {"kubernetes": {"image": "image"}},
}
SERVICE = {
    "job": {"kind": "serve", "traffic": {"input_tokens": 9, "output_tokens": 9}},
    "layout": {"tp": 8},
    "emit": ["vllm", "kubernetes"],
}


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({}, True),
        (SERVICE, True),
        ({"cluster.nodes": 1, "cluster.nodes_per_rack": 1}, False),
        ({"cluster": {"node": "dgx-h100", "nodes": 4}}, False),
        ({"emit": ["fsdp", "slurm"]}, False),
        ({"launch.env": {"NCCL_MNNVL_ENABLE": "1"}}, False),
        ({"launch.env": {"NCCL_MNNVL_ENABLE": {"from": "environment"}}}, False),
    ],
)
def test_pods_of_a_domain_over_several_hosts_are_reported(
    settings: dict[str, Any], reported: bool
) -> None:
    assert bool(findings_of(changed(BASE, settings), "PARC-L40")) is reported
