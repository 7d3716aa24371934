"""Table that ``sinfo`` prints, such as that of ``sinfo -N -o "%N %G %T %P"``.

A line above the rows names the columns (man sinfo, --format), which are separated by spaces or
bars. The default table of sinfo is refused, because it has no column GRES.
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding
from parc.compiler.spec.reading.yaml_tree import SpecTree
from parc.compiler.topology.readers.document import Document, DocumentNode
from parc.compiler.topology.readers.reader_state import Reading

SINFO_HEAD = r"(?m)^[A-Z_:|/() \t]*\b(NODELIST|HOSTNAMES|NODEHOST)\b[A-Z_:|/() \t]*$"
"""Regular expression of the line with the names of the columns."""
_HOSTS = ("NODELIST", "HOSTNAMES", "NODEHOST")
_KEYS = {
    "GRES": "gres",
    "STATE": "state",
    "PARTITION": "partition",
    "AVAIL_FEATURES": "features",
    "ACTIVE_FEATURES": "features",
    "AVAIL_FE": "features",
    "FEATURES": "features",
}
"""Column -> key of the host."""
_STATES = {
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "FUTR": "FUTURE",
    "INVAL": "INVALID",
    "MAINT": "MAINTENANCE",
    "POW_DN": "POWERED_DOWN",
    "UNK": "UNKNOWN",
}
"""Short form of a state (man sinfo, NODE STATE CODES) -> the state."""
_MARKS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "%": "POWERING_DOWN"}
"""Mark behind a state (man scontrol, NODE STATE CODES) -> the state that it means."""


def state_words(text: str) -> list[str]:
    """Return the states in a text of Slurm, in upper case, with those that marks stand for.

    >>> state_words("idle+drain*")
    ['IDLE', 'DRAIN', 'NOT_RESPONDING']
    """
    marks = [_MARKS[mark] for mark in text if mark in _MARKS]
    return [*re.findall(r"[A-Z_]+", text.upper()), *marks]


def sinfo_document(reading: Reading) -> DocumentNode | None:
    """Return the hosts of a table of sinfo in the form of its JSON output; None after an error.

    A host is listed once per partition; its first row counts, with the partitions of all rows.
    """
    lines = reading.lines()
    head = next(line for line in lines if re.search(SINFO_HEAD, line.text))
    columns = _split(head.text, head.text)
    if "GRES" not in columns:
        finding = Finding(
            "the table has no column GRES, so it does not show which hosts have GPUs",
            help='use the output of sinfo -N -o "%N %G %T %P" or of scontrol show nodes',
        )
        reading.report_error("I02", finding, reading.span(head.number, 1, len(head.text)))
        return None
    nodes: dict[str, dict[str, object]] = {}
    spans = {}
    for line in lines:
        values = _split(line.text, head.text, len(columns))
        if len(values) != len(columns):
            finding = Finding(f"the row has {len(values)} columns, the first line {len(columns)}")
            reading.report_error("I02", finding, reading.span(line.number))
            return None
        row = dict(zip(columns, values, strict=True))
        listed = next(row[name] for name in _HOSTS if name in row)
        at = reading.span(line.number, line.text.index(listed) + 1, len(listed))
        for host in reading.expand_host_list(listed, at):
            entry = _host_entry(host, row)
            if host not in nodes:
                spans[f"nodes[{len(nodes)}]"] = at
            known = nodes.setdefault(host, entry)
            known["partitions"] = [*dict.fromkeys([*_words(known), *_words(entry)])]
    if not reading.is_valid:
        return None
    return Document(reading, {"nodes": [*nodes.values()]}, SpecTree(None, spans, {})).root


def _split(text: str, head: str, columns: int = 0) -> list[str]:
    """Return the cells of a row; the last of ``columns`` may contain spaces (REASON)."""
    if "|" in head:
        return [cell.strip() for cell in text.split("|")]
    return text.split(None, columns - 1 if columns else -1)


def _host_entry(host: str, row: dict[str, str]) -> dict[str, object]:
    entry: dict[str, object] = {"name": host, "partitions": []}
    for column, key in _KEYS.items():
        if column not in row:
            continue
        value = "" if row[column] == "(null)" else row[column].strip()
        if key == "state":
            entry[key] = [_STATES.get(word, word) for word in state_words(value)]
        elif key == "partition":
            # A star marks the default partition.
            entry["partitions"] = [value.rstrip("*")] if value else []
        else:
            entry[key] = value
    return entry


def _words(entry: dict[str, object]) -> list[object]:
    found = entry["partitions"]
    return found if isinstance(found, list) else []
