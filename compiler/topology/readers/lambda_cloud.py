"""Reader of Lambda Cloud: topology of instances, the nearest switch first, and NVLink domains."""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading


def read_lambda(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts by instance id, with ``networkPath`` as rack and tiers."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    for entry in root.items("data"):
        if not entry.wants(dict):
            continue
        path = [part.text("id", required=True) for part in entry.items("networkPath")]
        host = entry.text("id", required=True)
        reading.place(Located(host, tuple(path), _domain(entry), entry.span))
    if root.text("page_token"):
        finding = Finding(
            "the output is incomplete: it has a page_token", help="pass the other pages too"
        )
        reading.say("I04", finding, reading.span())
    if not reading.hosts and reading.sound:
        reading.refuse("I02", "the output has no instances", reading.span())
    return reading.fragment()


def _domain(entry: Node) -> str | None:
    nvlink = entry.mapping("nvlink")
    domain = nvlink.text("domain_id") if nvlink is not None else ""
    clique = nvlink.text("clique_id") if nvlink is not None else ""
    return (f"{domain}.{clique}" if clique else domain) or None
