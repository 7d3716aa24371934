"""Stop a job whose ranks are not on the planned hosts and GPUs, before it uses GPU hours.

Start it on every rank like the training program, by torchrun or srun; it requires only PyTorch.
It compares host and device of each rank with expected.json; then every process group of the plan
sums its rank numbers once. Exit status 0: as planned; 1: a table lists the differences.

  --probe MIB     also time an all-reduce of this size per group, and report slow groups
  --timeout S     seconds to wait for all ranks, and for one collective (default 300)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

SLOW = 0.7
"""A group is slow if it has less than this share of the median bandwidth of its family."""
SHOWN = 24
"""Maximum lines of a table; further lines are counted."""


def main() -> int:
    """Compare ranks with the plan, then sum and time groups; return the same status everywhere."""
    options = arguments()
    expected = json.loads(Path(__file__).with_name("expected.json").read_text("utf-8"))
    expected["hosts"] = planned_hosts(expected["hosts"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != expected["world"]:
        print(f"check_ranks: {world} ranks were started, the plan has {expected['world']}")
        return 1
    device = choose_device()
    timeout = timedelta(seconds=options.timeout)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    control = dist.new_group(backend="gloo", timeout=timeout) if device.type == "cuda" else None
    packages = expected.get("packages", {})
    reported = gather(facts(device) | {"packages": installed(packages)}, control)
    lines = differences(reported, expected) if rank == 0 else []
    if not agree(lines, control, "ranks that differ from the plan"):
        return 1
    wrong, seconds = run_groups(expected["groups"], device, options.probe)
    lines = [line for one in gather(wrong, control) or () for line in one]
    if not agree(lines, control, "process groups with wrong sums"):
        return 1
    timed = gather(seconds, control) or []
    if rank == 0:
        report(expected, slow_groups(timed, options.probe), options.probe)
    dist.barrier(group=control)
    return 0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probe", type=float, default=0.0, metavar="MIB")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S")
    return parser.parse_args()


def planned_hosts(hosts: list[str]) -> list[str]:
    """Return the hosts by node rank, from PARC_HOSTFILE if the job's hosts differ from the plan.

    Empty if the plan has no host names, or if the file does not exist (inside a container).
    """
    path = os.environ.get("PARC_HOSTFILE")
    if not path:
        return hosts
    return Path(path).read_text("utf-8").split() if Path(path).is_file() else []


def choose_device() -> torch.device:
    """Return the GPU of the local rank, as training programs choose it; the CPU without GPUs."""
    local = int(os.environ["LOCAL_RANK"])
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local >= torch.cuda.device_count():
        print(f"check_ranks: local rank {local}, but {torch.cuda.device_count()} GPUs are visible")
        sys.exit(1)
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def facts(device: torch.device) -> dict[str, Any]:
    """Return ranks, host and device of this process."""
    local = int(os.environ["LOCAL_RANK"])
    each = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    node = os.environ.get("GROUP_RANK", os.environ.get("SLURM_NODEID", ""))
    found = {
        "rank": int(os.environ["RANK"]),
        "local_rank": local,
        "node_rank": int(node) if node else int(os.environ["RANK"]) // each,
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "device": "",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = str(getattr(properties, "uuid", "")) or f"gpu {device.index}"
    return found


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each Python distribution; "" if it is not installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def is_older(found: str, needed: str) -> bool:
    """Return True if version ``found`` is missing, or older than ``needed``, such as 2.19."""
    numbers = [[int(part) for part in re.findall(r"\d+", text)[:2]] for text in (found, needed)]
    return numbers[0] < numbers[1]


def gather(value: Any, group: dist.ProcessGroup | None) -> list[Any] | None:
    """Return the values of all ranks on rank 0, None on other ranks."""
    values = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, values, dst=0, group=group)
    return values


def agree(lines: list[str], group: dist.ProcessGroup | None, title: str) -> bool:
    """Print ``lines`` on rank 0, then return on all ranks whether there were none.

    It prints before the broadcast, because launchers end all ranks when the first one fails.
    """
    if dist.get_rank() == 0 and lines:
        print(f"check_ranks: {len(lines)} {title}")
        print("\n".join(f"  {line}" for line in lines[:SHOWN]))
        if len(lines) > SHOWN:
            print(f"  ... and {len(lines) - SHOWN} more")
        sys.stdout.flush()
    verdict = torch.tensor([0 if dist.get_rank() else len(lines)])
    dist.broadcast(verdict, src=0, group=group)
    return int(verdict) == 0


def differences(reported: list[dict[str, Any]], expected: dict[str, Any]) -> list[str]:
    """Return a line per rank that differs from the plan."""
    each, hosts = expected["ranks_per_node"], expected["hosts"]
    lines = []
    for rank, one in enumerate(reported):
        planned = {"rank": rank, "node_rank": rank // each, "local_rank": rank % each}
        wrong = [
            f"{name} {one[name]}, planned {value}"
            for name, value in planned.items()
            if one[name] != value
        ]
        if hosts and not same_host(one["host"], hosts[rank // each]):
            wrong.append(f"host {one['host']}, planned {hosts[rank // each]}")
        wrong += [
            f"{name} {one['packages'][name] or 'is not installed'}, needs {needed} or newer"
            for name, needed in expected.get("packages", {}).items()
            if is_older(one["packages"][name], needed)
        ]
        lead = reported[rank - rank % each]
        if one["host"] != lead["host"]:
            wrong.append(f"host {one['host']}, other ranks of its node are on {lead['host']}")
        if wrong:
            lines.append(f"rank {rank}: {'; '.join(wrong)}")
    return lines + shared(reported, each)


def same_host(found: str, planned: str) -> bool:
    """Return True if the names are equal, also as short names."""
    return found == planned or found.split(".")[0] == planned.split(".")[0]


def shared(reported: list[dict[str, Any]], each: int) -> list[str]:
    """Return a line per device with several ranks, and per host with several node ranks."""
    devices = Counter((one["host"], one["device"]) for one in reported if one["device"])
    lines = [
        f"{count} ranks on {host} use {gpu}"
        for (host, gpu), count in sorted(devices.items())
        if count > 1
    ]
    nodes: dict[str, set[int]] = {}
    for rank, one in enumerate(reported):
        nodes.setdefault(one["host"], set()).add(rank // each)
    return lines + [
        f"{host} has node ranks {sorted(found)}"
        for host, found in sorted(nodes.items())
        if len(found) > 1
    ]


def run_groups(
    groups: dict[str, Any], device: torch.device, probe_mib: float
) -> tuple[list[str], dict[str, tuple[int, float]]]:
    """Sum the rank numbers in all groups of this rank; return (errors, times).

    Times are (first rank of the group, seconds) by family.
    """
    rank, wrong, seconds = dist.get_rank(), [], {}
    made: dict[tuple[int, ...], dist.ProcessGroup] = {}
    for name in sorted(groups):
        members = tuple(group_of(rank, groups[name]))
        if members not in made:
            # Only members create a group. Families with equal members share one group, because
            # the store identifies groups by their ranks.
            made[members] = dist.new_group(list(members), use_local_synchronization=True)
        total = torch.tensor([float(rank), 1.0], device=device, dtype=torch.float64)
        dist.all_reduce(total, group=made[members])
        if total.tolist() != [float(sum(members)), float(len(members))]:
            found = total.tolist()
            wrong.append(f"rank {rank}: the sum over {name} is {found}, planned {members[:8]}")
        if probe_mib:
            seconds[name] = (members[0], timed(made[members], device, probe_mib))
    return wrong, seconds


def group_of(rank: int, family: dict[str, Any]) -> list[int]:
    """Return the members of the group of ``rank``, from [size, stride] pairs of the rank map."""
    within = {stride: size for size, stride in family["within"]}
    base = rank - sum(rank // stride % size * stride for stride, size in within.items())
    ranks = [base]
    for size, stride in family["within"]:
        ranks = [step * stride + one for step in range(size) for one in ranks]
    return ranks


def timed(group: dist.ProcessGroup, device: torch.device, mib: float) -> float:
    """Return the seconds of the last of three all-reduces; the others are warm-up."""
    data = torch.zeros(int(mib * 2**18), device=device)
    spent = 0.0
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(data, group=group)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - begin
    return spent


def slow_groups(timed: list[dict[str, tuple[int, float]]], mib: float) -> list[str]:
    """Return a line per family, and one per group that is slower than the median."""
    lines = []
    families: dict[str, dict[int, float]] = {}
    for one in timed:
        for name, (first, seconds) in one.items():
            slowest = families.setdefault(name, {})
            slowest[first] = max(slowest.get(first, 0.0), seconds)
    for name, groups in sorted(families.items()):
        median = sorted(groups.values())[len(groups) // 2]
        lines.append(f"{name}: {len(groups)} groups, median {mib * 2**20 / median / 1e9:.2f} GB/s")
        lines += [
            f"{name}: the group of rank {first} has {median / seconds:.0%} of the median"
            for first, seconds in sorted(groups.items())
            if seconds * SLOW > median
        ]
    return lines


def report(expected: dict[str, Any], lines: list[str], probe_mib: float) -> None:
    """Print what was checked."""
    nodes = expected["world"] // expected["ranks_per_node"]
    print(f"check_ranks: {expected['world']} ranks on {nodes} hosts match the plan")
    if probe_mib:
        print(f"check_ranks: all-reduce of {probe_mib:g} MiB per group, slow below {SLOW:.0%}")
        print("\n".join(f"  {line}" for line in lines[:SHOWN]))
    sys.stdout.flush()


def leave(status: int) -> NoReturn:
    """Exit without cleanup, because gloo's threads can deadlock with interpreter shutdown."""
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        leave(main())
    except Exception:
        traceback.print_exc()
        leave(1)
