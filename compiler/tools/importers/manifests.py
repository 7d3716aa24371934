"""Read Kubernetes manifests: the commands of their containers as a script, and facts about pods.

The script has the lines of the manifest. Only the commands are kept, so that readers of scripts
find each word at its line and column; all other lines are empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parc.backends.registry import all_declarations
from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.manifest_arguments import join_manifest_arguments

MOST_BYTES = 1 << 20
"""Larger manifests are read as plain text: no published one comes close, and YAML is slow."""
DEEPEST = 24
_OBJECT = re.compile(r"^apiVersion:[ \t]*\S", re.M)
_TEMPLATE = re.compile(r"\{\{")
_KEY = re.compile(r"^([ \t]*(?:-[ \t]+)?)(command|args):")
_BLOCK = re.compile(r"^[ \t]*(?:-[ \t]+)*[|>][+-]?\d?[ \t]*(?:#.*)?$")
"""Matches the mark of a block of text, after the key was removed."""
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh(?: -\w+)+")
"""Matches a shell that runs its next argument."""
_MARKS = re.compile(r"[\\\"']")
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


@frozen
class Pod:
    """Template of the pods of one object."""

    kind: str
    name: str
    namespace: str
    replicas: int
    """Number of pods or, for a LeaderWorkerSet, of groups of pods."""
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


def read_manifest(text: str, name: str) -> Manifest | None:
    """Return the objects of a manifest; None for other texts, Helm templates and invalid YAML."""
    if _OBJECT.search(text) is None or _TEMPLATE.search(text) or len(text) > MOST_BYTES:
        return None
    reader = _ManifestReader(text, name)
    try:
        for root in YAML(typ="safe", pure=True).compose_all(text):
            if isinstance(root, MappingNode):
                reader.read_object(root)
    except (YAMLError, ValueError, RecursionError):  # an alias can contain itself
        return None
    started = any(one.is_started for pod in reader.pods for one in pod.containers)
    return reader.manifest() if started else None


def _mapping(node: Node | None) -> dict[str, Node]:
    """Return key -> value of a mapping with scalar keys; empty for another node."""
    if not isinstance(node, MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}


def _items(node: Node | None) -> list[Node]:
    return list(node.value) if isinstance(node, SequenceNode) else []


def _text(node: Node | None) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _pairs(node: Node | None) -> frozenset[tuple[str, str]]:
    return frozenset((key, _text(value)) for key, value in _mapping(node).items())


def _last_line(node: Node) -> int:
    """Return the number of the last line of a node."""
    if isinstance(node, ScalarNode):
        # A block ends at the start of the line after it.
        return int(node.end_mark.line) + (node.style not in ("|", ">"))
    if not isinstance(node, SequenceNode | MappingNode) or node.flow_style or not node.value:
        return int(node.end_mark.line) + 1
    last = node.value[-1]
    return _last_line(last[1] if isinstance(last, tuple) else last)


class _ManifestReader:
    """Reader that collects pods and services, and the lines of their commands."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._joined = join_manifest_arguments(text).split("\n")
        self._kept: dict[int, str] = {}
        self._seen: set[int] = set()
        self._commands: dict[tuple[str, ...], set[int]] = {}
        self.pods: list[Pod] = []
        self._services: list[ServicePort] = []
        self._others: list[tuple[str, Span]] = []

    def manifest(self) -> Manifest:
        """Return all objects that were read."""
        lines = [self._kept.get(number, "") for number in range(1, len(self._joined) + 1)]
        return Manifest(
            "\n".join(lines), tuple(self.pods), tuple(self._services), tuple(self._others)
        )

    def read_object(self, root: MappingNode) -> None:
        """Read one document, or the items of a List."""
        keys = _mapping(root)
        if _text(keys.get("kind")) == "List":
            for item in _items(keys.get("items")):
                if isinstance(item, MappingNode):
                    self.read_object(item)
            return
        kind, before = _text(keys.get("kind")), (len(self.pods), len(self._kept))
        if kind == "Service":
            spec = _mapping(keys.get("spec"))
            for port in map(_mapping, _items(spec.get("ports"))):
                target = port.get("targetPort", port.get("port"))
                if target is not None:
                    selector = _pairs(spec.get("selector"))
                    self._services.append(ServicePort(selector, self._located(target)))
        if kind == "ConfigMap":
            for key, value in _mapping(keys.get("data")).items():
                self._keep_script(key, value)
        self._find_pods(root, keys, 1, 1, 0)
        if (len(self.pods), len(self._kept)) == before:
            title = _text(_mapping(keys.get("metadata")).get("name"))
            self._others.append((f"{kind} {title}".rstrip(), self._span(root)))

    def _keep_script(self, key: str, value: Node) -> None:
        """Keep a script of a ConfigMap, which a container can start."""
        if (
            isinstance(value, ScalarNode)
            and value.style == "|"
            and (key.endswith(".sh") or str(value.value).startswith("#!"))
        ):
            for number in range(int(value.start_mark.line) + 2, _last_line(value) + 1):
                self._kept[number] = self._joined[number - 1].rstrip("\r")

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
        keys = _mapping(node)
        if isinstance(keys.get("containers"), SequenceNode):
            self.pods.append(self._read_pod(node, top, replicas, size))
            return
        given = self._located(keys["replicas"]).number if "replicas" in keys else None
        replicas = replicas if given is None else given
        if "parallelism" in keys:  # pods of a Job, of which a JobSet has several
            replicas *= self._located(keys["parallelism"]).number or 1
        if _text(top.get("kind")) == "LeaderWorkerSet" and "size" in keys:
            size = self._located(keys["size"]).number or size
        labels = _mapping(keys.get("metadata")).get("labels")
        top = top if labels is None else {**top, "labels": labels}
        for value in keys.values():
            self._find_pods(value, top, replicas, size, depth + 1)

    def _read_pod(self, node: Node, top: dict[str, Node], replicas: int, size: int) -> Pod:
        keys, metadata = _mapping(node), _mapping(top.get("metadata"))
        containers = tuple(
            self._read_container(one)
            for one in _items(keys["containers"])
            if isinstance(one, MappingNode)
        )
        return Pod(
            _text(top.get("kind")),
            _text(metadata.get("name")),
            _text(metadata.get("namespace")),
            replicas,
            size,
            _pairs(top.get("labels")),
            containers,
            tuple(self._unread(node, ("containers", "restartPolicy"))),
        )

    def _read_container(self, node: MappingNode) -> Container:
        keys = _mapping(node)
        image = _text(keys.get("image"))
        limits = _mapping(_mapping(keys.get("resources")).get("limits"))
        gpus = next((self._located(limits[one]) for one in GPUS if one in limits), None)
        ports = [_mapping(one) for one in _items(keys.get("ports"))]
        probes = (_mapping(value) for key, value in keys.items() if key.endswith("Probe"))
        checks = (_mapping(one.get("httpGet", one.get("tcpSocket"))) for one in probes)
        self._keep_commands(node, image)
        read = ("name", "image", "command", "args", "env", "ports", "resources", "imagePullPolicy")
        return Container(
            image,
            (int(node.start_mark.line) + 1, _last_line(node)),
            "command" in keys or ("args" in keys and _entry_point(image) != ""),
            gpus,
            tuple(
                (_text(one.get("name")), self._located(one["containerPort"]))
                for one in ports
                if "containerPort" in one
            ),
            tuple(self._located(one["port"]) for one in checks if "port" in one),
            tuple(self._environment(keys.get("env"))),
            tuple(self._unread(node, read)),
        )

    def _keep_commands(self, node: MappingNode, image: str) -> None:
        """Keep the lines of ``command`` and ``args``; join them if they follow each other."""
        ranges = {
            key.value: (int(key.start_mark.line) + 1, _last_line(value))
            for key, value in node.value
            if isinstance(key, ScalarNode) and key.value in ("command", "args")
        }
        entry = "" if "command" in ranges else _entry_point(image)
        for key, (first, last) in ranges.items():
            for number in range(first, last + 1):
                line = self._joined[number - 1].rstrip("\r")
                match = _KEY.match(line) if number == first else None
                if match is not None:  # a list of arguments has lost its key already
                    line = " " * match.end() + line[match.end() :]
                self._kept[number] = "" if _BLOCK.match(line) else line
            if key == "args" and entry:
                line = self._kept[first]
                indent = len(line) - len(line.lstrip()) if line.strip(" \\") else len(line)
                kept = " " * max(0, indent - len(entry) - 1) + entry + " "
                rest = line[indent:].strip()
                self._kept[first] = kept + (rest or "\\")
        for value in (value for _, value in node.value):
            self._continue_lines(value)
        if "command" in ranges and "args" in ranges and ranges["command"] < ranges["args"]:
            for number in range(ranges["command"][1], ranges["args"][0]):
                line = self._kept.get(number, "").rstrip()
                self._kept[number] = line if line.endswith("\\") else f"{line} \\"
        self._drop_repeated(ranges.values())
        self._drop_shell(*(ranges.get(key) for key in ("command", "args")))

    def _drop_repeated(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Drop a command that an earlier container has too, such as that of the other pods."""
        lines = [number for first, last in ranges for number in range(first, last + 1)]
        words = tuple(_MARKS.sub(" ", " ".join(self._kept.get(one, "") for one in lines)).split())
        if words not in self._commands:
            self._commands[words] = set(lines)
            return
        for number in set(lines) - self._commands[words]:
            self._kept[number] = ""

    def _drop_shell(self, command: tuple[int, int] | None, args: tuple[int, int] | None) -> None:
        """Drop the words of a shell that runs the script in ``args``, which starts with a mark."""
        if command is None or args is None or command > args:
            return
        words = [self._kept.get(one, "") for one in range(command[0], args[0])]
        marks = [self._joined[one - 1] for one in range(args[0], args[1] + 1)]
        text = " ".join(_MARKS.sub(" ", " ".join(words)).split())
        if _SHELL.fullmatch(text) and any(_BLOCK.match(_KEY.sub("", one)) for one in marks):
            for number in range(command[0], args[0]):
                self._kept[number] = ""

    def _continue_lines(self, node: Node) -> None:
        """Continue the lines of a text that YAML joins: one that is folded or has no marks."""
        for item in (node, *_items(node)):
            if not isinstance(item, ScalarNode) or item.style == "|":
                continue
            for number in range(int(item.start_mark.line) + 1, _last_line(item)):
                line = self._kept.get(number, "").rstrip()
                if line and not line.endswith("\\"):
                    self._kept[number] = f"{line} \\"

    def _unread(self, node: Node, read: tuple[str, ...]) -> Iterator[tuple[str, Span]]:
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.value not in read:
                yield str(key.value), self._span(key)

    def _environment(self, node: Node | None) -> Iterator[tuple[str, str | None, Span]]:
        """Yield the variables with a value or a Secret; the other sources are left out."""
        for item in _items(node):
            keys = _mapping(item)
            secret = "secretKeyRef" in _mapping(keys.get("valueFrom"))
            if "value" in keys or secret:
                value = None if secret else _text(keys["value"])
                yield _text(keys.get("name")), value, self._span(item)

    def _located(self, node: Node) -> LocatedText:
        return LocatedText(_text(node), self._span(node))

    def _span(self, node: Node) -> Span:
        start, end = node.start_mark, node.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Span(self._name, start.line + 1, start.column + 1, max(1, length))


def _entry_point(image: str) -> str:
    """Return the command that a known image starts with the arguments; empty if it is unknown."""
    found = (one.entry_points for one in all_declarations())
    return next(
        (command for pairs in found for name, command in pairs if _is_image(image, name)), ""
    )


def _is_image(image: str, name: str) -> bool:
    return re.fullmatch(rf"(?:\S+/)?{re.escape(name)}[\w-]*(?:[:@]\S+)?", image) is not None
