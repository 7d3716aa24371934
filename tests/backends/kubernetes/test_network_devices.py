"""Pods of several hosts without devices of the network are reported (L45)."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.compiled import Spec, changed, files_of, findings_of, verification_codes

TRAINED: Spec = {
    "parc": 1,
    "name": "devices",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "emit": ["fsdp", "kubernetes"],
    "launch": {"kubernetes": {"image": "image"}},
}
SERVED = {
    "job": {"kind": "serve", "traffic": {"input_tokens": 9, "output_tokens": 9}},
    "emit": ["vllm", "kubernetes"],
}
JOB = "launch.kubernetes"


@pytest.mark.parametrize(
    ("changes", "fixes"),
    [
        ({}, [""]),
        ({f"{JOB}.resources": {"memory": "1Ti"}}, [""]),
        ({f"{JOB}.resources": {"rdma/hca": "8"}}, []),
        ({f"{JOB}.annotations": {"networks.example.com/interfaces": "rdma"}}, []),
        ({f"{JOB}.privileged": True}, []),
        ({"cluster.nodes": 1}, []),
        ({"cluster.fabric": {"base": "infiniband-ndr", "kind": "ethernet"}}, []),
        ({"cluster.node": "aws-p5"}, [f'{JOB}.resources: {{vpc.amazonaws.com/efa: "32"}}']),
        ({**SERVED, "layout": {"tp": 8, "pp": 2}}, [""]),
        ({**SERVED, "layout": {"tp": 8}}, []),
        ({"emit": ["fsdp", "slurm"], "launch": {}}, []),
    ],
)
def test_pods_that_get_no_device_of_the_fabric_are_reported(
    changes: dict[str, Any], fixes: list[str]
) -> None:
    assert [one.fix for one in findings_of(changed(TRAINED, changes), "PARC-L45")] == fixes


@pytest.mark.parametrize("privileged", [False, True])
def test_a_container_is_privileged_only_if_the_spec_says_so(privileged: bool) -> None:
    files = files_of(changed(TRAINED, {f"{JOB}.privileged": privileged}))
    text = files["kubernetes/jobset.yaml"]
    _, jobset = YAML(typ="safe").load_all(text)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    assert context.get("privileged", False) is privileged
    # The API server rejects both settings together.
    assert ("allowPrivilegeEscalation" in context) is not privileged
    assert verification_codes(files) == set()
    edited = text.replace(
        "privileged: true" if privileged else "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: false" if privileged else "privileged: true",
    )
    assert verification_codes({**files, "kubernetes/jobset.yaml": edited})
