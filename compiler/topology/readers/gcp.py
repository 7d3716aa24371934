"""Reader of Google Cloud: ``gcloud compute instances list --format json``, or the API response.

https://cloud.google.com/compute/docs/instances/view-vm-topology: physicalHostTopology has cluster,
block, subblock and host, from far to near. A subblock is a leaf.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading, some

_TIERS = ("subblock", "block", "cluster")


def read_gcp(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts by name, with subblock, block and cluster as rack and tiers; I04 without them."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    listed = root.items() if isinstance(root.value, list) else root.items("items")
    without: list[str] = []
    for entry in listed:
        if not entry.wants(dict):
            continue
        host, path = entry.text("name", required=True), _path(entry)
        if path:
            reading.place(Located(host, path, None, entry.span))
        else:
            without.append(host)
    if without and reading.hosts:
        finding = Finding(f"instances without physicalHostTopology are left out: {some(without)}")
        reading.say("I04", finding, reading.span())
    if not reading.hosts and reading.sound:
        help_ = (
            "Google Cloud sets resourceStatus.physicalHostTopology on VMs with a placement policy"
        )
        finding = Finding("no instance has a physicalHostTopology", help=help_)
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def _path(entry: Node) -> tuple[str, ...]:
    status = entry.mapping("resourceStatus")
    place = status.mapping("physicalHostTopology") if status is not None else None
    if place is None:
        return ()
    return tuple(place.text(tier, required=True) for tier in _TIERS)
