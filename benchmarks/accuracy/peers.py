"""Errors of other cost models on the same groups of runs, measured once and quoted here.

Calculon at commit caa4b11 with its shipped system files; llm-analysis v0.2.2 at commit d841e40 with
the efficiency that its documentation suggests. A note marks figures that are a paper's own claim.
Row counts differ from PARC's because these figures cover the whole public sets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Mean absolute relative error (0.05 for 5 %) of one tool on one group."""

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
    """Return the figures for a named group."""
    return tuple(peer for peer in PEERS if peer.group == group)
