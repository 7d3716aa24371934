"""Read Kubernetes manifests: the commands of their containers as a script, and facts about pods.

The script has the lines of the manifest. Only the commands are kept, so that readers of scripts
find each word at its line and column; all other lines are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.manifest_commands import (
    CommandLines,
    entry_point,
    last_line,
    yaml_items,
    yaml_mapping,
    yaml_text,
)

MOST_BYTES = 1 << 20
"""Larger manifests are read as plain text: no published one comes close, and YAML is slow."""
DEEPEST = 24
_OBJECT = re.compile(r"^apiVersion:[ \t]*\S", re.M)
_TEMPLATE = re.compile(r"\{\{")
GPUS = ("nvidia.com/gpu", "amd.com/gpu")


@frozen
class LocatedText:
    """Scalar of a manifest."""

    text: str
    span: Span

    @property
    def number(self) -> int | None:
        """The whole number; None for any other text."""
        return int(self.text) if re.fullmatch(r"[0-9]{1,9}", self.text) else None


@frozen
class Container:
    """Container of a pod."""

    image: str
    lines: tuple[int, int]
    """First and last line."""
    is_started: bool
    """True if the manifest contains its command or arguments of the image's entry point."""
    gpus: LocatedText | None
    """Limit on its GPUs."""
    ports: tuple[tuple[str, LocatedText], ...]
    """(name or empty, ``containerPort``) of each port."""
    probes: tuple[LocatedText, ...]
    """Port of each probe: a number or a name."""
    environment: tuple[tuple[str, str | None, Span], ...]
    """(variable, value, position) of each variable; the value is None if it is in a Secret."""
    unread: tuple[tuple[str, Span], ...]
    """Keys that this class does not describe."""
    gpu_type: LocatedText | None = None
    """Type of its GPUs; None if the file names none."""


@frozen
class Pod:
    """Template of the pods of one object."""

    kind: str
    name: str
    namespace: str
    replicas: int
    """Number of pods or, for a LeaderWorkerSet, of groups of pods; 0 if the file does not state
    it."""
    size: int
    """Pods per group of a LeaderWorkerSet; else 1."""
    labels: frozenset[tuple[str, str]]
    containers: tuple[Container, ...]
    unread: tuple[tuple[str, Span], ...]

    def has_labels(self, selector: frozenset[tuple[str, str]]) -> bool:
        """Return True if ``selector`` selects the pods; an empty one selects none."""
        return bool(selector) and selector <= self.labels


@frozen
class ServicePort:
    """Port of a Service."""

    selector: frozenset[tuple[str, str]]
    target: LocatedText
    """``targetPort``, or ``port`` without one."""


@frozen
class Manifest:
    """Objects of a file that start containers."""

    script: str
    pods: tuple[Pod, ...]
    services: tuple[ServicePort, ...]
    others: tuple[tuple[str, Span], ...]
    """(kind and name, position) of the other objects."""
    platform: str = "kubernetes"
    """Program that starts the containers."""


def read_manifest(text: str, name: str) -> Manifest | None:
    """Return the objects of a manifest; None for other texts, Helm templates and invalid YAML."""
    if _OBJECT.search(text) is None or _TEMPLATE.search(text) or len(text) > MOST_BYTES:
        return None
    reader = _ManifestReader(text, name)
    try:
        # All documents are kept: the reader identifies nodes by their addresses.
        roots = list(YAML(typ="safe", pure=True).compose_all(text))
        for root in roots:
            if isinstance(root, MappingNode):
                reader.read_object(root)
    except (YAMLError, ValueError, RecursionError):  # an alias can contain itself
        return None
    started = any(one.is_started for pod in reader.pods for one in pod.containers)
    return reader.manifest() if started else None


def _pairs(node: Node | None) -> frozenset[tuple[str, str]]:
    return frozenset((key, yaml_text(value)) for key, value in yaml_mapping(node).items())


