"""Placement by brute force: all orders of a few hosts, evaluated rank by rank.

Shares no code with ``compiler/placement``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from parc.compiler.ir import Cluster, Estimate, Host, Layout
from tests.placement.placement_plans import MegatronOrder

Zones = tuple[tuple[object, ...], ...]
"""Switches above a host, the leaf first, then its NVLink domain if domains span hosts."""
AXES = {
    "tp": (0, ("tp",), "ring"),
    "cp": (0, ("cp",), "ring"),
    "dp_cp": (0, ("dp", "cp"), "ring"),
    "pp": (0, ("pp",), "line"),
    "ep": (1, ("ep",), "all"),
    "edp": (1, ("dp",), "ring"),
}


Cost = tuple[float, float, float, float, float]
"""Exposed seconds; bytes over the busiest uplink and over all uplinks, in which bytes of pipelines
count almost nothing; the same two without this rule."""
PIPELINE_WEIGHT = 2.0**-20


def best_cost(found: list[Cost], tie_seconds: float) -> Cost:
    """Return the best cost by the default policy among those within the tie of the fastest."""
    floor = min(exposed for exposed, *_ in found) + tie_seconds
    return min((one for one in found if one[0] <= floor), key=lambda one: (one[1], one[2], one[0]))


def every_cost(on: Cluster, of: Layout, costs: Estimate) -> list[Cost]:
    """Return the costs of all orders of the hosts of ``on``, with all flows fully exposed."""
    each = on.node.gpus
    nodes = of.world // each
    sends = {row.axis: _sends(of, row.axis, row.bytes_per_rank, each) for row in costs.traffic}
    labels = {host.name: _zones(on, host) for host in on.hosts}
    beneath: dict[tuple[object, ...], int] = defaultdict(int)
    for zones in labels.values():
        for zone in zones:
            beneath[zone] += 1
    wide = on.node.nvlink_domain > each
    kinds = Counter(zones if wide else zones[:-1] for zones in labels.values())
    rates = {zone: _rate(on, zone, beneath) for zone in beneath if zone[0] != "domain"}
    return [_cost(on, order, sends, rates, wide) for order in _orders(kinds, nodes)]


def _orders(kinds: Counter[Zones], nodes: int) -> Iterator[list[Zones]]:
    """Yield all ways to give each of ``nodes`` a place; equal places are interchangeable."""
    if not nodes:
        yield []
        return
    for kind in [kind for kind, count in kinds.items() if count]:
        kinds[kind] -= 1
        yield from ([kind, *rest] for rest in _orders(kinds, nodes - 1))
        kinds[kind] += 1


def _sends(of: Layout, axis: str, size: float, each: int) -> list[tuple[int, int, float]]:
    """Return (sender, receiver, bytes) between node ranks."""
    if not size:
        return []
    which, names, pattern = AXES[axis]
    mesh = MegatronOrder().device_meshes(of)[which]
    found: dict[tuple[int, int], float] = defaultdict(float)
    for group in mesh.groups_along(*names):
        at = [rank // each for rank in group]
        count = len(at)
        if pattern == "all":
            pairs = [(a, b, size / (count - 1)) for a in at for b in at]
        elif pattern == "ring" or of.vpp > 1:
            share = size if pattern == "ring" else size / 2
            pairs = [(at[i], at[(i + 1) % count], share) for i in range(count)]
        else:
            steps = [(at[i], at[i + 1], size / 2) for i in range(count - 1)]
            pairs = steps + [(b, a, share) for a, b, share in steps]
        for a, b, share in pairs:
            if a != b:
                found[a, b] += share
    return [(a, b, share) for (a, b), share in found.items()]


def _zones(on: Cluster, host: Host) -> Zones:
    """Return the switches above a host, then its NVLink domain."""
    path = host.switch_path
    return (*((level, *path[level:]) for level in range(len(path))), ("domain", host.nvlink_domain))


def _cost(
    on: Cluster,
    at: list[Zones],
    sends: dict[str, list[tuple[int, int, float]]],
    rates: dict[tuple[object, ...], float],
    wide: bool,
) -> Cost:
    nics = _nic_rate(on)
    tiers = len(on.switch_tiers)
    exposed = 0.0
    uplinks: dict[tuple[object, ...], float] = defaultdict(float)
    weighted: dict[tuple[object, ...], float] = defaultdict(float)
    for axis, pairs in sends.items():
        carried: dict[tuple[object, ...], float] = defaultdict(float)
        for a, b, size in pairs:
            crossed = zip(at[a][:tiers], at[b][:tiers], strict=True)
            links = [zone for zone, other in crossed if zone != other]
            if not wide or at[a][-1] != at[b][-1]:
                links.append(("nics", a))
            for link in links:
                carried[link] += size
        seconds = (size / rates.get(link, nics) for link, size in carried.items())
        exposed += max(seconds, default=0.0)
        for link, size in carried.items():
            if link[0] != "nics":
                uplinks[link] += size
                weighted[link] += size * (PIPELINE_WEIGHT if axis == "pp" else 1.0)
    return _digits(exposed), *_busiest_and_sum(weighted), *_busiest_and_sum(uplinks)


def _busiest_and_sum(carried: dict[tuple[object, ...], float]) -> tuple[float, float]:
    return _digits(max(carried.values(), default=0.0)), sum(carried.values())


def _digits(value: float) -> float:
    """Round to ten digits, so that sums of the same terms in another order are equal."""
    return float(f"{value:.10g}")


def _nic_rate(on: Cluster) -> float:
    """Return bytes per second over all NICs of a host."""
    return on.node.nics * on.node.nic_gbps / 8 * 1e9


def _rate(on: Cluster, zone: tuple[object, ...], beneath: dict[tuple[object, ...], int]) -> float:
    """Return bytes per second over the uplinks of a switch."""
    rate = beneath[zone] * _nic_rate(on)
    assert isinstance(zone[0], int)
    for level in on.switch_tiers[: zone[0] + 1]:
        rate /= level.oversubscription
    return rate
