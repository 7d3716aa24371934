"""Runs of node ranks in one rack, from plan.json, which annotations of the pods must keep together.

Sources: Kueue KEP-2724 (topology-aware scheduling), JobSet's exclusive topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from math import gcd
from typing import Any

TOPOLOGY = "kueue.x-k8s.io/podset"


def topology_path(problem: Mapping[str, Any]) -> str:
    """Return the path of the setting that names the node label of racks, or of NVLink domains.

    NVLink domains are used if they span hosts, otherwise racks.
    """
    field = "domain_label" if _spans_hosts(problem["cluster"]["node"]) else "rack_label"
    return f"problem.launch.kubernetes.{field}"


def topology_label(problem: Mapping[str, Any]) -> str:
    """Return the node label that ``topology_path`` names."""
    return str(problem["launch"]["kubernetes"][topology_path(problem).rpartition(".")[2]])


def _spans_hosts(node: Mapping[str, Any]) -> bool:
    return bool(node["link_kind"] == "nvlink" and node["nvlink_domain"] > node["gpus"])


def rack_runs(plan: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return (rack or NVLink domain, number of hosts) of each run of consecutive node ranks."""
    cluster = plan["problem"]["cluster"]
    homes: dict[str, str] = {}
    for rack in cluster["racks"]:
        domains = _spans_hosts(cluster["node"])
        names = rack["nvlink_domains"] if domains else [rack["name"]] * len(rack["hosts"])
        homes |= dict(zip(rack["hosts"], names, strict=False))
    places = [homes.get(host, "") for host in plan["placement"]["hosts"]]
    return [(home, len(list(run))) for home, run in groupby(places)]


def job_count(plan: Mapping[str, Any]) -> int:
    """Return the number of jobs in the JobSet.

    It is one job per rack if there is no queue and all racks have the same number of hosts;
    otherwise it is 1.
    """
    runs = rack_runs(plan)
    equal = len({count for _, count in runs}) == 1 and len({home for home, _ in runs}) == len(runs)
    queue = plan["problem"]["launch"]["kubernetes"]["queue"]
    return len(runs) if equal and not queue else 1


def slice_annotations(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations that make Kueue keep consecutive node ranks in one rack."""
    problem, hosts = plan["problem"], len(plan["placement"]["hosts"])
    if not problem["launch"]["kubernetes"]["queue"] or hosts == 1:
        return {}
    size, label = gcd(*(count for _, count in rack_runs(plan))), topology_label(problem)
    if size == hosts:
        return {f"{TOPOLOGY}-required-topology": label}
    preferred = {f"{TOPOLOGY}-preferred-topology": label}
    if size == 1:
        return preferred
    slices = {f"{TOPOLOGY}-slice-required-topology": label, f"{TOPOLOGY}-slice-size": str(size)}
    return preferred | slices
