"""Paths of a job that its container does not contain are reported (L37)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiled import Spec, changed, findings_of

BASE: Spec = {
    "parc": 1,
    "name": "paths",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 4096, "global_batch": 64},
    "layout": {"tp": 1, "pp": 1, "cp": 1},
}
PYXIS = {"launch.slurm.container_image": "image.sqsh"}
APPTAINER = {"launch.slurm.container_image": "image.sif"}
PODS = {"emit": ["fsdp", "kubernetes"], "launch.kubernetes.image": "image:1"}
SERVICE = {
    "job": {
        "kind": "serve",
        "precision": "bf16",
        "traffic": {"input_tokens": 9, "output_tokens": 9},
    },
    "layout": {"tp": 8},
    "emit": ["vllm", "kubernetes"],
    "launch.kubernetes.image": "image:1",
    "job.checkpoint": "/models/llama",
}


def fixes(*settings: dict[str, Any]) -> list[str]:
    """Return the fixes of the findings L37 about a spec with ``settings``."""
    spec = BASE
    for one in settings:
        spec = changed(spec, one)
    return [found.fix for found in findings_of(spec, "PARC-L37")]


@pytest.mark.parametrize(
    ("container", "job", "expected"),
    [
        ({}, {"job.checkpoint_dir": "/ckpt/a"}, []),
        (PYXIS, {}, []),
        (
            PYXIS,
            {"job.checkpoint_dir": "/ckpt/a"},
            ['launch.slurm.container_mounts: ["/ckpt:/ckpt"]'],
        ),
        (PYXIS, {"job.checkpoint_dir": "saves"}, [""]),
        (PYXIS, {"job.data": ["data/text"]}, []),
        (
            PYXIS,
            {"job.data": ["/a/b/c", "/a/b/d/e", "/x"]},
            ['launch.slurm.container_mounts: ["/a/b:/a/b", "/x:/x"]'],
        ),
        (
            PYXIS | {"launch.slurm.container_mounts": ["/raid/ckpt:/ckpt:rw", "/fsx"]},
            {"job.checkpoint_dir": "/ckpt/a", "job.load_dir": "/fsx/b", "job.kind": "finetune"},
            [],
        ),
        (
            PYXIS | {"launch.slurm.container_mounts": ["/ckpt:/saves"]},
            {"job.checkpoint_dir": "/ckpt2/a"},
            ['launch.slurm.container_mounts: ["/ckpt:/saves", "/ckpt2:/ckpt2"]'],
        ),
        (APPTAINER, {"job.checkpoint_dir": "saves", "job.data": ["/tmp/text"]}, []),
        (
            APPTAINER,
            {"job.checkpoint_dir": "/ckpt/a"},
            ['launch.slurm.container_mounts: ["/ckpt:/ckpt"]'],
        ),
        (
            PODS | {"launch.kubernetes.claims": {"c1": "/data"}},
            {"job.checkpoint_dir": "/ckpt", "job.data": ["/data/a.npy"]},
            ['launch.kubernetes.claims: {c1: "/data", ckpt: "/ckpt"}'],
        ),
        (
            PODS | {"launch.kubernetes.host_paths": {"/mnt/x": "/data"}},
            {"job.data": ["/data/a.npy"]},
            [],
        ),
        (PODS, {"launch.logging.tensorboard": "logs"}, [""]),
        (SERVICE, {}, ['launch.kubernetes.claims: {models: "/models"}']),
        (SERVICE, {"job.checkpoint": "meta-llama/Meta-Llama-3-8B"}, []),
    ],
)
def test_a_path_outside_of_the_container_gets_a_mount(
    container: dict[str, Any], job: dict[str, Any], expected: list[str]
) -> None:
    assert fixes(container, job) == expected
