"""Readers of the topology that nvidia-smi prints: links of one host, NVLink domains of all hosts.

Links of one host: ``nvidia-smi topo -m`` or ``topo -p2p``
(https://docs.nvidia.com/deploy/nvidia-smi). Cells are NV# (a bond of # NVLinks), PIX, PXB, PHB,
NODE, SYS, from near to far. A matrix covers one host, so a tray of an NVL72 looks like a single
host.

NVLink domain of each host: ``nvidia-smi --query-gpu=fabric.clusterUuid,fabric.cliqueId
--format=csv,noheader``, called the fabric query here. It prints one line per GPU. The host name is
the prefix ``host:`` that pdsh and clush print, or else the name of the file.
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.readers.reader_state import (
    HOST_NAME,
    Fragment,
    InputLine,
    LocatedHost,
    Reading,
)

# nvidia-smi underlines the header with terminal escape sequences.
_ANSI = re.compile(r"\x1b\[[0-9;]{0,10}m")
_LINK = re.compile(r"NV([0-9]{1,3})")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}):\s*([\w.-]{1,64})\s*")
_NIC = re.compile(
    r"(?:NIC[0-9]{1,3}|mlx5_[\w]{1,16}|bnxt_re[\w]{1,16}|rdma[\w]{1,16}|efa_[\w]{1,16})"
)
_GPU = re.compile(r"GPU([0-9]{1,3})")
_TITLE = re.compile(r"(?:CPU|NUMA)[ _]Affinity|GPU[ _]NUMA[ _]ID")
"""Titles of columns that do not describe connections."""
# From near to far; SOC is what old drivers print for SYS.
DISTANCE = {"X": 0, "PIX": 1, "PSB": 2, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
# Cells of topo -p2p: OK, or a reason why two GPUs have no peer access.
P2P = {"X", "OK", "NS", "CNS", "GNS", "TNS", "DR", "U"}
MOST_GPUS = 64
Cells = dict[tuple[str, str], tuple[str, Span]]
"""Text and position of every cell, by (row, column)."""


@frozen
class LinkMatrix:
    """Table of connections between GPUs and NICs, with the position of each cell in the file."""

    columns: tuple[str, ...]
    cells: Cells

    @property
    def gpus(self) -> list[str]:
        """Return the names of the GPU columns in device order."""
        return [name for name in self.columns if _GPU.fullmatch(name)]

    def cell(self, row: str, column: str) -> str:
        """Return the text of a cell of the table; empty if there is no such cell."""
        return self.cells.get((row, column), ("",))[0]


def read_nvidia_topology(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read the output of nvidia-smi: the link matrix of one host, or a fabric query of all hosts.

    A link matrix gives the number of GPUs, the size of the NVLink domain, the NICs for compute
    traffic, and the NUMA node and NIC of every GPU. A fabric query gives the NVLink domain of every
    host.
    """
    reading = Reading(_ANSI.sub("", text), name, sink)
    if is_fabric_query(reading.text):
        return read_fabric_query(reading)
    matrix = _read_matrix(reading)
    if matrix is None:
        return None
    # NV# in topo -m, OK in topo -p2p.
    linked = {
        (row, column)
        for row in matrix.gpus
        for column in matrix.gpus
        if _LINK.fullmatch(matrix.cell(row, column)) or matrix.cell(row, column) == "OK"
    }
    peer = any(matrix.cell(row, column) in P2P - {"X"} for row, column in matrix.cells)
    _check_symmetry(matrix, linked, reading)
    domain = _nvlink_domain_size(matrix, linked, reading)
    node: dict[str, object] = {"gpus_per_node": len(matrix.gpus), "nvlink_domain": domain}
    if domain == 1:
        node["link_kind"] = "pcie"
    elif not peer:
        node["link_kind"] = "nvlink"
    _add_link_notes(matrix, linked, domain, reading)
    node |= _numa_and_nics(matrix, reading)
    reading.spec = {"cluster": {"node": node}}
    if matrix.cells:
        reading.spans["cluster.node"] = next(iter(matrix.cells.values()))[1]
    return reading.fragment()


def _read_matrix(reading: Reading) -> LinkMatrix | None:
    """Return the table of connections between the GPUs and NICs of a host.

    Returns None after an error, such as a missing header (I02) or a short row (I01).
    """
    columns: tuple[str, ...] = ()
    cells: Cells = {}
    for line in reading.lines():
        words = _cells_of_line(line.text)
        if not columns:
            columns = tuple(word for word in words[1:] if word) if "GPU0" in words else ()
        elif words[0] in columns:
            _add_row(line, words, columns, (cells, reading))
        elif not line.text.strip().startswith(("Legend", "NIC")) and "=" not in line.text:
            finding = Finding("this line is not a row of the matrix", "no column has this name")
            reading.report_error("I01", finding, reading.span(line.number))
    matrix = LinkMatrix(columns, cells)
    return matrix if _is_valid_matrix(matrix, reading) else None


