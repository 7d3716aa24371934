"""ConfigMap with the files that pods run: the launch script and the framework's files."""

from __future__ import annotations

from typing import Any

from parc.backends.registry import backend, declaration
from parc.backends.shared.launch_script import host_lines, launch_script
from parc.compiler.ir import Artifact, Plan

MOUNT = "/parc"
"""Path of the output folder in the pods."""
MOST_BYTES = 1_000_000
"""Limit of the files: a ConfigMap with keys and metadata has at most 1 MiB (Kubernetes docs)."""


def mounted(plan: Plan) -> tuple[Artifact, ...]:
    """Return the files that a pod needs, sorted by path in the output folder."""
    problem = plan.problem
    files = [launch_script(plan, "torchrun", "hosts")]
    if problem.cluster.named:
        files.append(Artifact("torchrun/hosts", host_lines(plan)))
    for name in problem.emit:
        if name == "preflight" or declaration(name).is_framework:
            files += backend(name).emit(plan)
    return tuple(sorted(files, key=lambda file: file.path))


def config_map_key(path: str) -> str:
    """Return the key of a file in the ConfigMap; keys cannot contain slashes."""
    return path.replace("/", ".")


def config_map(name: str, metadata: dict[str, Any], files: tuple[Artifact, ...]) -> dict[str, Any]:
    """Return the ConfigMap with all files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {config_map_key(file.path): file.text for file in files},
    }


def volume(name: str, files: tuple[Artifact, ...]) -> dict[str, Any]:
    """Return the volume of a pod, with the files at their paths in the output folder."""
    items = [{"key": config_map_key(file.path), "path": file.path} for file in files]
    return {"name": "plan", "configMap": {"name": name, "defaultMode": 0o555, "items": items}}
