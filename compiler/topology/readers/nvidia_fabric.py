"""Reader of the NVIDIA driver's fabric query: NVLink domain of each host.

``nvidia-smi --query-gpu=fabric.clusterUuid,fabric.cliqueId --format=csv,noheader`` prints one line
per GPU. A prefix ``host: ``, as pdsh and clush print it, names the host; otherwise the file name
does.
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import HOST_NAME, Reading

_ROW = re.compile(
    r"\s*(?:([A-Za-z0-9][\w.-]{0,252}):\s*)?([0-9a-fA-F-]{36}|\[?N/A\]?)\s*,\s*([0-9]{1,10}|\[?N/A\]?)\s*"
)
_HEADER = re.compile(r".{0,300}fabric\.clusterUuid", re.IGNORECASE)
_NO_DOMAIN = "00000000-0000-0000-0000-000000000000"


def is_fabric(text: str) -> bool:
    """Return True if the first line is a line of the query or its header."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return bool(_ROW.fullmatch(first[:400]) or _HEADER.match(first))


def read_fabric(reading: Reading) -> Fragment | None:
    """Read the NVLink domain of every host, ``<cluster UUID>.<clique>``; I03 for a host in two."""
    own = _stem(reading.file)
    domains: dict[str, tuple[str | None, int]] = {}
    counts: dict[str, int] = {}
    for line in reading.lines():
        match = _ROW.fullmatch(line.text[:400])
        if match is None:
            if not _HEADER.match(line.text):
                finding = Finding(f"{line.text.strip()[:40]!r} is not of the form `UUID, clique`")
                reading.refuse("I01", finding, reading.span(line.number, 1, len(line.text)))
            continue
        host = match[1] or own
        # The driver prints N/A or a zero UUID for GPUs without a fabric.
        known = "N/A" not in match[2] + match[3] and match[2] != _NO_DOMAIN
        domain = f"{match[2]}.{match[3]}" if known else None
        before, where = domains.setdefault(host, (domain, line.number))
        counts[host] = counts.get(host, 0) + 1
        if before != domain:
            finding = Finding(
                f"GPUs of {host} are in NVLink domains {before} and {domain}",
                label=f"line {where} has {before}",
                help="a GPU may have failed to join its fabric: see Fabric State of nvidia-smi -q",
            )
            reading.refuse("I03", finding, reading.span(line.number, 1, len(line.text)))
    for host, (domain, number) in domains.items():
        reading.place(Located(host, (), domain, reading.span(number)))
    if counts and len(set(counts.values())) == 1:
        reading.spec = {"cluster": {"node": {"gpus_per_node": min(counts.values())}}}
    reading.notes.append("lines without a host name get the name of their file")
    return reading.fragment()


def _stem(file: str) -> str:
    """Return the host name in a path: ``logs/n1.csv`` -> n1; ``host`` if it is not a valid name."""
    stem = file.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return stem if HOST_NAME.fullmatch(stem) else "host"
