"""Import of YAML files that start containers: Compose, dstack, values of Helm, Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.tools.importers.format_fragment import fragment_yaml
from parc.compiler.tools.importers.import_files import import_files


def imported(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return (fragment, its notes) of a file whose format is detected."""
    sink = Sink()
    found = import_files("auto", [(text, "given.yaml")], sink)
    assert found is not None, [one.finding.message for one in sink.diagnostics]
    spec = parse_table(fragment_yaml(found.fragment, found.kinds, Sink()))
    return dict(spec), list(found.fragment.notes)


COMPOSE = """\
version: "3.8"
services:
  proxy:
    image: nginx
  vllm:
    image: vllm/vllm-openai:v0.10.0
    env_file: [.env]
    environment:
      - HF_TOKEN
      - VLLM_LOGGING_LEVEL=DEBUG
    volumes:
      - /models:/models
    ports: ["80:8000"]
    command: {command}
    deploy:
      resources:
        reservations:
          devices:
            - {{driver: nvidia, {devices}, capabilities: [gpu]}}
"""
FLAGS = ("--model org/model", "--tensor-parallel-size 2", "--max-num-seqs 64")
FORMS = {
    "text": " ".join(FLAGS),
    "list": str([word for flag in FLAGS for word in flag.split()]),
    "folded": ">\n" + "".join(f"      {flag}\n" for flag in FLAGS),
    "items": "\n" + "".join(f"      - {word}\n" for flag in FLAGS for word in flag.split()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_command_of_compose_is_read_in_every_form(form: str) -> None:
    spec, notes = imported(COMPOSE.format(command=FORMS[form], devices="count: 2"))
    assert spec["job"] == {"kind": "serve", "checkpoint": "org/model", "max_num_seqs": 64}
    assert (spec["layout"]["tp"], spec["layout"]["pp"]) == (2, 1)
    assert spec["cluster"] == {"node": {"gpus_per_node": 2}, "nodes": 1}
    assert spec["launch"]["env"] == {
        "HF_TOKEN": {"from": "environment"},
        "VLLM_LOGGING_LEVEL": "DEBUG",
    }
    left = {note.partition(": ")[2] for note in notes if note.startswith("not carried over")}
    assert left == {
        "image vllm/vllm-openai:v0.10.0 of service vllm",
        "env_file .env of service vllm",
        "volumes /models:/models of service vllm",
        "ports 80:8000 of service vllm",
        "service proxy",
    }


@pytest.mark.parametrize(
    ("devices", "gpus"), [("device_ids: ['0', '3', '5']", 3), ("count: all", None)]
)
def test_the_gpus_of_a_compose_service(devices: str, gpus: int | None) -> None:
    spec, notes = imported(COMPOSE.format(command=FORMS["text"], devices=devices))
    assert spec.get("cluster", {}).get("node", {}).get("gpus_per_node") == gpus
    assert any("deploy of service vllm" in note for note in notes) is (gpus is None)


DSTACK = """\
type: service
name: server
env:
  - HF_TOKEN
  - MODEL=org/model
image: rocm/vllm:latest
commands:
  - pip install extra
  - |
    vllm serve $MODEL \\
      --tensor-parallel-size 8
port: 8000
resources:
  gpu: MI300X:8
  shm_size: 32GB
"""


def test_a_service_of_dstack_is_read() -> None:
    spec, notes = imported(DSTACK)
    assert spec["job"]["checkpoint"] == "org/model"
    assert spec["layout"]["tp"] == 8
    assert spec["cluster"] == {
        **{"node": {"gpus_per_node": 8}, "nodes": 1},
        "gpu": "mi300x-192gb",
    }
    assert spec["launch"]["env"] == {"HF_TOKEN": {"from": "environment"}, "MODEL": "org/model"}
    left = [note.partition(": ")[2] for note in notes if note.startswith("not carried over")]
    assert left == [
        "pip install extra",
        "image rocm/vllm:latest of service server",
        "port 8000 of service server",
        "shm_size 32GB of service server",
    ]


VALUES = """\
vllm:
  image: {repository: example.com/vllm-server, tag: v0.10.0}
  model: org/model
  extraArgs:
    - "--tensor-parallel-size=8"
    - "--max-num-seqs=64"
  resources:
    limits: {memory: 100Gi, nvidia.com/gpu: "8"}
  replicaCount: 3
ingress:
  enabled: true
"""


def test_values_of_a_chart_leave_what_the_chart_can_add_open() -> None:
    spec, notes = imported(VALUES)
    assert spec["job"] == {"kind": "serve", "checkpoint": "org/model", "max_num_seqs": 64}
    assert spec["layout"] == {"tp": 8, "replicas": 3}
    assert spec["cluster"] == {"node": {"gpus_per_node": 8}, "nodes": 3}
    text = "\n".join(notes)
    for part in ("unknown arguments {{chart}}", "image example.com/vllm-server:v0.10.0", "ingress"):
        assert part in text


DOCUMENTS = (
    "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\n",
    "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: weights}\n"
    "spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 2Ti}}}\n",
    """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: server}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    workerTemplate:
      spec:
        containers:
          - name: server
            image: example.com/server:1
            command: [vllm, serve, org/model, --tensor-parallel-size, "16"]
            env:
              - {name: VLLM_LOGGING_LEVEL, value: DEBUG}
            resources: {limits: {google.com/tpu: "4"}}
""",
)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_manifest_is_read_in_any_order_and_without_a_gpu_limit(order: tuple[int, ...]) -> None:
    for _ in range(5):  # the order of the documents once decided by chance
        spec, notes = imported("---\n".join(DOCUMENTS[index] for index in order))
        assert (spec["layout"]["tp"], spec["layout"]["replicas"]) == (16, 2)
        assert spec["launch"] == {
            "env": {"VLLM_LOGGING_LEVEL": "DEBUG"},
            "kubernetes": {"image": "example.com/server:1"},
        }
        left = {note.partition(": ")[2] for note in notes if "not carried" in note}
        assert left == {
            "limit google.com/tpu 4 of LeaderWorkerSet server",
            "StorageClass fast",
            "PersistentVolumeClaim weights",
        }


@pytest.mark.parametrize("text", ["services: [", "services:\n  a: *b\n", "type: service\n"])
def test_damaged_files_are_no_service_files(text: str) -> None:
    assert import_files("auto", [(text, "given.yaml")], Sink()) is None


@pytest.mark.parametrize(
    "text",
    [
        "a: &x\n  b: *x\n  extraArgs: [--tp]\n",
        "services: &x\n  a: *x\n",
        "extraArgs: &x [*x]\n",
        "\n".join(
            [
                "a0: &a0 {extraArgs: [x]}",
                *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)),
            ]
        ),
        f"extraArgs: {'[' * 300}{']' * 300}\n",
        "type: service\ncommands: &x [*x]\nresources: {gpu: [*x]}\nenv: {a: *x}\n",
    ],
)
def test_aliases_and_deep_values_end(text: str) -> None:
    import_files("vllm-args", [(text, "given.yaml")], Sink())
