"""Manifests that start a server: import, GPUs of the container (L34), ports (L41, L42)."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.importers.manifests import read_manifest
from tests.lint.scripts import codes
from tests.project_files import ROOT

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: inference}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: chat}}
    spec:
      nodeSelector: {pool: h100}
      containers:
        - name: server
          image: vllm/vllm-openai:v0.28.0
          args: [--model, meta-llama/Llama-3.1-8B-Instruct, --tensor-parallel-size, "2"]
          env:
            - {name: NCCL_DEBUG, value: WARN}
            - {name: RANK, value: "0"}
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: hub, key: token}}
          ports: [{name: http, containerPort: 8000}]
          readinessProbe: {httpGet: {path: /health, port: 8000}}
          resources: {limits: {nvidia.com/gpu: 2}}
---
apiVersion: v1
kind: Service
metadata: {name: chat}
spec:
  selector: {app: chat}
  ports: [{port: 80, targetPort: 8000}]
"""
BLOCK = """\
          command:
            - /bin/sh
            - -c
          args:
            - |
              pip list
              vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2
"""
SORTED = """\
          args:
            - -m
            - sglang.launch_server
            - --model-path=meta-llama/Llama-3.1-8B-Instruct
            - --tp=2
            - --port=8000
          command:
            - python3
"""
ARGS = next(line + "\n" for line in DEPLOYMENT.split("\n") if "args:" in line)
GROUP = DEPLOYMENT.replace("kind: Deployment", "kind: LeaderWorkerSet").replace(
    "  replicas: 3\n  template:\n",
    "  replicas: 2\n  leaderWorkerTemplate:\n    size: 4\n    leaderTemplate:\n".replace(
        "    leaderTemplate", "    workerTemplate"
    ),
)


