"""Process groups of a rank map: PARC's meshes against Megatron's own RankGenerator.

Both build every token that ``initialize_model_parallel`` uses. The groups are compared one by one
and the time is printed in seconds and as the ratio of Megatron's to PARC's. Requires the source of
Megatron-Core (an unpacked wheel or a checkout), but not torch:

    python benchmarks/rank_map.py --megatron FOLDER [--most 131072]
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHAPES = (
    # number of ranks, (tp, cp, pp, etp, ep)
    (1_024, (8, 1, 8, 1, 8)),
    (16_384, (8, 1, 16, 8, 1)),
    (16_384, (4, 2, 16, 1, 64)),
    (131_072, (8, 2, 16, 1, 64)),
)
ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
DENSE = ("tp", "cp", "dp", "pp", "dp-cp", "tp-cp", "tp-pp", "tp-dp", "tp-dp-cp")
EXPERT = ("tp", "ep", "dp", "tp-ep", "tp-ep-pp")
COPIED_NAMES = ("generate_masked_orthogonal_rank_groups", "RankGenerator")
Groups = list[list[list[int]]]


def main() -> int:
    options = _options()
    generator = _rank_generator(options.megatron)
    sys.path.insert(0, str(ROOT))
    print(
        f"{'ranks':>8} {'order':>15} {'groups':>8} {'megatron':>9} {'parc':>8} {'ratio':>6} equal"
    )
    same = True
    for world, degrees in SHAPES:
        for order in ORDERS if world <= options.most else ():
            same &= _row(generator, world, degrees, order)
    return 0 if same else 1


def _row(generator: Any, world: int, degrees: tuple[int, ...], order: str) -> bool:
    tp, cp, pp, etp, ep = degrees
    dense = {"tp": tp, "cp": cp, "ep": 1, "pp": pp, "dp": world // (tp * cp * pp)}
    expert = {"tp": etp, "cp": 1, "ep": ep, "pp": pp, "dp": world // (etp * ep * pp)}
    theirs, their_seconds = _timed(lambda: _megatron_groups(generator, order, dense, expert))
    ours, our_seconds = _timed(lambda: _parc_groups(order, dense, expert))
    equal, count = theirs == ours, sum(map(len, ours))
    print(
        f"{world:>8} {order:>15} {count:>8} {their_seconds:>8.3f}s {our_seconds:>7.3f}s "
        f"{their_seconds / our_seconds:>6.1f} {'yes' if equal else 'NO'}"
    )
    return equal


def _megatron_groups(
    generator: Any, order: str, dense: dict[str, int], expert: dict[str, int]
) -> Groups:
    pairs = ((generator(order=order, **dense), DENSE), (generator(order=order, **expert), EXPERT))
    return [made.get_ranks(token) for made, tokens in pairs for token in tokens]


def _parc_groups(order: str, dense: dict[str, int], expert: dict[str, int]) -> Groups:
    from parc.compiler.ir import Mesh

    pairs = ((dense, DENSE), (expert, EXPERT))
    meshes = [
        (Mesh.from_sizes(tuple((name, sizes[name]) for name in order.split("-"))), tokens)
        for sizes, tokens in pairs
    ]
    return [mesh.groups_along(*token.split("-")) for mesh, tokens in meshes for token in tokens]


def _timed(build: Callable[[], Groups]) -> tuple[Groups, float]:
    start = time.perf_counter()
    groups = build()
    return groups, time.perf_counter() - start


def _rank_generator(folder: Path) -> Any:
    """Return Megatron's class, cut out of its module because the module imports torch and needs a
    GPU."""
    source = (folder / "megatron" / "core" / "parallel_state.py").read_text("utf-8")
    module = ast.parse(source)
    # executing the whole module would import torch
    module.body = [node for node in module.body if getattr(node, "name", "") in COPIED_NAMES]
    names: dict[str, Any] = dict(vars(typing))
    exec(compile(module, "parallel_state.py", "exec"), names)
    return names["RankGenerator"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = os.environ.get("PARC_MEGATRON")
    parser.add_argument("--megatron", type=Path, default=default, required=default is None)
    parser.add_argument("--most", type=int, default=131_072, help="largest number of ranks to try")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
