"""The ConfigMap with the files that a pod runs: the launch script and the framework's files."""

from __future__ import annotations

from typing import Any

from parc.backends.registry import backend, backend_declaration
from parc.backends.shared.launch_script import hosts_file_text, launch_script
from parc.compiler.ir import Artifact, Plan

MOUNT = "/parc"
"""Path of the output folder in the pods."""
MOST_BYTES = 1_000_000
"""Maximum number of bytes of all files together. The API server limits a ConfigMap, including keys
and metadata, to 1 MiB (Kubernetes documentation, ConfigMap)."""


def mounted_files(plan: Plan) -> tuple[Artifact, ...]:
    """Return the files that every pod mounts, sorted by their path in the output folder."""
    problem = plan.problem
    files = [launch_script(plan, "torchrun", "hosts")]
    if problem.cluster.named:
        files.append(Artifact("torchrun/hosts", hosts_file_text(plan)))
    for name in problem.emit:
        if name == "preflight" or backend_declaration(name).is_framework:
            files += backend(name).emit(plan)
    return tuple(sorted(files, key=lambda file: file.path))


def config_map_key(path: str) -> str:
    """Return the ConfigMap key of the file at ``path``, with dots for slashes.

    The API server rejects keys with slashes.
    """
    return path.replace("/", ".")


def config_map(name: str, metadata: dict[str, Any], files: tuple[Artifact, ...]) -> dict[str, Any]:
    """Return the ConfigMap that contains the text of all ``files``."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {config_map_key(file.path): file.text for file in files},
    }


def config_map_volume(name: str, files: tuple[Artifact, ...]) -> dict[str, Any]:
    """Return the pod volume that mounts the ConfigMap ``name``.

    Every file appears at its path in the output folder.
    """
    items = [{"key": config_map_key(file.path), "path": file.path} for file in files]
    # 0o555: the mounted launch script must be executable, and a ConfigMap volume is read-only.
    return {"name": "plan", "configMap": {"name": name, "defaultMode": 0o555, "items": items}}
