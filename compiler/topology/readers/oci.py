"""Reader of Oracle Cloud: compute hosts of the API, or rdmaTopologyData of the hosts.

https://docs.oracle.com/iaas/api, ComputeHost: a local block is part of a network block, which is
part of an HPC island. The metadata of a host (``/opc/v2/host/rdmaTopologyData``) has the same data
under other keys.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading

_API = ("localBlockId", "networkBlockId", "hpcIslandId", "gpuMemoryFabricId")
_METADATA = (
    "customerLocalBlock",
    "customerNetworkBlock",
    "customerHPCIslandId",
    "customerGpuMemoryFabric",
)


def read_oci(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts by hostname or id; local block, network block and island are rack and tiers."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    for entry in _hosts(root):
        if not entry.wants(dict):
            continue
        keys = _METADATA if entry.child("customerLocalBlock") is not None else _API
        path = tuple(entry.text(key, required=True) for key in keys[:3])
        domain = entry.text(keys[3]) or None
        host = entry.text("hostname") or entry.text("instanceId")
        host = host or entry.text("customerHostId") or entry.text("id", required=True)
        reading.place(Located(host, path, domain, entry.span))
    if not reading.hosts and reading.sound:
        reading.refuse("I02", "the output has no hosts", reading.span())
    reading.notes.append("hosts are named by OCID; Slurm and ssh use other names")
    return reading.fragment()


def _hosts(root: Node) -> list[Node]:
    """Return the entries: ``items`` (API), ``data.items`` (command line), a list, or one host."""
    if isinstance(root.value, list):
        return root.items()
    data = root.child("data")
    if data is not None:
        return data.items() if isinstance(data.value, list) else data.items("items")
    return root.items("items") if root.child("items") is not None else [root]