class _ManifestReader:
    """Reader that collects pods and services, and the lines of their commands."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._commands = CommandLines(text)
        self._seen: set[int] = set()
        self.pods: list[Pod] = []
        self._services: list[ServicePort] = []
        self._others: list[tuple[str, Span]] = []

    def manifest(self) -> Manifest:
        """Return all objects that were read."""
        return Manifest(
            self._commands.script(), tuple(self.pods), tuple(self._services), tuple(self._others)
        )

    def read_object(self, root: MappingNode) -> None:
        """Read one document, or the items of a List."""
        keys = yaml_mapping(root)
        if yaml_text(keys.get("kind")) == "List":
            for item in yaml_items(keys.get("items")):
                if isinstance(item, MappingNode):
                    self.read_object(item)
            return
        kind, before = yaml_text(keys.get("kind")), (len(self.pods), len(self._commands))
        if kind == "Service":
            spec = yaml_mapping(keys.get("spec"))
            for port in map(yaml_mapping, yaml_items(spec.get("ports"))):
                target = port.get("targetPort", port.get("port"))
                if target is not None:
                    selector = _pairs(spec.get("selector"))
                    self._services.append(ServicePort(selector, self._located(target)))
        if kind == "ConfigMap":
            for key, value in yaml_mapping(keys.get("data")).items():
                self._commands.keep_script(key, value)
        self._find_pods(root, keys, 1, 1, 0)
        if (len(self.pods), len(self._commands)) == before:
            title = yaml_text(yaml_mapping(keys.get("metadata")).get("name"))
            self._others.append((f"{kind} {title}".rstrip(), self._span(root)))

    def _find_pods(
        self, node: Node, top: dict[str, Node], replicas: int, size: int, depth: int
    ) -> None:
        """Read all pod templates below ``node``; the nearest numbers of replicas count."""
        if depth > DEEPEST or id(node) in self._seen:  # aliases repeat nodes
            return
        self._seen.add(id(node))
        if isinstance(node, SequenceNode):
            for item in node.value:
                self._find_pods(item, top, replicas, size, depth + 1)
        keys = yaml_mapping(node)
        if isinstance(keys.get("containers"), SequenceNode):
            self.pods.append(self._read_pod(node, top, replicas, size))
            return
        given = self._located(keys["replicas"]).number if "replicas" in keys else None
        replicas = replicas if given is None else given
        if "parallelism" in keys:  # pods of a Job, of which a JobSet has several
            replicas *= self._located(keys["parallelism"]).number or 1
        if yaml_text(top.get("kind")) == "LeaderWorkerSet" and "size" in keys:
            size = self._located(keys["size"]).number or size
        labels = yaml_mapping(keys.get("metadata")).get("labels")
        top = top if labels is None else {**top, "labels": labels}
        for value in keys.values():
            self._find_pods(value, top, replicas, size, depth + 1)

    def _read_pod(self, node: Node, top: dict[str, Node], replicas: int, size: int) -> Pod:
        keys, metadata = yaml_mapping(node), yaml_mapping(top.get("metadata"))
        containers = tuple(
            self._read_container(one)
            for one in yaml_items(keys["containers"])
            if isinstance(one, MappingNode)
        )
        return Pod(
            yaml_text(top.get("kind")),
            yaml_text(metadata.get("name")),
            yaml_text(metadata.get("namespace")),
            replicas,
            size,
            _pairs(top.get("labels")),
            containers,
            tuple(self._unread(node, ("containers", "restartPolicy"))),
        )

    def _read_container(self, node: MappingNode) -> Container:
        keys = yaml_mapping(node)
        image = yaml_text(keys.get("image"))
        limits = yaml_mapping(yaml_mapping(keys.get("resources")).get("limits"))
        gpus = next((self._located(limits[one]) for one in GPUS if one in limits), None)
        ports = [yaml_mapping(one) for one in yaml_items(keys.get("ports"))]
        probes = (yaml_mapping(value) for key, value in keys.items() if key.endswith("Probe"))
        checks = (yaml_mapping(one.get("httpGet", one.get("tcpSocket"))) for one in probes)
        self._commands.keep_commands(node, image)
        read = ("name", "image", "command", "args", "env", "ports", "resources", "imagePullPolicy")
        return Container(
            image,
            (int(node.start_mark.line) + 1, last_line(node)),
            "command" in keys or ("args" in keys and entry_point(image) != ""),
            gpus,
            tuple(
                (yaml_text(one.get("name")), self._located(one["containerPort"]))
                for one in ports
                if "containerPort" in one
            ),
            tuple(self._located(one["port"]) for one in checks if "port" in one),
            tuple(self._environment(keys.get("env"))),
            (*self._unread(node, read), *self._other_limits(limits)),
        )

    def _other_limits(self, limits: Mapping[str, Node]) -> Iterator[tuple[str, Span]]:
        """Yield the limits on devices other than GPUs, such as ``google.com/tpu``."""
        for key, value in limits.items():
            if "/" in key and key not in GPUS:
                yield f"limit {key} {yaml_text(value)}", self._span(value)

    def _unread(self, node: Node, read: tuple[str, ...]) -> Iterator[tuple[str, Span]]:
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.value not in read:
                yield str(key.value), self._span(key)

    def _environment(self, node: Node | None) -> Iterator[tuple[str, str | None, Span]]:
        """Yield the variables with a value or a Secret; the other sources are left out."""
        for item in yaml_items(node):
            keys = yaml_mapping(item)
            secret = "secretKeyRef" in yaml_mapping(keys.get("valueFrom"))
            if "value" in keys or secret:
                value = None if secret else yaml_text(keys["value"])
                yield yaml_text(keys.get("name")), value, self._span(item)

    def _located(self, node: Node) -> LocatedText:
        return LocatedText(yaml_text(node), self._span(node))

    def _span(self, node: Node) -> Span:
        start, end = node.start_mark, node.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Span(self._name, start.line + 1, start.column + 1, max(1, length))
