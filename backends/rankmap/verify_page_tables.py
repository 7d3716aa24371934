"""Rows of the tables in ``rankmap.md``, derived from ``rankmap.json`` and ``plan.json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import unfold_hosts
from parc.compiler.verify.verify_ranks import span_offsets

RANK = ("rank", "host", "GPU")
MOST = {"racks": 10, "stages": 18, "engines": 24}
"""Maximum number of rows of each table. In a longer table, one row with a count replaces the rows
in the middle."""
GIB = 2**30
EXTENDED = ("dp-cp", "dp-shard-cp")
"""Families whose groups equal those of another family if there is no context parallelism."""
FAMILIES = (
    *("tp", "gtp", "cp", "cp-a2a", "cp-p2p", "dp", "dp-shard", "dp-replicate", "dp-shard-cp"),
    *("dp-cp", "pp", "etp", "ep", "egtp", "edp", "edp-shard", "efsdp"),
)
"""Families of groups that communicate in a step, in the order of the table."""


@frozen
class ExpectedCell:
    """Expected content of a table cell."""

    text: str
    """Content as findings show it."""
    matches: Callable[[str], bool]
    """Function that returns True if the text of a cell of the page has this content."""


Row = Sequence[ExpectedCell]


@frozen(slots=False)
class PageFacts:
    """Content of ``rankmap.json`` and ``plan.json``."""

    tree: Mapping[str, Any]
    plan: Mapping[str, Any]

    @cached_property
    def ranks_per_host(self) -> int:
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


def exact_cell(text: str) -> ExpectedCell:
    """Return a cell whose text must be ``text``."""
    return ExpectedCell(text, lambda found: found == text)


def plain_cell(text: str, width: int) -> str:
    """Return ``text`` without Markdown syntax, cut to ``width`` characters."""
    plain = " ".join(text.split()).translate(str.maketrans("\\|`", "//'"))
    return plain if len(plain) <= width else f"{plain[: width - 3]}..."


def ranges_cell(numbers: Iterable[int]) -> ExpectedCell:
    """Return the expected cell that lists ``numbers`` as ranges; a shortened list is accepted."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    full = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
    return ExpectedCell(full, lambda found: _is_cut_list(found, full))


def _is_cut_list(found: str, full: str) -> bool:
    head = found.removesuffix(", ...")
    return found == full or (head != found and full.startswith(f"{head},"))


def hosts_cell(names: Sequence[str]) -> ExpectedCell:
    """Return a cell whose text must list the hosts ``names``; the page may cut a long list."""
    wanted = sorted(set(names))
    shown = ",".join(wanted[:3]) + (",..." if len(wanted) > 3 else "")
    return ExpectedCell(shown, lambda found: _lists_hosts(found, wanted))


def _lists_hosts(found: str, names: list[str]) -> bool:
    head = found.removesuffix(", ...")
    head = f"{head.removesuffix(',...]')}]" if head.endswith(",...]") else head
    if head == found and found.endswith("..."):
        # A single name that is too long.
        return any(one.startswith(found[:-3]) for one in names)
    listed = unfold_hosts(head) or []
    return sorted(listed) == names if head == found else {*listed} < {*names}


def _without_middle_rows(rows: list[Row], kind: str, gap: str, column: int = 1) -> list[Row]:
    """Return the rows that the page shows.

    If there are too many, those in the middle are replaced by one row, whose cell in ``column``
    states their number.
    """
    most = MOST[kind]
    if len(rows) <= most:
        return rows
    texts = ["..."] + [""] * (len(rows[0]) - 1)
    texts[column] = f"{len(rows) - most + 1} more {gap}"
    return [*rows[: most - 2], list(map(exact_cell, texts)), rows[-1]]


