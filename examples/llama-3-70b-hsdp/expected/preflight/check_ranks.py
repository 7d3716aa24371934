"""Stop a job whose ranks are not where the plan has them, before it costs GPU hours.

Started like the training program, by torchrun or srun, on every rank; PyTorch is all it needs.
Each rank says where it is and is compared with expected.json; then every process group of the
plan adds up its ranks once. Exit status 0: all as planned; 1: a table says what differs.

  --probe MIB     also time an all-reduce of so many MiB a group and name slow groups
  --timeout S     seconds to wait for all ranks, and for one collective (default 300)
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
import traceback
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

SLOW = 0.7
"""A group is slow where it has less than this share of the median bandwidth of its family."""
SHOWN = 24
"""Lines of a table before the rest is counted."""


def main() -> int:
    """Compare, add up, time; the same status on every rank."""
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
    talk = dist.new_group(backend="gloo", timeout=timeout) if device.type == "cuda" else None
    told = gather(facts(device), talk)
    lines = differences(told, expected) if rank == 0 else []
    if not agree(lines, talk, "ranks that are not where the plan has them"):
        return 1
    wrong, seconds = run_groups(expected["groups"], device, options.probe)
    lines = [line for one in gather(wrong, talk) or () for line in one]
    if not agree(lines, talk, "process groups that do not add up"):
        return 1
    timed = gather(seconds, talk) or []
    if rank == 0:
        report(expected, slow_groups(timed, options.probe), options.probe)
    dist.barrier(group=talk)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probe", type=float, default=0.0, metavar="MIB")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S")
    return parser.parse_args()


def planned_hosts(hosts: list[str]) -> list[str]:
    """Hosts by node rank: those of PARC_HOSTFILE, where the job has other ones than the plan.

    Empty where nobody knows their names, or the file cannot be seen (from inside a container).
    """
    path = os.environ.get("PARC_HOSTFILE")
    if not path:
        return hosts
    return Path(path).read_text("utf-8").split() if Path(path).is_file() else []


def choose_device() -> torch.device:
    """The GPU of the local rank, as training programs choose it; the CPU where there is none."""
    local = int(os.environ["LOCAL_RANK"])
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local >= torch.cuda.device_count():
        print(f"check_ranks: local rank {local}, but {torch.cuda.device_count()} GPUs are visible")
        sys.exit(1)
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def facts(device: torch.device) -> dict[str, Any]:
    """Where this rank is."""
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


def gather(value: Any, group: dist.ProcessGroup | None) -> list[Any] | None:
    """Everyone's value on rank 0, None elsewhere."""
    values = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, values, dst=0, group=group)
    return values


def agree(lines: list[str], group: dist.ProcessGroup | None, title: str) -> bool:
    """Whether rank 0 has nothing to say; it prints what it has, then all ranks learn the answer.

    In this order, for the first rank that leaves with an error has the launcher end the others.
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


def differences(told: list[dict[str, Any]], expected: dict[str, Any]) -> list[str]:
    """One line for every rank that is elsewhere than in the plan."""
    each, hosts = expected["ranks_per_node"], expected["hosts"]
    lines = []
    for rank, one in enumerate(told):
        planned = {"rank": rank, "node_rank": rank // each, "local_rank": rank % each}
        wrong = [
            f"{name} {one[name]}, planned {value}"
            for name, value in planned.items()
            if one[name] != value
        ]
        if hosts and not same_host(one["host"], hosts[rank // each]):
            wrong.append(f"host {one['host']}, planned {hosts[rank // each]}")
        lead = told[rank - rank % each]
        if one["host"] != lead["host"]:
            wrong.append(f"host {one['host']}, its neighbours are on {lead['host']}")
        if wrong:
            lines.append(f"rank {rank}: {'; '.join(wrong)}")
    return lines + shared(told, each)


def same_host(found: str, planned: str) -> bool:
    """Short and full names of one host are the same."""
    return found == planned or found.split(".")[0] == planned.split(".")[0]


def shared(told: list[dict[str, Any]], each: int) -> list[str]:
    """Devices that two ranks use, and hosts that have two node ranks."""
    devices = Counter((one["host"], one["device"]) for one in told if one["device"])
    lines = [
        f"{count} ranks on {host} use {gpu}"
        for (host, gpu), count in sorted(devices.items())
        if count > 1
    ]
    nodes: dict[str, set[int]] = {}
    for rank, one in enumerate(told):
        nodes.setdefault(one["host"], set()).add(rank // each)
    return lines + [
        f"{host} has node ranks {sorted(found)}"
        for host, found in sorted(nodes.items())
        if len(found) > 1
    ]


def run_groups(
    groups: dict[str, Any], device: torch.device, probe_mib: float
) -> tuple[list[str], dict[str, tuple[int, float]]]:
    """Add up the ranks of every group of this rank; (what is wrong, family -> (first, seconds))."""
    rank, wrong, seconds = dist.get_rank(), [], {}
    made: dict[tuple[int, ...], dist.ProcessGroup] = {}
    for name in sorted(groups):
        members = tuple(group_of(rank, groups[name]))
        if members not in made:
            # Only its members take part; families with the same members share one group, for the
            # store knows a group by its ranks.
            made[members] = dist.new_group(list(members), use_local_synchronization=True)
        total = torch.tensor([float(rank), 1.0], device=device, dtype=torch.float64)
        dist.all_reduce(total, group=made[members])
        if total.tolist() != [float(sum(members)), float(len(members))]:
            wrong.append(f"rank {rank}: {name} adds up to {total.tolist()}, planned {members[:8]}")
        if probe_mib:
            seconds[name] = (members[0], timed(made[members], device, probe_mib))
    return wrong, seconds


def group_of(rank: int, family: dict[str, Any]) -> list[int]:
    """Members of the group of ``rank``, from the spans of the rank map: [size, stride] pairs."""
    within = {stride: size for size, stride in family["within"]}
    base = rank - sum(rank // stride % size * stride for stride, size in within.items())
    ranks = [base]
    for size, stride in family["within"]:
        ranks = [step * stride + one for step in range(size) for one in ranks]
    return ranks


def timed(group: dist.ProcessGroup, device: torch.device, mib: float) -> float:
    """Seconds of the third of three all-reduces."""
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
    """A line for every family, and one for each group that is slower than its like."""
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
            f"{name}: the group of rank {first} has {median / seconds:.0%} of it"
            for first, seconds in sorted(groups.items())
            if seconds * SLOW > median
        ]
    return lines


def report(expected: dict[str, Any], lines: list[str], probe_mib: float) -> None:
    """What was checked."""
    nodes = expected["world"] // expected["ranks_per_node"]
    print(f"check_ranks: {expected['world']} ranks on {nodes} hosts are where the plan has them")
    if probe_mib:
        print(f"check_ranks: all-reduce of {probe_mib:g} MiB a group, slow below {SLOW:.0%}")
        print("\n".join(f"  {line}" for line in lines[:SHOWN]))
    sys.stdout.flush()


def leave(status: int) -> NoReturn:
    """End at once: gloo's threads and an interpreter that clears up may wait for each other."""
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        leave(main())
    except Exception:
        traceback.print_exc()
        leave(1)
