"""Reader of AWS: the output of ``aws ec2 describe-instance-topology``.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTopology.html: NetworkNodes are
listed from the top of the network down to the layer next to the instance. Instances of an
UltraServer share a CapacityBlockId, which is their NVLink domain (as in topograph,
pkg/providers/aws).
"""

from __future__ import annotations

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.document import read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading, some

_NODE_TYPES = {
    "p4d.24xlarge": "aws-p4d",
    "p4de.24xlarge": "aws-p4de",
    "p5.48xlarge": "aws-p5",
    "p5e.48xlarge": "aws-p5e",
    "p5en.48xlarge": "aws-p5en",
    "p6-b200.48xlarge": "aws-p6-b200",
}


def read_aws(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts by instance id. The nearest network layer is the rack, higher layers are tiers."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    types: dict[str, None] = {}
    for entry in root.items("Instances"):
        if not entry.wants(dict):
            continue
        layers = [layer.value for layer in entry.items("NetworkNodes") if layer.wants(str)]
        if not layers:
            entry.lacks("NetworkNodes")
        host = entry.text("InstanceId", required=True)
        block = entry.text("CapacityBlockId") or None
        # AWS lists the top of the network first; a path starts at the leaf.
        reading.place(Located(host, tuple(reversed(layers)), block, entry.span))
        types[entry.text("InstanceType")] = None
    if root.text("NextToken"):
        finding = Finding(
            "the output is incomplete: it has a NextToken", help="pass the other pages too"
        )
        reading.say("I04", finding, reading.span())
    if not reading.hosts and reading.sound:
        reading.refuse("I02", "the output has no instances", reading.span())
    _set_node_type([kind for kind in types if kind], reading)
    return reading.fragment()


def _set_node_type(types: list[str], reading: Reading) -> None:
    reading.notes.append("hosts are named by instance id; Slurm and ssh use other names")
    if len(types) == 1 and types[0] in _NODE_TYPES:
        reading.spec = {"cluster": {"node": _NODE_TYPES[types[0]]}}
    elif types:
        reading.notes.append(f"instance type {some(types)}")
