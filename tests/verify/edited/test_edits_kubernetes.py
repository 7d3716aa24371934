"""Random edits of Kubernetes manifests: those that change an object are named."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests import compiled
from tests.compiled import Files, changed
from tests.search.serving_specs import spec
from tests.verify.damage import swapped
from tests.verify.edits import (
    EDITS,
    NAMED,
    RandomEdit,
    false_alarms,
    findings,
    measure_edits,
    shell_behavior,
)

pytestmark = pytest.mark.usefixtures("few_requests")

JOBSET, GROUPS = "kubernetes/jobset.yaml", "kubernetes/leaderworkerset.yaml"
POD = {
    "image": "registry.example.com/run:1",
    "queue": "team",
    "rack_label": "example.com/rack",
    "namespace": "models",
    "claims": {"weights": "/models", "data": "/data"},
    "host_paths": {"/opt/network": "/usr/local/network"},
    "annotations": {"example.com/interfaces": '[{"name":"eth1"}]'},
    "resources": {"rdma/hca": "8", "memory": "1Ti"},
    "requests": {"cpu": "96"},
    "tolerations": ["gpu=a:NoSchedule", "team"],
    "pull_secrets": ["registry"],
    "run_as_user": 1000,
    "run_as_group": 2000,
    "node_selector": {"pool": "gpu"},
    "host_network": True,
}
SERVED = spec(
    "llama-3.1-405b",
    "hgx-h100",
    4,
    job={"max_model_len": 32768},
    layout={"tp": 8, "pp": 2, "replicas": 2},
    launch={"kubernetes": POD},
    emit=["kubernetes", "rankmap", "vllm"],  # type: ignore[arg-type]
)
TRAINED: dict[str, Any] = {
    "parc": 1,
    "name": "trained",
    "model": "llama-3.1-8b",
    "cluster": {"node": "hgx-h100", "nodes": 4, "nodes_per_rack": 2},
    "job": {"steps": 10, "global_batch": 64, "sequence_length": 4096},
    "launch": {"kubernetes": POD, "network_interface": "eth0"},
    "emit": ["kubernetes", "megatron", "rankmap", "torchrun"],
}
NAMED_HOSTS = {"node": "hgx-h100", "racks": [{"name": "r", "nodes": "n[1-4]"}]}
SHARED = {"tp": 1, "replicas": 8}
SPECS = {
    "engines": (SERVED, GROUPS),
    "shared hosts": (
        changed(SERVED, {"launch.kubernetes": {"image": "a:1"}, "emit": ["kubernetes"]}),
        GROUPS,
    ),
    "ports": (
        spec(
            "llama-3.1-8b",
            "hgx-h100",
            layout=SHARED,
            launch={"kubernetes": {"image": "a:1"}},
            emit=["kubernetes", "rankmap", "vllm"],  # type: ignore[arg-type]
        ),
        GROUPS,
    ),
    "named engines": (changed(SERVED, {"cluster": NAMED_HOSTS}), GROUPS),
    "named hosts": (changed(TRAINED, {"cluster": NAMED_HOSTS}), JOBSET),
    "queue": (TRAINED, JOBSET),
    "NVLink between hosts": (
        changed(TRAINED, {"cluster": {"node": "gb200-nvl72", "nodes": 4, "nodes_per_rack": 4}}),
        JOBSET,
    ),
    "racks": (changed(TRAINED, {"launch.kubernetes": {"image": "a:1"}}), JOBSET),
}
EACH = -(-EDITS // len(SPECS))
NEUTRAL = -(-EACH // 2)


@cache
def files_of(name: str) -> tuple[Files, str]:
    tree, file = SPECS[name]
    plan, sink = compiled.planned(tree)
    assert plan is not None, compiled.messages_of(sink)
    return compiled.emitted(plan), file


def manifest_behavior(text: str) -> object:
    """Return the objects of a manifest, with the commands of the scripts in a ConfigMap."""
    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, ValueError):
        return ("not YAML", text)
    for one in documents:
        data = one.get("data") if isinstance(one, dict) else None
        for key, value in data.items() if isinstance(data, dict) else ():
            if str(key).endswith(".sh"):
                data[key] = repr(shell_behavior(str(value)))
    return repr(documents)


def yaml_neutral(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield edits of the objects after the ConfigMap that YAML ignores, without end."""
    choose = random.Random(seed)
    first = text[: text.index("\n---\n")].count("\n") + 2
    while True:
        lines = text.split("\n")
        at = choose.randrange(first, len(lines) - 1)
        how = choose.randrange(3)
        if how == 0:
            lines.insert(at, choose.choice(("", "# reviewed: 8 pods", "      # a remark")))
        elif how == 1:
            lines[at] += "  # checked"
        else:
            lines[at] += "   "
        yield RandomEdit("\n".join(lines), f"line {lines[at]!r}")


