"""Rows of the tables in ``rankmap.md``, derived from ``rankmap.json`` and ``plan.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from parc.compiler.verify.read_emitted import unfold_hosts
from parc.compiler.verify.verify_ranks import span_offsets

RANK = ("rank", "host", "GPU")
MOST = {"racks": 10, "stages": 18, "engines": 24}
"""Longest table of each kind; the middle of a longer one is a row with a count."""
GIB = 2**30
EXTENDED = ("dp-cp", "dp-shard-cp")
"""Families that equal others without context parallelism."""
FAMILIES = (
    *("tp", "cp", "cp-a2a", "cp-p2p", "dp", "dp-shard", "dp-replicate", "dp-shard-cp", "dp-cp"),
    *("pp", "etp", "ep", "edp", "efsdp"),
)
"""Families of groups that communicate in a step, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Expected content of a table cell."""

    text: str
    """Content as findings show it."""
    matches: Callable[[str], bool]
    """Predicate that is True for the cell of the page if it has this content."""


Row = Sequence[Cell]


@dataclass(frozen=True)
class PageFacts:
    """Content of ``rankmap.json`` and ``plan.json``."""

    tree: Mapping[str, Any]
    plan: Mapping[str, Any]

    @cached_property
    def each(self) -> int:
        """Number of ranks per host."""
        return int(self.tree["ranks_per_node"])

    @cached_property
    def hosts(self) -> list[str]:
        """Host names by node rank."""
        return [one["name"] for one in self.tree["hosts"]]

    @cached_property
    def racks(self) -> list[str]:
        """Racks by node rank."""
        return [one["rack"] for one in self.tree["hosts"]]

    @cached_property
    def domains(self) -> list[str]:
        """NVLink domains by node rank."""
        return [one["nvlink_domain"] for one in self.tree["hosts"]]

    @cached_property
    def stages(self) -> list[int]:
        """Pipeline stages by rank; some frameworks have no column for a single stage."""
        ranks = self.tree["ranks"]
        return list(ranks["pp"]) if "pp" in ranks else [0] * self.tree["world"]


def exact(text: str) -> Cell:
    """Return a cell with exactly this text."""
    return Cell(text, lambda found: found == text)


def plain_cell(text: str, width: int) -> str:
    """Return ``text`` without Markdown syntax, cut to ``width`` characters."""
    plain = " ".join(text.split()).translate(str.maketrans("\\|`", "//'"))
    return plain if len(plain) <= width else f"{plain[: width - 3]}..."


def number_list(numbers: Iterable[int]) -> Cell:
    """Return a cell with ascending ranges; the page cuts long lists after a whole item."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    full = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
    return Cell(full, lambda found: _is_cut(found, full))


def _is_cut(found: str, full: str) -> bool:
    head = found.removesuffix(", ...")
    return found == full or (head != found and full.startswith(f"{head},"))


def host_list(names: Sequence[str]) -> Cell:
    """Return a cell with the names of hosts in any notation; the page cuts long lists."""
    wanted = sorted(set(names))
    shown = ",".join(wanted[:3]) + (",..." if len(wanted) > 3 else "")
    return Cell(shown, lambda found: _lists_hosts(found, wanted))


def _lists_hosts(found: str, names: list[str]) -> bool:
    head = found.removesuffix(", ...")
    head = f"{head.removesuffix(',...]')}]" if head.endswith(",...]") else head
    if head == found and found.endswith("..."):
        # A single name that is too long.
        return any(one.startswith(found[:-3]) for one in names)
    listed = unfold_hosts(head) or []
    return sorted(listed) == names if head == found else {*listed} < {*names}


def _shortened(rows: list[Row], kind: str, gap: str, column: int = 1) -> list[Row]:
    """Return the rows, and the number of others in ``column`` instead of the middle ones."""
    most = MOST[kind]
    if len(rows) <= most:
        return rows
    texts = ["..."] + [""] * (len(rows[0]) - 1)
    texts[column] = f"{len(rows) - most + 1} more {gap}"
    return [*rows[: most - 2], list(map(exact, texts)), rows[-1]]