def stage_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the pipeline stages of a training job."""
    chunks = facts.plan["layout"]["split"]["chunks"]
    ranks: dict[int, list[int]] = {}
    for rank, stage in enumerate(facts.stages):
        ranks.setdefault(stage, []).append(rank)
    runs = [[stage] for stage in range(len(chunks))]
    if len(chunks) > MOST["stages"]:
        runs = [
            list(run)
            for _, run in groupby(range(len(chunks)), lambda at: _stage_contents(chunks[at]))
        ]
    rows: list[Row] = []
    for run in runs:
        members = [rank for stage in run for rank in ranks[stage]]
        # Several stages show only their first and their last rank.
        single, ends = len(run) == 1, f"{min(members)}-{max(members)}"
        nodes = {rank // facts.ranks_per_host for rank in members}
        rows.append(
            [
                ranges_cell(run),
                ranges_cell(members) if single else exact_cell(ends),
                ranges_cell(nodes),
                hosts_cell([facts.hosts[node] for node in nodes]),
                _layers_cell([chunks[stage] for stage in run]),
            ]
        )
    return _without_middle_rows(rows, "stages", "rows")


def _stage_contents(chunks: Sequence[Mapping[str, Any]]) -> tuple[int, int, bool, bool]:
    """Return (layers, MTP layers, has the embedding, has the loss) of a stage."""
    return (
        sum(one["layers"] for one in chunks),
        sum(one["mtp_layers"] for one in chunks),
        any(one["embedding"] for one in chunks),
        any(one["loss"] for one in chunks),
    )


def _layers_cell(stages: Sequence[Sequence[Mapping[str, Any]]]) -> ExpectedCell:
    layers, mtp, embedding, loss = _stage_contents(stages[0])
    extras = [*(["embedding"] if embedding else []), *(["loss"] if loss else [])]
    rest = "".join(f" + {one}" for one in (*extras, *([f"{mtp} MTP"] if mtp else [])))
    if len(stages) > 1:
        return exact_cell(f"{layers} each{rest}")
    owned = [
        layer
        for one in stages[0]
        for layer in range(one["first_layer"], one["first_layer"] + one["layers"])
    ]
    listed = ranges_cell(owned) if owned else exact_cell("none")
    return ExpectedCell(
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
                exact_cell(str(one["stage"])),
                exact_cell(f"{first}-{last}"),
                *(
                    any_text_cell([f"{near / GIB:.2f}" for near in _within_rounding(size)])
                    for size in sizes
                ),
                exact_cell(f"{one['blocks']:,}"),
            ]
        )
        first = last + 1
    return _without_middle_rows(rows, "stages", "stages")


def engine_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the engines of a serving job."""
    ranks: dict[int, list[int]] = {}
    for rank, replica in enumerate(facts.tree["ranks"]["replica"]):
        ranks.setdefault(replica, []).append(rank)
    rows: list[Row] = []
    for replica, members in sorted(ranks.items()):
        nodes = {rank // facts.ranks_per_host for rank in members}
        local = [rank % facts.ranks_per_host for rank in members]
        rows.append(
            [
                exact_cell(str(replica)),
                exact_cell(f"{min(members)}-{max(members)}"),
                ranges_cell(nodes),
                hosts_cell([facts.hosts[node] for node in nodes]),
                exact_cell(f"{min(local)}-{max(local)}"),
            ]
        )
    return _without_middle_rows(rows, "engines", "engines")


def rack_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the racks, by their first node rank."""
    nodes: dict[str, list[int]] = {}
    for node, rack in enumerate(facts.racks):
        nodes.setdefault(rack, []).append(node)
    each, stages = facts.ranks_per_host, facts.stages
    rows: list[Row] = [
        [
            exact_cell(plain_cell(rack, 24)),
            exact_cell(str(len(inside))),
            hosts_cell([facts.hosts[node] for node in inside]),
            ranges_cell(inside),
            ranges_cell(one for node in inside for one in stages[node * each : node * each + each]),
        ]
        for rack, inside in nodes.items()
    ]
    return _without_middle_rows(rows, "racks", "racks", column=2)


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
        *counts, most = _count_groups_by_extent(facts, group)
        texts = [str(count) if count else "-" for count in counts]
        sizes = f"{group['count']} x {group['size']}"
        rows.append(list(map(exact_cell, (name, sizes, *texts, str(most)))))
    return rows


def _count_groups_by_extent(
    facts: PageFacts, group: Mapping[str, Any]
) -> tuple[int, int, int, int, int]:
    """Return (in one host, in one NVLink domain, in one rack, over several racks, most racks).

    The first four items count the groups of the family ``group`` by the smallest unit that contains
    them. The last item is the largest number of racks that one group spans.
    """
    members = span_offsets(group["within"], group["size"]) or []
    bases = span_offsets(group["across"], group["count"]) or []
    each, most = facts.ranks_per_host, 1
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


def host_order_rows(facts: PageFacts) -> list[Row]:
    """Return the rows of the host orders that the placement compared."""
    return [
        [
            exact_cell(one["name"]),
            any_text_cell(byte_texts(one["uplink_bytes"])),
            any_text_cell(duration_texts(one["exposed_seconds"])),
            exact_cell("**chosen**" if one["chosen"] else ""),
        ]
        for one in facts.plan["placement"]["alternatives"]
    ]


def rank_rows(facts: PageFacts, count: int, columns: Sequence[str]) -> list[Row]:
    """Return the rows of the first ``count`` ranks."""
    devices = facts.plan["placement"].get("devices") or range(facts.ranks_per_host)
    rows: list[Row] = []
    for rank in range(count):
        node, slot = divmod(rank, facts.ranks_per_host)
        places = (str(facts.tree["ranks"][name][rank]) for name in columns)
        host = plain_cell(facts.hosts[node], 40)
        rows.append(list(map(exact_cell, (str(rank), host, str(devices[slot]), *places))))
    return rows


def any_text_cell(texts: Sequence[str]) -> ExpectedCell:
    """Return a cell whose text must be one of ``texts``, which differ only by rounding."""
    return ExpectedCell(texts[0], lambda found: found in texts)


def _within_rounding(value: float) -> tuple[float, float, float]:
    """Return ``value`` and the limits of the values that plan.json would round to it."""
    return value, value * (1 - 1e-5), value * (1 + 1e-5)


def duration_texts(seconds: float) -> list[str]:
    """Return the texts that the page may show for a duration, depending on rounding."""
    return [
        f"{one * 1e3:.3g} ms" if one < 1 else f"{one:.3g} s" for one in _within_rounding(seconds)
    ]


def byte_texts(size: float) -> list[str]:
    """Return the texts that the page may show for a number of bytes, depending on rounding."""
    return [
        f"{one / 1e9:.3g} GB" if one < 1e12 else f"{one / 1e12:.3g} TB"
        for one in _within_rounding(size)
    ]