def imported(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fragment of a manifest, and the notes."""
    found = import_files("auto", [(text, "chat.yaml")], Sink())
    assert found is not None
    return dict(found.fragment.spec), list(found.fragment.notes)


def test_a_deployment_is_imported_with_its_replicas_gpus_and_variables() -> None:
    spec, notes = imported(DEPLOYMENT)
    assert spec["cluster"] == {"node": {"gpus_per_node": 2}, "nodes": 3}
    assert (spec["layout"]["tp"], spec["layout"]["replicas"]) == (2, 3)
    assert spec["model"] == "llama-3.1-8b"
    assert spec["launch"]["env"] == {"NCCL_DEBUG": "WARN", "HF_TOKEN": {"from": "environment"}}
    kubernetes = {"image": "vllm/vllm-openai:v0.28.0", "namespace": "inference"}
    assert spec["launch"]["kubernetes"] == kubernetes
    listed = [note for note in notes if note.startswith("not carried over")]
    assert listed == [
        "not carried over, line 16: RANK=0",
        "not carried over, line 9: nodeSelector of Deployment chat",
        "not carried over, line 20: readinessProbe of Deployment chat",
        "not carried over, line 23: Service chat",
    ]


@pytest.mark.parametrize("command", [BLOCK, SORTED])
def test_commands_are_read_from_scripts_and_in_any_order(command: str) -> None:
    spec, notes = imported(DEPLOYMENT.replace(ARGS, command))
    assert not [note for note in notes if "/bin/sh" in note]
    assert spec["layout"]["tp"] == 2
    assert spec["job"]["checkpoint"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert codes(DEPLOYMENT.replace(ARGS, command)) == []


def test_pods_of_a_group_are_the_hosts_of_one_engine() -> None:
    several = GROUP.replace('"2"]', '"8", --nnodes, "4"]')
    spec, _ = imported(several)
    assert (spec["cluster"]["nodes"], spec["layout"]["replicas"]) == (8, 2)
    assert codes(several) == []


MISTAKES = (
    ('"2"]', '"4"]', ["L34"]),
    ("targetPort: 8000", "targetPort: 8080", ["L41"]),
    ("targetPort: 8000", "targetPort: http", []),
    ("/health, port: 8000", "/health, port: 9000", ["L41"]),
    ("/health, port: 8000", "/health, port: http", []),
    ('"2"]', '"2", --port, "9000"]', ["L41", "L41", "L42"]),
    ('"2"]', '"2", --port, $(PORT)]', []),
    ("selector: {app: chat}", "selector: {app: other}", []),
    ("containerPort: 8000", "containerPort: 8001", ["L42"]),
    ("containerPort: 8000}]", "containerPort: 8000}, {containerPort: 9090}]", []),
)


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES)
def test_gpus_and_ports_of_the_manifest_must_fit_the_server(
    old: str, new: str, expected: list[str]
) -> None:
    assert codes(DEPLOYMENT) == []
    assert sorted(codes(DEPLOYMENT.replace(old, new))) == expected


def test_a_port_of_another_container_of_the_pod_causes_no_finding() -> None:
    proxy = "      containers:\n        - {name: p, image: envoy, ports: [{containerPort: 8080}]}\n"
    text = DEPLOYMENT.replace("      containers:\n", proxy)
    assert codes(text.replace("targetPort: 8000", "targetPort: 8080")) == []


@pytest.mark.parametrize(
    "text",
    [
        DEPLOYMENT.replace("replicas: 3", "replicas: {{ .Values.replicas }}"),
        DEPLOYMENT.replace("metadata: {name", "metadata: {name: {"),
        "apiVersion: v1\nkind: List\nitems: [1, {containers: [2, {args: 3}]}]\n",
        "apiVersion: v1\nspec: &a\n  containers: *a\n",
        "apiVersion: v1\nspec: {containers: [{image: a, args: &x [*x]}]}\n",
        "apiVersion: v1\n" + "a: {" * 500,
        "apiVersion: v1\na0: &a0 [1]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)),
    ],
)
def test_templates_and_damaged_manifests_are_read_as_text(text: str) -> None:
    assert read_manifest(text, "x.yaml") is None


@pytest.mark.parametrize(
    ("example", "hosts", "engines"),
    [("llama-3-70b-kubernetes", 32, None), ("llama-3.1-405b-serve-kubernetes", 4, 2)],
)
def test_the_scripts_of_a_config_map_are_read(
    example: str, hosts: int, engines: int | None
) -> None:
    (path,) = (ROOT / "examples" / example / "expected" / "kubernetes").glob("*.yaml")
    spec, notes = imported(path.read_text("utf-8"))
    assert spec["cluster"] == {"node": {"gpus_per_node": 8}, "nodes": hosts}
    assert spec["layout"]["tp"] > 1
    assert spec["layout"].get("replicas") == engines
    assert not [note for note in notes if "apiVersion" in note]


def test_words_keep_their_lines() -> None:
    manifest = read_manifest(DEPLOYMENT, "x.yaml")
    assert manifest is not None
    lines = manifest.script.split("\n")
    assert len(lines) == len(DEPLOYMENT.split("\n"))
    at = ARGS.index("--tensor-parallel-size")
    assert lines[12][at:].startswith("--tensor-parallel-size")
    assert lines[12].split()[:2] == ["vllm", "serve"]


JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: gpt}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &pod
        spec:
          containers:
            - name: pytorch
              image: pytorch
              command: [torchrun, --nproc_per_node=8, --nnodes=4, pretrain_gpt.py]
              args: [--tensor-model-parallel-size=8, --num-layers=32, --num-attention-heads=32]
              resources: {limits: {nvidia.com/gpu: 8}}
    Worker:
      replicas: 3
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch
              command:
                - torchrun
                - --nproc_per_node=8
                - --nnodes=4
                - pretrain_gpt.py
              args: [--tensor-model-parallel-size=8, --num-layers=32, --num-attention-heads=32]
              resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_pods_with_the_same_command_are_the_hosts_of_one_job() -> None:
    spec, notes = imported(JOB)
    assert spec["cluster"] == {"node": {"gpus_per_node": 8}, "nodes": 4}
    assert spec["layout"]["tp"] == 8
    assert not [note for note in notes if "torchrun" in note]