def _cells_of_line(text: str) -> list[str]:
    """Return the cells of a line of the link matrix.

    Cells are separated by tabs, or by spaces if a terminal replaced the tabs.
    """
    if "\t" in text:
        return [word.strip() for word in text.split("\t")]
    found = _TITLE.sub(lambda match: match[0].replace(" ", "_"), text).split()
    words = [word.replace("_", " ") if _TITLE.match(word) else word for word in found]
    return ["", *words] if words[:1] == ["GPU0"] and "GPU1" in words[:2] else words


def _add_row(
    line: InputLine, words: list[str], columns: tuple[str, ...], known: tuple[Cells, Reading]
) -> None:
    """Add the cells of a row to the table; report a row with fewer cells than the header (I01).

    ``words`` contains the cells. ``known`` is (table, state of the file).
    """
    cells, reading = known
    wanted = [name for name in columns if not _TITLE.match(name)]
    if len(words) <= len(wanted):
        finding = Finding(
            f"row {words[0]} has {len(words) - 1} cells; the header has {len(wanted)}",
            help="redirect the unchanged output to a file: nvidia-smi topo -m > FILE",
        )
        reading.report_error("I01", finding, reading.span(line.number, 1, len(line.text)))
        return
    start = len(words[0])
    for column, word in zip(columns, words[1:], strict=False):
        start = max(line.text.find(word, start), start)
        cells[words[0], column] = word, reading.span(line.number, start + 1, len(word))
        start += len(word)


def _is_valid_matrix(matrix: LinkMatrix, reading: Reading) -> bool:
    """Return True if the link matrix has no errors.

    Reports a missing header, a GPU without a row, too many GPUs (I02), and unknown types of
    connections (I01).
    """
    if not matrix.columns:
        help_ = "the first line must contain GPU0, GPU1, ... between tabs"
        reading.report_error(
            "I02", Finding("the file has no GPU matrix", help=help_), reading.span()
        )
    expected = [f"GPU{number}" for number in range(len(matrix.gpus))]
    if matrix.gpus != expected or len(expected) > MOST_GPUS:
        message = (
            f"the columns are {', '.join(matrix.gpus[:8])}; expected GPU0, GPU1, ..., at most "
            f"{MOST_GPUS} GPUs"
        )
        reading.report_error("I02", message, reading.span())
    for name in expected:
        if reading.is_valid and (name, name) not in matrix.cells:
            finding = Finding(f"the matrix has no row for {name}", "GPU without a row")
            reading.report_error("I02", finding, reading.span())
    for (row, column), (word, span) in matrix.cells.items():
        known = word in DISTANCE or word in P2P or _LINK.fullmatch(word)
        if _GPU.fullmatch(row) and not _TITLE.match(column) and not known:
            finding = Finding(
                f"{word[:20]!r} is not a type of connection",
                help="valid types: NV#, PIX, PXB, PHB, NODE, SYS",
            )
            reading.report_error("I01", finding, span)
    return reading.is_valid


def _check_symmetry(matrix: LinkMatrix, linked: set[tuple[str, str]], reading: Reading) -> None:
    for row, column in sorted(linked):
        there, back = matrix.cell(row, column), matrix.cell(column, row)
        if there != back and row < column:
            finding = Finding(
                f"the connection {row} to {column} is {there}, but {column} to {row} is {back}"
            )
            reading.report_error("I03", finding, matrix.cells[row, column][1])


def _nvlink_domain_size(matrix: LinkMatrix, linked: set[tuple[str, str]], reading: Reading) -> int:
    """Return the number of GPUs in each NVLink group of the host.

    An NVLink group is a set of GPUs that are connected by NVLink. Reports groups of different sizes
    (I03).
    """
    groups: list[set[str]] = []
    for gpu in matrix.gpus:
        near = {gpu, *(other for other in matrix.gpus if (gpu, other) in linked)}
        touching = [group for group in groups if group & near]
        # Connected components: on a hybrid mesh (V100) not all pairs have a direct link.
        groups = [group for group in groups if group not in touching] + [near.union(*touching)]
    sizes = sorted({len(group) for group in groups})
    if len(sizes) > 1:
        finding = Finding(
            f"NVLink groups in one host have different sizes: {' and '.join(map(str, sizes))} GPUs",
            help="PARC supports only hosts with NVLink groups of equal size",
        )
        reading.report_error("I03", finding, matrix.cells["GPU0", "GPU0"][1])
    return sizes[0] if sizes else 1


