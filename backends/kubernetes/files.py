"""The files that pods run, as a ConfigMap: the launch script and those of the framework."""

from __future__ import annotations

from typing import Any

from parc.backends.registry import backend, declaration
from parc.backends.shared.launch_script import host_lines, launch_script
from parc.compiler.ir import Artifact, Plan

MOUNT = "/parc"
"""Where the pods see the output folder."""
MOST_BYTES = 1_000_000
"""A ConfigMap holds at most 1 MiB (Kubernetes, ConfigMap), keys and metadata included."""


def mounted(plan: Plan) -> tuple[Artifact, ...]:
    """What a pod needs, by its path in the output folder."""
    problem = plan.problem
    files = [launch_script(plan, "torchrun", "hosts")]
    if problem.cluster.named:
        files.append(Artifact("torchrun/hosts", host_lines(plan)))
    for name in problem.emit:
        if name == "preflight" or declaration(name).is_framework:
            files += backend(name).emit(plan)
    return tuple(sorted(files, key=lambda file: file.path))


def key(path: str) -> str:
    """Key of a file in the ConfigMap, which may hold no slash."""
    return path.replace("/", ".")


def config_map(name: str, metadata: dict[str, Any], files: tuple[Artifact, ...]) -> dict[str, Any]:
    """The object; every file under its key."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {key(file.path): file.text for file in files},
    }


def volume(name: str, files: tuple[Artifact, ...]) -> dict[str, Any]:
    """The volume of a pod, with every file where it is in the output folder."""
    items = [{"key": key(file.path), "path": file.path} for file in files]
    return {"name": "plan", "configMap": {"name": name, "defaultMode": 0o555, "items": items}}
