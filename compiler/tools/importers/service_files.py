"""Read YAML files that start containers without Kubernetes: Compose, dstack, and values of Helm.

The result has the form of a manifest: the commands as a script, and facts about the containers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parc.backends.registry import all_declarations
from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.manifest_commands import (
    CommandLines,
    last_line,
    yaml_items,
    yaml_mapping,
    yaml_text,
)
from parc.compiler.tools.importers.manifests import (
    DEEPEST,
    GPUS,
    MOST_BYTES,
    Container,
    LocatedText,
    Manifest,
    Pod,
)

_SIGN = re.compile(r"^(?:services:|type:[ \t]*(?:service|task)\b|.*\bextraArgs:)", re.M)
_OTHER = re.compile(r"^apiVersion:[ \t]*\S|\{\{|^#!|^#SBATCH", re.M)
"""Matches a manifest of Kubernetes, a template, and a script."""
_MEMORY = re.compile(r"[0-9.]+ ?[GM]B\S*")
_ADDED = "{{chart}}"
"""Word for the flags that the templates of a chart add."""
_NO_EFFECT = ("version", "name", "type", "x-common")
_SHOWN = 3
"""Most items of a list that a note shows."""


def read_service_file(text: str, name: str) -> Manifest | None:
    """Return the commands and containers of a file; None for any other file and invalid YAML."""
    if _SIGN.search(text) is None or _OTHER.search(text) or len(text) > MOST_BYTES:
        return None
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError, RecursionError):
        return None
    keys = yaml_mapping(root)
    reader = _ServiceReader(text, name)
    if isinstance(keys.get("services"), MappingNode):
        return reader.read_compose(keys)
    if yaml_text(keys.get("type")) in ("service", "task") and "commands" in keys:
        return reader.read_dstack(root, keys)
    return reader.read_values(root)


@frozen
class _Gpus:
    """GPUs of one container."""

    count: LocatedText | None
    type: LocatedText | None = None


_Section = tuple[tuple[tuple[dict[str, Node], str], ...], MappingNode]
"""(mappings above a section, each with the key that leads to it; the section)."""


def _walk(
    node: Node, trail: tuple[tuple[dict[str, Node], str], ...], seen: set[int]
) -> Iterator[_Section]:
    """Yield each mapping below ``node`` once; aliases repeat nodes."""
    if id(node) in seen or len(trail) > DEEPEST:
        return
    seen.add(id(node))
    if isinstance(node, MappingNode):
        yield trail, node
    keys = yaml_mapping(node)
    for key, value in keys.items():
        yield from _walk(value, (*trail, (keys, key)), seen)
    for item in yaml_items(node):
        yield from _walk(item, trail, seen)


def _engine_section(
    section: _Section,
) -> tuple[tuple[tuple[dict[str, Node], str], ...], MappingNode, str] | None:
    """Return the section with the command of its engine; None without ``extraArgs`` of one."""
    trail, node = section
    keys = yaml_mapping(node)
    if not isinstance(keys.get("extraArgs"), SequenceNode):
        return None
    image = keys.get("image")
    names = [*(key for _, key in trail), yaml_text(image)]
    text = " ".join([*names, yaml_text(yaml_mapping(image).get("repository"))]).lower()
    for one in all_declarations():
        if one.entry_points and one.name in text:
            return trail, node, one.entry_points[0][1]
    return None


def _pod(
    kind: str, name: str, replicas: int, container: Container, unread: list[tuple[str, Span]]
) -> Pod:
    return Pod(kind, name, "", replicas, 1, frozenset(), (container,), tuple(unread))


class _ServiceReader:
    """Reader that collects containers and the lines of their commands."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._commands = CommandLines(text)
        self._pods: list[Pod] = []
        self._others: list[tuple[str, Span]] = []

    def read_compose(self, keys: Mapping[str, Node]) -> Manifest | None:
        """Read the services of a Compose file; those without a command run other programs."""
        for name, node in yaml_mapping(keys["services"]).items():
            service = yaml_mapping(node)
            if isinstance(node, MappingNode) and {"command", "entrypoint"} & service.keys():
                self._read_service(name, node, service)
            else:
                self._others.append((f"service {name}", self._span(node)))
        self._others += self._shown(keys, ("services", *_NO_EFFECT))
        return self._manifest("compose")

    def _read_service(self, name: str, node: MappingNode, keys: Mapping[str, Node]) -> None:
        self._commands.keep_commands(node, yaml_text(keys.get("image")), ("entrypoint", "command"))
        deploy = yaml_mapping(keys.get("deploy"))
        devices = yaml_mapping(yaml_mapping(deploy.get("resources")).get("reservations"))
        gpus = next(filter(None, map(self._device_count, yaml_items(devices.get("devices")))), None)
        replicas = self._located(deploy.get("replicas"), node).number or 1
        unread = self._shown(keys, ("command", "entrypoint", "environment", "deploy"))
        unread += self._shown(deploy, ("resources", "replicas"))
        if gpus is None and "deploy" in keys:
            unread += [("deploy", self._span(keys["deploy"]))]
        container = self._container(node, keys, _Gpus(gpus))
        self._pods.append(_pod("service", name, replicas, container, unread))

    def _device_count(self, node: Node) -> LocatedText | None:
        """Return the number of GPUs of a device reservation; None for all GPUs of the host."""
        keys = yaml_mapping(node)
        if not any("gpu" in yaml_text(one) for one in yaml_items(keys.get("capabilities"))):
            return None
        if isinstance(keys.get("device_ids"), SequenceNode):
            number = str(len(keys["device_ids"].value))
            return LocatedText(number, self._span(keys["device_ids"]))
        count = self._located(keys.get("count"), node)
        return count if count.number else None

    def read_dstack(self, root: Node, keys: Mapping[str, Node]) -> Manifest | None:
        """Read a service or a task of dstack."""
        for item in yaml_items(keys["commands"]):
            self._keep_command(item)
        for name, value, span in self._environment(keys.get("env")):
            if value is not None:  # commands can use the variables
                self._commands.keep_line(span.line, f"{name}={shlex.quote(value)}")
        resources = yaml_mapping(keys.get("resources"))
        gpus = self._dstack_gpus(resources.get("gpu"))
        hosts = self._located(keys.get("nodes", keys.get("replicas")), root).number or 1
        read = ("commands", "env", "resources", "nodes", *_NO_EFFECT)
        unread = [*self._shown(keys, read), *self._shown(resources, ("gpu",))]
        if gpus.count is None and "gpu" in resources:
            unread += self._shown({"gpu": resources["gpu"]}, ())
        container = self._container(root, keys, gpus)
        title = yaml_text(keys.get("name"))
        self._pods.append(_pod(yaml_text(keys["type"]), title, hosts, container, unread))
        return self._manifest("dstack")

    def _keep_command(self, node: Node) -> None:
        """Keep the lines of a command, which is a word of YAML or a block of text."""
        if not isinstance(node, ScalarNode):
            return
        first = int(node.start_mark.line) + 1
        if node.style in ("|", ">"):
            for number, line in enumerate(str(node.value).split("\n"), start=first + 1):
                self._commands.keep_line(number, line)
        else:
            column = int(node.start_mark.column)
            self._commands.keep_line(first, " " * column + str(node.value).replace("\n", " "))

    def _dstack_gpus(self, node: Node | None) -> _Gpus:
        """Return the GPUs per host: ``MI300X:8``, ``80GB:8``, or a mapping."""
        if node is None:
            return _Gpus(None)
        keys = yaml_mapping(node)
        if keys:
            parts = [yaml_text(keys.get("name")), yaml_text(keys.get("count"))]
        else:
            parts = yaml_text(node).split(":")
        span = self._span(node)
        numbers = [one for one in parts if re.fullmatch(r"[1-9][0-9]{0,2}", one)]
        types = [one for one in parts if re.match(r"[A-Za-z]", one) and not _MEMORY.match(one)]
        count = LocatedText(numbers[0], span) if numbers else None
        return _Gpus(count, LocatedText(types[0], span) if len(types) == 1 else None)

    def read_values(self, root: Node) -> Manifest | None:
        """Read the values of a chart whose section names an engine and lists its ``extraArgs``."""
        sections = list(_walk(root, (), set()))
        found = next(filter(None, map(_engine_section, sections)), None)
        if found is None:
            return None
        trail, node, entry = found
        keys, name = yaml_mapping(node), ".".join(key for _, key in trail)
        self._keep_values(entry, keys)
        limits = yaml_mapping(yaml_mapping(keys.get("resources")).get("limits"))
        gpus = next((self._located(limits[one], node) for one in GPUS if one in limits), None)
        image = yaml_mapping(keys.get("image"))
        unread = self._shown(keys, ("model", "extraArgs", "image"))
        if image:
            parts = [yaml_text(image.get(one)) for one in ("repository", "tag")]
            unread.append((f"image {':'.join(filter(None, parts))}", self._span(keys["image"])))
        container = self._container(node, {}, _Gpus(gpus))
        self._pods.append(_pod("section", name, self._replicas(sections), container, unread))
        for above, key in trail:
            self._others += self._shown(above, (key,))
        return self._manifest("helm")

    def _replicas(self, sections: list[_Section]) -> int:
        """Return the first number of replicas in the values; 0 if they contain none."""
        numbers = (
            self._located(keys[key], node).number
            for _, node in sections
            for keys in (yaml_mapping(node),)
            for key in ("replicaCount", "replicas")
            if key in keys
        )
        return next(filter(None, numbers), 0)

    def _keep_values(self, entry: str, keys: Mapping[str, Node]) -> None:
        """Keep the model and the arguments as the command of the engine."""
        words = [one for one in yaml_items(keys["extraArgs"]) if isinstance(one, ScalarNode)]
        model = keys.get("model")
        start, first = entry, int(keys["extraArgs"].start_mark.line) + 1
        if isinstance(model, ScalarNode):
            start = f"{entry} {model.value}"
            first = min(first, int(model.start_mark.line) + 1)
        lines: dict[int, str] = {first: start}
        for word in words:
            number = int(word.start_mark.line) + 1
            line = lines.get(number, "")
            padding = max(1, int(word.start_mark.column) - len(line))
            lines[number] = f"{line}{' ' * padding}{word.value}"
        end = max(lines)
        for number in range(first, end + 1):
            line = lines.get(number, "")
            self._commands.keep_line(number, f"{line} \\" if number < end else f"{line} {_ADDED}")

    def _container(self, node: Node, keys: Mapping[str, Node], gpus: _Gpus) -> Container:
        """Return the container of a section; its environment is in ``keys``."""
        environment = tuple(self._environment(keys.get("environment", keys.get("env"))))
        lines = (int(node.start_mark.line) + 1, last_line(node))
        image = yaml_text(keys.get("image"))
        return Container(image, lines, True, gpus.count, (), (), environment, (), gpus.type)

    def _environment(self, node: Node | None) -> Iterator[tuple[str, str | None, Span]]:
        """Yield the variables of a list ``NAME=value`` or of a mapping.

        The value is None if it comes from the environment of the user.
        """
        for item in yaml_items(node):
            name, equals, value = yaml_text(item).partition("=")
            own = not equals or re.fullmatch(rf"\$\{{?{re.escape(name)}\}}?", value) is not None
            yield name, None if own else value, self._span(item)
        for name, given in yaml_mapping(node).items():
            text = yaml_text(given)
            own = str(given.tag).endswith(":null") or text in (f"${name}", f"${{{name}}}")
            yield name, None if own else text, self._span(given)

    def _shown(self, keys: Mapping[str, Node], read: tuple[str, ...]) -> list[tuple[str, Span]]:
        """Return (key with its value, position) of the keys outside of ``read``."""
        found = []
        for key, node in keys.items():
            if key not in read:
                items = [text for one in yaml_items(node) if (text := yaml_text(one))]
                value = yaml_text(node) or ", ".join(items[:_SHOWN])
                found.append((f"{key} {value}".rstrip(), self._span(node)))
        return found

    def _manifest(self, platform: str) -> Manifest | None:
        if not len(self._commands):
            return None
        script = self._commands.script()
        return Manifest(script, tuple(self._pods), (), tuple(self._others), platform)

    def _located(self, node: Node | None, above: Node) -> LocatedText:
        return LocatedText(yaml_text(node), self._span(node or above))

    def _span(self, node: Node) -> Span:
        start, end = node.start_mark, node.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Span(self._name, start.line + 1, start.column + 1, max(1, length))