def _add_link_notes(
    matrix: LinkMatrix, linked: set[tuple[str, str]], domain: int, reading: Reading
) -> None:
    bonds = sorted({matrix.cell(*pair) for pair in linked} - {"OK"})
    if bonds:
        reading.notes.append(
            f"{', '.join(bonds)}: NVLinks per pair of GPUs; link_gb_per_s depends on the GPU"
        )
    if domain > 1:
        reading.notes.append(
            "the matrix covers one host; the fabric query shows if its NVLink domain spans hosts"
        )


def _numa_and_nics(matrix: LinkMatrix, reading: Reading) -> dict[str, object]:
    """Return the fields ``gpu_numa``, ``nics``, ``nic_names`` and ``gpu_nics`` of the node type.

    GPUs that are equally near to several NICs are distributed evenly over these NICs.
    """
    found: dict[str, object] = {}
    numa = [re.match(r"[0-9]{1,4}", matrix.cell(gpu, "NUMA Affinity")) for gpu in matrix.gpus]
    if numa and all(numa):
        found["gpu_numa"] = [int(match[0]) for match in numa if match]
    legend = (_LEGEND.fullmatch(line.text) for line in reading.lines())
    names = {match[1]: match[2] for match in legend if match}
    nearest = {gpu: _nics_nearest_to_gpu(matrix, gpu) for gpu in matrix.gpus}
    wanted = {nic for nics in nearest.values() for nic in nics}
    compute = [name for name in matrix.columns if name in wanted]
    if not compute:
        return found
    found |= {"nics": len(compute), "nic_names": [names.get(nic, nic) for nic in compute]}
    used = dict.fromkeys(compute, 0)
    each = []
    for gpu in matrix.gpus:
        if nearest[gpu]:
            # The least used NIC, so that GPUs share a NIC only if there are too few.
            nic = min(nearest[gpu], key=lambda name: used[name])
            used[nic] += 1
            each.append(names.get(nic, nic))
    if len(each) == len(matrix.gpus):
        found["gpu_nics"] = each
    return found


def _nics_nearest_to_gpu(matrix: LinkMatrix, gpu: str) -> list[str]:
    """Return the names of the NICs nearest to ``gpu``; empty if all NICs are on other sockets."""
    nics = [name for name in matrix.columns if _NIC.fullmatch(name)]
    away = {nic: DISTANCE.get(matrix.cell(gpu, nic), DISTANCE["SYS"]) for nic in nics}
    least = min(away.values(), default=DISTANCE["SYS"])
    return [nic for nic in nics if away[nic] == least < DISTANCE["SYS"]]


_ROW = re.compile(
    r"\s*(?:([A-Za-z0-9][\w.-]{0,252}):\s*)?([0-9a-fA-F-]{36}|\[?N/A\]?)\s*,\s*([0-9]{1,10}|\[?N/A\]?)\s*"
)
_HEADER = re.compile(r".{0,300}fabric\.clusterUuid", re.IGNORECASE)
_NO_DOMAIN = "00000000-0000-0000-0000-000000000000"


def is_fabric_query(text: str) -> bool:
    """Return True if ``text`` is the output of nvidia-smi for a query of ``fabric.clusterUuid``."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return bool(_ROW.fullmatch(first[:400]) or _HEADER.match(first))


def read_fabric_query(reading: Reading) -> Fragment | None:
    """Read the NVLink domain of every host from a fabric query of nvidia-smi.

    The name of a domain is ``<cluster UUID>.<clique>``. Reports a host whose GPUs are in different
    domains (I03).
    """
    own = _host_name_of_file(reading.file)
    domains: dict[str, tuple[str | None, int]] = {}
    counts: dict[str, int] = {}
    for line in reading.lines():
        match = _ROW.fullmatch(line.text[:400])
        if match is None:
            if not _HEADER.match(line.text):
                finding = Finding("this line is not of the form `UUID, clique`")
                reading.report_error("I01", finding, reading.span(line.number))
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
                label=f"line {where} assigns {host} to domain {before}",
                help="a GPU may have failed to join its fabric; see Fabric State in nvidia-smi -q",
            )
            reading.report_error("I03", finding, reading.span(line.number, 1, len(line.text)))
    for host, (domain, number) in domains.items():
        reading.add_host(LocatedHost(host, (), domain, reading.span(number)))
    if counts and len(set(counts.values())) == 1:
        reading.spec = {"cluster": {"node": {"gpus_per_node": min(counts.values())}}}
    reading.notes.append("lines without a host name get the name of their file")
    return reading.fragment()


def _host_name_of_file(file: str) -> str:
    """Return the host name that a file is named after, such as n1 for ``logs/n1.csv``.

    Returns ``host`` if the file name is not a valid host name.
    """
    stem = file.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return stem if HOST_NAME.fullmatch(stem) else "host"
