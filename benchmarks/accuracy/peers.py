"""What other tools reach on the same kind of rows: measured once, quoted here with their source.

Calculon at commit caa4b11 with its shipped system files; llm-analysis v0.2.2 at commit d841e40
with the efficiency its documentation suggests. Where a figure is a paper's own claim it says so.
Row counts differ from the table beside them: the figures were taken on the whole public sets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Mean absolute error of one tool on one group; shares."""

    group: str
    tool: str
    mape: float
    rows: int
    note: str = ""


PEERS = (
    Peer("Selene", "Calculon", 0.0365, 8, "max 8.9 %; its efficiency curves were made for these"),
    Peer("Selene", "llm-analysis", 0.259, 8, "8.3 % with the best single efficiency"),
    Peer("vTrain multi-node", "Calculon", 0.153, 109, "median 9.7 %"),
    Peer("vTrain multi-node", "llm-analysis", 0.177, 109),
    Peer(
        "vTrain multi-node",
        "vTrain",
        0.1473,
        109,
        "its own claim; replays kernels profiled on GPUs",
    ),
    Peer("dense, A100 and H100", "Calculon", 0.248, 434, "median 22.4 %"),
    Peer("dense, A100 and H100", "llm-analysis", 0.289, 434, "median 15.1 %"),
)


def peers_of(group: str) -> tuple[Peer, ...]:
    """The figures for a named group."""
    return tuple(peer for peer in PEERS if peer.group == group)