def stage_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the pipeline stages of a training job."""
    chunks = facts.plan["layout"]["split"]["chunks"]
    ranks: dict[int, list[int]] = {}
    for rank, stage in enumerate(facts.stages):
        ranks.setdefault(stage, []).append(rank)
    runs = [[stage] for stage in range(len(chunks))]
    if len(chunks) > MOST["stages"]:
        runs = [list(run) for _, run in groupby(range(len(chunks)), lambda at: _parts(chunks[at]))]
    rows: list[Row] = []
    for run in runs:
        members = [rank for stage in run for rank in ranks[stage]]
        # Several stages show only their first and their last rank.
        single, ends = len(run) == 1, f"{min(members)}-{max(members)}"
        nodes = {rank // facts.each for rank in members}
        rows.append(
            [
                number_list(run),
                number_list(members) if single else exact(ends),
                number_list(nodes),
                host_list([facts.hosts[node] for node in nodes]),
                _layers([chunks[stage] for stage in run]),
            ]
        )
    return _shortened(rows, "stages", "rows")


def _parts(chunks: Sequence[Mapping[str, Any]]) -> tuple[int, int, bool, bool]:
    """Return the numbers of layers and MTP layers of a stage, and if it embeds and has the loss."""
    return (
        sum(one["layers"] for one in chunks),
        sum(one["mtp_layers"] for one in chunks),
        any(one["embedding"] for one in chunks),
        any(one["loss"] for one in chunks),
    )


def _layers(stages: Sequence[Sequence[Mapping[str, Any]]]) -> Cell:
    layers, mtp, embedding, loss = _parts(stages[0])
    extras = [*(["embedding"] if embedding else []), *(["loss"] if loss else [])]
    rest = "".join(f" + {one}" for one in (*extras, *([f"{mtp} MTP"] if mtp else [])))
    if len(stages) > 1:
        return exact(f"{layers} each{rest}")
    owned = [
        layer
        for one in stages[0]
        for layer in range(one["first_layer"], one["first_layer"] + one["layers"])
    ]
    listed = number_list(owned) if owned else exact("none")
    return Cell(
        f"{listed.text}{rest}",
        lambda found: found.endswith(rest) and listed.matches(found[: len(found) - len(rest)]),
    )


def serving_stage_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the pipeline stages of a serving job."""
    rows: list[Row] = []
    first = 0
    for one in facts.plan["stages"]:
        last = first + one["layers"] - 1
        sizes = (one["weights_bytes"], one["cache_bytes"])
        rows.append(
            [
                exact(str(one["stage"])),
                exact(f"{first}-{last}"),
                *(one_of([f"{near / GIB:.2f}" for near in _nearby(size)]) for size in sizes),
                exact(f"{one['blocks']:,}"),
            ]
        )
        first = last + 1
    return _shortened(rows, "stages", "stages")


def engine_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the engines of a serving job."""
    ranks: dict[int, list[int]] = {}
    for rank, replica in enumerate(facts.tree["ranks"]["replica"]):
        ranks.setdefault(replica, []).append(rank)
    rows: list[Row] = []
    for replica, members in sorted(ranks.items()):
        nodes = {rank // facts.each for rank in members}
        local = [rank % facts.each for rank in members]
        rows.append(
            [
                exact(str(replica)),
                exact(f"{min(members)}-{max(members)}"),
                number_list(nodes),
                host_list([facts.hosts[node] for node in nodes]),
                exact(f"{min(local)}-{max(local)}"),
            ]
        )
    return _shortened(rows, "engines", "engines")


def rack_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the racks, by their first node rank."""
    nodes: dict[str, list[int]] = {}
    for node, rack in enumerate(facts.racks):
        nodes.setdefault(rack, []).append(node)
    each, stages = facts.each, facts.stages
    rows: list[Row] = [
        [
            exact(plain_cell(rack, 24)),
            exact(str(len(inside))),
            host_list([facts.hosts[node] for node in inside]),
            number_list(inside),
            number_list(one for node in inside for one in stages[node * each : node * each + each]),
        ]
        for rack, inside in nodes.items()
    ]
    return _shortened(rows, "racks", "racks", column=2)


