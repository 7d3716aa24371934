"""Process groups equal those of Megatron's RankGenerator, up to 16,384 ranks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from parc.backends.megatron.meshes import FAMILIES, ORDERS, megatron_meshes
from parc.compiler.ir import Layout, Mesh, Problem
from tests.compiled import planned
from tests.conformance.megatron.cases import case_of, megatron_verdicts
from tests.conformance.megatron.specs import valid_spec

pytestmark = pytest.mark.conformance
LARGE = [
    (8, 1, 16, 128, 1, 8, 0),
    (4, 2, 8, 256, 64, 1, 0),
    (1, 1, 16, 1024, 64, 1, 0),
    (8, 2, 4, 256, 16, 1, 1),
]
"""(tp, cp, pp, dp, ep, etp, order) of 16,384 ranks."""
LAYOUTS = 60


def digest(mesh: Mesh, axes: tuple[str, ...]) -> str:
    text = json.dumps(mesh.groups_along(*axes), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def own_digests(layout: Layout) -> dict[str, str]:
    laid = dict(zip(("dense", "expert"), megatron_meshes(layout), strict=True))
    return {one.name: digest(laid[one.mesh], one.axes) for one in FAMILIES}


def grids(count: int = LAYOUTS) -> list[tuple[int, ...]]:
    """Return ``count`` large and random parallel sizes, in both rank orders."""
    dice = Random("grids")
    found = list(LARGE)
    while len(found) < count:
        tp, cp, pp = (dice.choice([1, 2, 3, 4, 8]) for _ in range(3))
        dp, ep, etp = dice.choice([1, 2, 4, 6, 8]), dice.choice([1, 2, 4, 8]), dice.choice([1, 2])
        order = dice.randint(0, 1)
        tiles = tp * cp * dp % (ep * etp) == 0
        if tiles and (order == 0 or pp == 1 or tp * cp == ep * etp):
            found.append((tp, cp, pp, dp, ep, etp, order))
    return found


def problem_and_layout() -> tuple[Problem, Layout]:
    """Return any valid pair with experts; the sizes are replaced afterwards."""
    seeds = (seed for seed in range(100) if "experts" in valid_spec(seed)["model"])
    plan, _ = planned(valid_spec(next(seeds)))
    assert plan is not None
    return plan.problem, plan.layout


def case(problem: Problem, layout: Layout, grid: tuple[int, ...]) -> tuple[dict[str, Any], Layout]:
    """Return a case whose model is divisible by every parallel size, so that only the groups are
    compared.
    """
    tp, cp, pp, dp, ep, etp, order = grid
    layout = replace(
        layout,
        **{"tp": tp, "cp": cp, "pp": pp, "vpp": 1, "dp_replicate": 1, "ep": ep},
        dp_shard=dp // layout.gtp,
        **{"etp": etp, "micro_batch": 1, "order": ORDERS[order], "sequence_parallel": tp > 1},
    )
    argv = [
        *("--num-layers", str(pp), "--hidden-size", "384", "--num-attention-heads", "24"),
        *("--num-experts", "64", "--seq-length", "384", "--max-position-embeddings", "384"),
        *("--global-batch-size", str(dp), "--micro-batch-size", "1", "--train-iters", "1"),
        *("--lr", "1e-4", "--bf16", "--mock-data", "--tokenizer-type", "NullTokenizer"),
        *("--vocab-size", "1000", "--disable-bias-linear", "--swiglu", "--ffn-hidden-size", "384"),
        *("--moe-ffn-hidden-size", "384", "--no-bias-gelu-fusion"),
        *(word for word in case_of("", problem, layout, 1)["argv"] if word in GROUP_FLAGS),
        *sizes(layout),
    ]
    made = case_of(str(grid), problem, layout, layout.world)
    return {**made, "argv": argv, "ranks": [], "digests": True}, layout


GROUP_FLAGS = ("--use-tp-pp-dp-mapping", "--sequence-parallel")


def sizes(layout: Layout) -> list[str]:
    values = {
        "--tensor-model-parallel-size": layout.tp,
        "--context-parallel-size": layout.cp,
        "--pipeline-model-parallel-size": layout.pp,
        "--expert-model-parallel-size": layout.ep,
        "--expert-tensor-parallel-size": layout.etp,
    }
    if layout.gtp > 1:
        values["--tensor-parallel-num-weight-shards"] = layout.tp * layout.gtp
    if layout.egtp > 1:
        values["--expert-tensor-parallel-num-weight-shards"] = layout.etp * layout.egtp
    return [word for flag, value in values.items() for word in (flag, str(value))]


def test_every_process_group_equals_that_of_the_rank_generator() -> None:
    problem, layout = problem_and_layout()
    made = {str(grid): case(problem, layout, grid) for grid in grids()}
    verdicts = megatron_verdicts([one for one, _ in made.values()])
    for name, (_, own) in made.items():
        assert verdicts[name]["accepted"], (name, verdicts[name])
        assert verdicts[name]["digests"] == own_digests(own), name
