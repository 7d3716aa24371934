"""Send the traffic of a plan's groups over gloo between namespaces; count it on rack uplinks.

Runs under a Python that has torch, as root, and imports nothing of PARC. stdin: one case per line,
  {"switch": NAMESPACE, "uplinks": [INTERFACE], "hosts": [NAMESPACE of every rank],
   "sends": [{"pattern": "all-reduce", "groups": [[RANK]], "bytes": N}]}
stdout: one line per case, {"sends": [{INTERFACE: bytes sent}], "resent": [N], "seconds": S};
"resent" counts the segments that TCP retransmitted during a send.

Patterns; ``bytes`` is the size of a rank's whole tensor:
  all-reduce, all-gather   gloo's collectives, which are rings
  reduce-scatter           a ring of sends as in NCCL, because gloo's own is not a ring
  all-to-all               gloo's collective: each rank sends a share to every other rank
  line                     a message to the next rank of the group, and one back
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CLONE_NEWNET = 0x40000000
END = 255
Groups = list[list[int]]


def main() -> None:
    """Read cases from stdin and print a line per case."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(run_case(json.loads(line))), flush=True)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Fork one process per rank, and read the counters before and after every send."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [Rank(case, rank, f"file://{folder}/store") for rank in range(len(case["hosts"]))]
        for rank in ranks:
            rank.wait()
        counted, again = [], []
        for index in range(len(case["sends"])):
            before, earlier = counters(case), resent(ranks)
            for rank in ranks:
                rank.start_send(index)
            for rank in ranks:
                rank.wait()
            after = counters(case)
            counted.append({name: after[name] - before[name] for name in after})
            again.append(resent(ranks) - earlier)
        for rank in ranks:
            rank.end()
    return {"sends": counted, "resent": again, "seconds": time.monotonic() - begin}


def resent(ranks: list[Rank]) -> int:
    """Return the number of segments that TCP has retransmitted, over the namespaces of all
    ranks.
    """
    total = 0
    for rank in ranks:
        rows = Path(f"/proc/{rank.process}/net/snmp").read_text().splitlines()
        names, values = (row.split() for row in rows if row.startswith("Tcp:"))
        total += int(dict(zip(names, values, strict=True))["RetransSegs"])
    return total


def counters(case: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that every uplink has sent so far."""
    command = ["ip", "-n", case["switch"], "-s", "-j", "link", "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    links = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in json.loads(done.stdout)}
    return {name: links[name] for name in case["uplinks"]}


class Rank:
    """Forked process of a rank, which receives the index of its next send over a pipe."""

    def __init__(self, case: dict[str, Any], rank: int, store: str) -> None:
        order_out, self.order = os.pipe()
        self.done, done_in = os.pipe()
        self.number, self.process = rank, os.fork()
        if self.process == 0:
            try:
                run_rank(case, rank, store, order_out, done_in)
                os._exit(0)
            except BaseException as error:
                print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        os.close(order_out)
        os.close(done_in)

    def start_send(self, index: int) -> None:
        """Start the send with this index."""
        os.write(self.order, bytes([index]))

    def wait(self) -> None:
        """Wait until the rank has finished its current send."""
        if not os.read(self.done, 1):
            sys.exit(f"rank {self.number} died")

    def end(self) -> None:
        """End the process with a message; closing the pipe is not enough, because other ranks
        inherited its write end.
        """
        self.start_send(END)
        os.close(self.order)
        os.waitpid(self.process, 0)
        os.close(self.done)


def run_rank(case: dict[str, Any], rank: int, store: str, order: int, done: int) -> None:
    """Move to the namespace of the host, join the process group, then execute the requested
    sends.
    """
    enter_namespace(case["hosts"][rank])
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=len(case["hosts"]))
    made: dict[tuple[int, ...], Any] = {}
    for send in case["sends"]:
        for members in send["groups"]:
            if tuple(members) not in made:
                made[tuple(members)] = dist.new_group(members)
    mine = [
        next((made[tuple(group)], group) for group in send["groups"] if rank in group)
        for send in case["sends"]
    ]
    dist.barrier()
    for index, send in enumerate(case["sends"]):  # opens every connection once
        PATTERNS[send["pattern"]](*mine[index], 4 * len(mine[index][1]))
    os.write(done, b".")
    while (index := os.read(order, 1)[0]) != END:
        send = case["sends"][index]
        PATTERNS[send["pattern"]](*mine[index], send["bytes"])
        os.write(done, b".")


def enter_namespace(namespace: str) -> None:
    """Move this process to a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open() as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def tensor(size_bytes: int) -> torch.Tensor:
    """Return a float32 tensor of this size."""
    return torch.ones(size_bytes // 4)


def all_reduce(group: Any, members: list[int], size_bytes: int) -> None:
    """Use gloo's ring, which sends 2(n-1)/n of the tensor to the neighbor."""
    data = tensor(size_bytes)
    dist.all_reduce(data, group=group)
    assert data[0] == len(members)


def all_gather(group: Any, members: list[int], size_bytes: int) -> None:
    """Use gloo's ring, which sends n-1 shares to the neighbor."""
    share = tensor(size_bytes // len(members))
    dist.all_gather([torch.empty_like(share) for _ in members], share, group=group)


def reduce_scatter(group: Any, members: list[int], size_bytes: int) -> None:
    """Send n-1 shares around a ring; each rank adds its own share."""
    place = members.index(dist.get_rank())
    following, before = members[(place + 1) % len(members)], members[place - 1]
    share = tensor(size_bytes // len(members))
    partial, received = share.clone(), torch.empty_like(share)
    for _ in members[1:]:
        sending = dist.isend(partial, following, group=group)
        dist.recv(received, before, group=group)
        sending.wait()
        partial = received + share
    assert partial[0] == len(members)


def all_to_all(group: Any, members: list[int], size_bytes: int) -> None:
    """Use gloo's all-to-all, which sends a share to every other rank."""
    data = tensor(size_bytes)
    dist.all_to_all_single(torch.empty_like(data), data, group=group)


def line(group: Any, members: list[int], size_bytes: int) -> None:
    """Send activations to the next stage, and gradients back."""
    place = members.index(dist.get_rank())
    data = tensor(size_bytes)
    for step in (1, -1):
        there, back = place + step, place - step
        sending = (
            dist.isend(data, members[there], group=group) if 0 <= there < len(members) else None
        )
        if 0 <= back < len(members):
            dist.recv(torch.empty_like(data), members[back], group=group)
        if sending is not None:
            sending.wait()


PATTERNS = {
    "all-reduce": all_reduce,
    "all-gather": all_gather,
    "reduce-scatter": reduce_scatter,
    "all-to-all": all_to_all,
    "line": line,
}

if __name__ == "__main__":
    main()