def group_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the families of process groups with two or more ranks."""
    plan, tree = facts.plan, facts.tree
    routed = "service" not in plan["problem"] and plan["problem"]["model"]["experts"] is not None
    rows: list[Row] = []
    for name in FAMILIES:
        group = tree["groups"].get(name)
        hidden = name in EXTENDED and tree["sizes"]["cp"] == 1
        if group is None or hidden or group["size"] == 1:
            continue
        if group["mesh"] == "expert" and not routed:
            continue
        *counts, most = _extent(facts, group)
        texts = [str(count) if count else "-" for count in counts]
        sizes = f"{group['count']} x {group['size']}"
        rows.append(list(map(exact, (name, sizes, *texts, str(most)))))
    return rows


def _extent(facts: PageFacts, group: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    """Return the groups within a host, an NVLink domain, a rack and several racks; most racks."""
    members = span_offsets(group["within"], group["size"]) or []
    bases = span_offsets(group["across"], group["count"]) or []
    each, most = facts.each, 1
    largest = max(member % each for member in members)
    offsets = {member // each for member in members}
    counts, levels = [0, 0, 0, 0], dict[int, int]()
    for base in bases:
        node, slot = divmod(base, each)
        # Groups that start on the same host visit the same hosts, unless their ranks wrap around.
        wraps = slot + largest >= each
        level = None if wraps else levels.get(node)
        if level is None:
            nodes = (
                {(base + one) // each for one in members}
                if wraps
                else {node + one for one in offsets}
            )
            racks = len({facts.racks[one] for one in nodes})
            most = max(most, racks)
            inside = len({facts.domains[one] for one in nodes}) == 1
            level = 0 if len(nodes) == 1 else 1 if inside else 2 if racks == 1 else 3
            if not wraps:
                levels[node] = level
        counts[level] += 1
    return counts[0], counts[1], counts[2], counts[3], most


def order_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the host orders that the placement compared."""
    return [
        [
            exact(one["name"]),
            one_of(shown_bytes(one["uplink_bytes"])),
            one_of(shown_duration(one["exposed_seconds"])),
            exact("**chosen**" if one["chosen"] else ""),
        ]
        for one in facts.plan["placement"]["alternatives"]
    ]


def rank_rows(facts: PageFacts, count: int, columns: Sequence[str]) -> list[Row]:
    """Return the rows of the first ``count`` ranks."""
    devices = facts.plan["placement"].get("devices") or range(facts.each)
    rows: list[Row] = []
    for rank in range(count):
        node, slot = divmod(rank, facts.each)
        places = (str(facts.tree["ranks"][name][rank]) for name in columns)
        host = plain_cell(facts.hosts[node], 40)
        rows.append(list(map(exact, (str(rank), host, str(devices[slot]), *places))))
    return rows


def one_of(texts: Sequence[str]) -> Cell:
    """Return a cell with the first text, or another one that differs by rounding."""
    return Cell(texts[0], lambda found: found in texts)


def _nearby(value: float) -> tuple[float, float, float]:
    """Return a number and its neighbors, because plan.json has six digits."""
    return value, value * (1 - 1e-5), value * (1 + 1e-5)


def shown_duration(seconds: float) -> list[str]:
    """Return a duration as the page may show it."""
    return [f"{one * 1e3:.3g} ms" if one < 1 else f"{one:.3g} s" for one in _nearby(seconds)]


def shown_bytes(size: float) -> list[str]:
    """Return a number of bytes as the page may show it."""
    return [
        f"{one / 1e9:.3g} GB" if one < 1e12 else f"{one / 1e12:.3g} TB" for one in _nearby(size)
    ]
