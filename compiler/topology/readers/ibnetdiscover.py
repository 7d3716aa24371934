"""Reader of InfiniBand fabrics: the output of ``ibnetdiscover``, or ``ibdiagnet2.lst``.

Format: https://github.com/linux-rdma/rdma-core, infiniband-diags: one block per device that starts
with ``Switch`` or ``Ca``, then one line per port. The host of an adapter is the first word of its
comment.
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.ib_graph import LANE_GBPS, Graph, place_hosts
from parc.compiler.topology.readers.reading import HOST_NAME, Line, Reading

_DEVICE = re.compile(r'(Switch|Ca|Rt)\s+[0-9]+\s+"([^"]{1,40})"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(r'\[([0-9]{1,4})\](?:\([0-9a-fx]+\))?\s+"([^"]{1,40})"\[([0-9]{1,4})\]')
_RATE = re.compile(r"\b([0-9]{1,2})x([A-Z]DR(?:10)?)\b")
_HEADS = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid|DR path|$)")
_END = re.compile(
    r"\{ (SW|CA) Ports:\w+ SystemGUID:\w+ NodeGUID:(\w{1,20}) "
    r".*?\{([^}]*)\} LID:\w+ PN:(\w{1,4}) \}"
)
_SPEED = re.compile(r"\bPHY=([0-9]{1,2})x\b.*\bSPD=([0-9]{1,4}(?:\.[0-9]+)?)\b")
LONGEST_LINE = 2000


def read_ibnetdiscover(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read racks from leaf switches, tiers above, and NICs and oversubscription from the cables."""
    reading = Reading(text, name, sink)
    graph = Graph()
    device = ""
    for line in reading.lines():
        if len(line.text) > LONGEST_LINE:
            finding = Finding(
                f"line of {len(line.text)} characters", f"the limit is {LONGEST_LINE}"
            )
            reading.refuse("I06", finding, reading.span(line.number))
        elif line.text.startswith("{"):
            _read_cable(line, graph, reading)
        else:
            device = _read_block_line(line, device, graph, reading)
    _check_ends(graph, reading)
    if reading.sound:
        place_hosts(graph, reading)
    if not reading.hosts and reading.sound:
        finding = Finding(
            "no host is connected to a switch in this file", help="run ibnetdiscover as root"
        )
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def _read_block_line(line: Line, device: str, graph: Graph, reading: Reading) -> str:
    """Add a line of ibnetdiscover to the graph; return the device of the following ports."""
    text = line.text.strip()
    if text.startswith("#") or _HEADS.match(text):
        return device
    found = _DEVICE.match(text)
    if found:
        span = reading.span(line.number, line.text.index(found[2]) + 1, len(found[2]))
        if found[1] == "Switch":
            graph.switches[found[2]] = switch_name(found[3] or "", found[2])
        elif found[1] == "Ca":
            _adapter(found[2], found[3] or "", graph)
        graph.spans.setdefault(found[2], span)
        return found[2]
    port = _PORT.match(text)
    if port is None or not device:
        problem = "is not a device or a port" if device else "comes before the first device"
        finding = Finding(f"{text[:40]!r} {problem}", help='[1] "H-guid"[1] # "host hca" 4xNDR')
        reading.refuse("I01", finding, reading.span(line.number, 1, len(line.text)))
        return device
    rate = _RATE.search(text)
    gbps = int(rate[1]) * LANE_GBPS.get(rate[2], 0.0) if rate else 0.0
    graph.join((device, port[1]), (port[2], port[3]), gbps)
    graph.spans.setdefault(port[2], reading.span(line.number, line.text.index(port[2]) + 1))
    return device


def switch_name(comment: str, guid: str) -> str:
    """Return the name in ``MF0;leaf1:MQM9700/U1`` (leaf1), else the comment, else the GUID."""
    name = comment.partition(";")[2].partition(":")[0] or comment
    return name.strip() or guid


def _adapter(guid: str, comment: str, graph: Graph) -> None:
    """Add the adapter of a host. Adapters of switches (aggregation nodes) are ignored."""
    host, _, device = comment.partition(" ")
    if device and HOST_NAME.fullmatch(host) and "aggregation" not in comment.lower():
        graph.nics[guid] = (host, device.strip()[:40])


def _check_ends(graph: Graph, reading: Reading) -> None:
    """Report I03 for a cable to a switch without a block."""
    known = graph.switches.keys()
    lost = {end for cable in graph.cables for end, _ in cable if end.startswith("S-")} - known
    for end in sorted(lost):
        finding = Finding(
            f"switch {end} has a cable but no block in the file", "no block for this switch"
        )
        reading.refuse("I03", finding, graph.spans.get(end, reading.span()))


def _read_cable(line: Line, graph: Graph, reading: Reading) -> None:
    """Add a line of ibdiagnet2.lst: both ends, lane width and speed."""
    ends = list(_END.finditer(line.text))
    speed = _SPEED.search(line.text)
    if len(ends) != 2 or speed is None:
        finding = Finding(
            "this line does not describe a cable",
            help="{ SW ... } { CA ... } PHY=4x LOG=ACT SPD=100",
        )
        reading.refuse("I01", finding, reading.span(line.number, 1, len(line.text)))
        return
    for end in ends:
        guid = end[2]
        graph.spans.setdefault(guid, reading.span(line.number, end.start(2) + 1, len(guid)))
        if end[1] == "SW":
            graph.switches[guid] = switch_name(end[3], guid)
        else:
            _adapter(guid, end[3], graph)
    one, other = ((end[2], end[4]) for end in ends)
    graph.join(one, other, int(speed[1]) * float(speed[2]))
