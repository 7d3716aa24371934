"""Import of Kubernetes manifests: the launch in a container, and the pods that run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from parc.backends.shared.launch_rules import SET_BY_LAUNCHER, SET_BY_SHELL
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.gpu_types import gpu_of_type
from parc.compiler.tools.importers.manifests import Container, Manifest, Pod
from parc.compiler.tools.importers.setup_commands import SET_BY_LAUNCHERS
from parc.compiler.topology.readers.reader_state import Fragment, Reading


def import_manifest(
    manifest: Manifest,
    file: tuple[str, str],
    sink: Sink,
    reader: Callable[[str, str, Sink], Fragment | None],
) -> Fragment | None:
    """Return the fragment of the launch in ``manifest``, with what it states about pods.

    Args:
        manifest: objects of the file.
        file: text and name of the file.
        sink: receives the findings.
        reader: reader of the launch, which gets the commands of all containers as a script.
    """
    fragment = reader(manifest.script, file[1], sink)
    if fragment is None:
        return None
    reading = Reading(*file, sink)
    spec: dict[str, Any] = deepcopy(dict(fragment.spec))
    found = [(pod, one) for pod in manifest.pods for one in pod.containers if one.is_started]
    # A container with GPUs is the server; others may prepare it.
    found = [(pod, one) for pod, one in found if one.gpus is not None] or found[:1]
    if found:
        pod, container = found[0]
        _read_hosts(found, spec, reading)
        _read_environment(container, spec, reading)
        settings = {"image": container.image, "namespace": pod.namespace}
        known = {key: value for key, value in settings.items() if value}
        if known and manifest.platform == "kubernetes":
            spec.setdefault("launch", {}).setdefault("kubernetes", {}).update(known)
    for pod in manifest.pods:
        for key, span in (*pod.unread, *(key for one in pod.containers for key in one.unread)):
            reading.leave_out(f"{key} of {pod.kind} {pod.name}".rstrip(), span)
    for title, span in manifest.others:
        reading.leave_out(title, span)
    return replace(
        fragment,
        spec=spec,
        spans={**fragment.spans, **reading.spans},
        notes=(*fragment.notes, *reading.notes),
    )


def _read_hosts(found: list[tuple[Pod, Container]], spec: dict[str, Any], reading: Reading) -> None:
    """Set the number of hosts, which are pods, their GPUs, and the number of engines."""
    pod, container = found[0]
    # A LeaderWorkerSet has one template for the leaders and one for all other pods.
    pods = pod.replicas * pod.size
    if pod.kind != "LeaderWorkerSet":
        pods = sum({id(one): one.replicas for one, _ in found}.values())
    cluster = spec.setdefault("cluster", {})
    engine_hosts = pod.size if pod.size > 1 else int(cluster.get("nodes", 1))
    gpus = container.gpus.number if container.gpus is not None else None
    if gpus and container.gpus is not None and isinstance(cluster.get("node", {}), Mapping):
        cluster["node"] = {**cluster.get("node", {}), "gpus_per_node": gpus}
        cluster["nodes"] = max(pods, 1)
        reading.spans["cluster.node.gpus_per_node"] = container.gpus.span
        reading.notes.append(f"each pod counts as a host; pods: {pods}, GPUs per pod: {gpus}")
    if container.gpu_type is not None:
        gpu, advice = gpu_of_type(container.gpu_type.text)
        if gpu is not None:
            cluster["gpu"] = gpu
        else:
            line = container.gpu_type.span.line
            reading.notes.append(f"GPU type {container.gpu_type.text}, line {line}: {advice}")
    if not cluster:
        del spec["cluster"]
    if spec.get("job", {}).get("kind") == "serve" and pods and pods % engine_hosts == 0:
        layout = spec.setdefault("layout", {})
        if layout.get("replicas", 1) == 1:
            layout["replicas"] = pods // engine_hosts


def _read_environment(container: Container, spec: dict[str, Any], reading: Reading) -> None:
    """Add the variables of the container, except those about hosts and ranks."""
    launch = spec.setdefault("launch", {})
    env: dict[str, Any] = {}
    for name, value, span in container.environment:
        if value is not None and ("$" in value or name in SET_BY_LAUNCHER | SET_BY_SHELL):
            reading.leave_out(f"{name}={value}", span, f"set launch.env.{name}")
        elif not SET_BY_LAUNCHERS.fullmatch(name):
            env[name] = {"from": "environment"} if value is None else value
    if env:
        launch["env"] = {**env, **launch.get("env", {})}
    if not launch:
        del spec["launch"]