@pytest.mark.parametrize("name", SPECS)
def test_edits_of_manifests_that_change_an_object_are_named(name: str) -> None:
    files, file = files_of(name)
    score = measure_edits(files, file, manifest_behavior, EACH)
    assert score.named >= NAMED, score.missed
    # Bash needs no ;; before esac, but then the script is not the one in the output folder.
    assert not [what for what in score.alarms if ";;" not in what]


@pytest.mark.parametrize("name", SPECS)
def test_neutral_edits_of_manifests_are_accepted(name: str) -> None:
    files, file = files_of(name)
    assert not false_alarms(files, file, yaml_neutral(files[file], 1), NEUTRAL)


@pytest.mark.parametrize(
    ("name", "old", "new", "code", "message"),
    [
        (
            "engines",
            "image: registry.example.com/run:1",
            "image: other:1",
            "A14",
            "launch.kubernetes.image: line 135 has image: other:1, the plan has 'registry.ex",
        ),
        ("engines", "targetPort: 8000", "targetPort: 8001", "A19", "the Service reaches 0 of 2"),
        ("engines", "worker-index: '0'", "worker-index: '1'", "A19", "the Service reaches 0 of 2"),
        ("queue", "maxRestarts: 3", "maxRestarts: 4", "A14", "launch.kubernetes.max_rest"),
        ("queue", "subdomain: trained", "subdomain: x", "A18", "spec.network.subdomain of the Job"),
        ("queue", "--lr ", "--lr 1", "A18", "megatron/args.sh in the ConfigMap differs from the"),
    ],
)
def test_a_difference_is_explained(name: str, old: str, new: str, code: str, message: str) -> None:
    files, file = files_of(name)
    found = findings(swapped(file, old, new)(files))
    assert any(one.startswith(f"PARC-{code} {message}") for one in found), found


def test_an_export_that_a_script_of_a_config_map_repeats_is_accepted() -> None:
    files, file = files_of("queue")
    line = "    export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
    assert findings(swapped(file, line, line * 2)(files)) == []


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("layout", [{"tp": 2, "replicas": 8}, {"tp": 8, "pp": 2, "replicas": 1}])
def test_the_manifests_of_each_engine_reach_its_servers(
    engine: str, layout: dict[str, int]
) -> None:
    tree = spec(
        "llama-3.1-8b",
        "hgx-h100",
        2,
        layout=layout,
        launch={"kubernetes": {"image": "a:1"}},
        emit=["kubernetes", "rankmap", engine],  # type: ignore[arg-type]
    )
    plan, sink = compiled.planned(tree)
    assert plan is not None, compiled.messages_of(sink)
    files = compiled.emitted(plan)
    assert findings(files) == []
    assert f"bash /parc/{engine}/serve.sh" in files[GROUPS]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("targetPort: 8007", "targetPort: 8006"),
        ("containerPort: 8007", "containerPort: 8006"),
        ("8006 8007; do", "8006; do"),
    ],
)
def test_a_port_that_the_service_or_a_probe_omits_is_an_error(old: str, new: str) -> None:
    files, file = files_of("ports")
    assert findings(files) == []
    found = findings(swapped(file, old, new)(files))
    assert "PARC-A19 the Service reaches 7 of 8 API servers of the plan" in found


@pytest.mark.parametrize("value", ['"abc"', "29400", '""', '"999999"', "[1]", "null", "true"])
def test_a_port_of_any_type_is_compared_and_not_trusted(value: str) -> None:
    files, file = files_of("queue")
    name = "MASTER_PORT"
    lines = files[file].splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if f"name: {name}" in line]
    # A flow mapping on one line, or the value on the next line.
    target = at if "value" in lines[at] else at + 1
    start = lines[target].index("value:") + len("value:")
    end = lines[target].find("}", start)
    rest = lines[target][end:] if end >= 0 else "\n"
    lines[target] = f"{lines[target][:start]} {value}{rest}"
    assert compiled.verification_codes(files | {file: "".join(lines)})
