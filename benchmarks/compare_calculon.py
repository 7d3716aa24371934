"""Errors of Calculon and PARC on the same measured step times, group by group.

    python -m benchmarks.compare_calculon CHECKOUT [--python PYTHON] [--data FOLDER]

CHECKOUT is a checkout of github.com/calculon-ai/calculon, which is not part of this project. Rows
are those that Calculon can express: dense models on A100 and H100 without context parallelism, FSDP
or uneven stages, in formats of its system files. Features that it lacks are mapped in its favor:
gated MLPs widen the feed-forward by half, grouped queries count as full ones, and the overlap of
gradients is on or off, whichever is more accurate over all rows of a GPU. PARC's error comes from a
fit without any row of the source. The table also has the errors of the shipped parameters and of
the naive formula.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.columns import Columns, columns
from benchmarks.accuracy.groups import is_small, named_groups
from benchmarks.accuracy.score import Score, score

SYSTEMS = {
    "a100-sxm-80gb": "a100_80g",
    "a100-sxm-40gb": "a100_80g",
    "h100-sxm-80gb": "h100_80g_nvl8",
}
"""GPU -> system file that Calculon ships for it. The 40 GB A100 differs in memory bandwidth."""
TYPES = {
    "a100_80g": {"bf16": "float16", "fp16": "float16"},
    "h100_80g_nvl8": {"bf16": "float16", "fp16": "float16", "fp8": "float8"},
}
RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
DOMAIN = 8
"""GPUs in the first network tier of Calculon's system files."""
DRIVER = Path(__file__).parent / "calculon_rows.py"


@dataclass(frozen=True, slots=True)
class CalculonPrediction:
    """A case with Calculon's predicted over measured time."""

    case: Case
    calculon: float


def is_expressible(case: Case) -> bool:
    """Return True if Calculon has settings for the case. It may still reject it."""
    layout, gpu = case.layout, case.problem.cluster.gpu.name
    system = SYSTEMS.get(gpu)
    return (
        case.scored
        and case.kind == "dense"
        and system is not None
        and case.run.precision in TYPES[system]
        and not case.fsdp
        and layout.cp == 1
        and layout.tp <= DOMAIN
        and case.problem.model.layers % (layout.pp * layout.vpp) == 0
    )


def calculon_input(case: Case, overlap: bool) -> dict[str, Any]:
    """Return the case in Calculon's input format."""
    model, layout, job = case.problem.model, case.layout, case.problem.job
    system = SYSTEMS[case.problem.cluster.gpu.name]
    recompute = RECOMPUTE[layout.recompute.granularity]
    sequence = layout.tp > 1 and layout.sequence_parallel
    inside = {"tp": layout.tp, "pp": layout.tp * layout.pp, "dp": layout.tp * layout.pp * layout.dp}
    tier = {name: int(ranks > DOMAIN) for name, ranks in inside.items()}
    return {
        "system": system,
        "application": {
            "hidden": model.hidden,
            # a gated MLP has three matrices of this width, Calculon's two
            "feedforward": int(model.ffn.size * (1.5 if model.ffn.gated else 1)),
            "seq_size": job.sequence_length,
            "attn_heads": model.attention.heads,
            "attn_size": model.attention.head_dim,
            "num_blocks": model.layers,
        },
        "execution": {
            "num_procs": case.run.gpus,
            "tensor_par": layout.tp,
            "pipeline_par": layout.pp,
            "data_par": layout.dp,
            "tensor_par_net": tier["tp"],
            "pipeline_par_net": tier["pp"],
            "data_par_net": tier["dp"],
            "batch_size": job.global_batch,
            "microbatch_size": layout.micro_batch,
            "datatype": TYPES[system][case.run.precision],
            "fused_activation": True,
            "attention_type": "multihead",
            "activation_recompute": recompute,
            "pipeline_interleaving": layout.vpp,
            "optimizer_sharding": layout.zero_stage >= 1 and layout.dp > 1,
            "tensor_par_comm_type": "rs_ag" if sequence else "ar",
            "tensor_par_overlap": "none",
            "seq_par_ag_redo": sequence and recompute != "full",
            "data_par_overlap": overlap and layout.dp > 1,
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
            "training": True,
        },
    }


def calculon_seconds(
    cases: Sequence[Case], overlap: bool, python: str, checkout: str
) -> list[float | None]:
    """Return Calculon's seconds per case, None for cases that it rejects."""
    text = json.dumps([calculon_input(case, overlap) for case in cases])
    command = [python, str(DRIVER), checkout]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    answers: list[float | None] = json.loads(done.stdout)
    return answers


def predict_by_calculon(
    cases: Sequence[Case], python: str, checkout: str
) -> list[CalculonPrediction]:
    """Return Calculon's predictions with the overlap setting that is more accurate for each GPU."""
    ways = [calculon_seconds(cases, overlap, python, checkout) for overlap in (False, True)]
    found = []
    for gpu in sorted({case.problem.cluster.gpu.name for case in cases}):
        own = [index for index, case in enumerate(cases) if case.problem.cluster.gpu.name == gpu]
        tries = [
            [
                CalculonPrediction(cases[index], seconds / cases[index].seconds)
                for index in own
                if (seconds := way[index]) is not None
            ]
            for way in ways
        ]
        found += min(tries, key=_distance)
    return found


def _distance(rows: Sequence[CalculonPrediction]) -> float:
    return fmean(abs(log(row.calculon)) for row in rows) if rows else float("inf")


def table(rows: Sequence[CalculonPrediction], found: Columns) -> list[str]:
    """Return a Markdown table: one line per named group, and one for small models on one host."""
    known = {row.case.run.id: row for row in rows}
    groups = named_groups([row.case for row in rows])
    tiny = [row.case.run.id for row in rows if is_small(row.case)]
    lines = ["| group | rows | PARC, unseen source | shipped | Calculon | its bias | naive |"]
    lines.append("| --- " * 7 + "|")
    for name, ids in [*groups, *([("one host, small models", tiny)] if tiny else [])]:
        scores = [
            score([found.unseen[one] for one in ids]),
            score([found.shipped[one] for one in ids]),
            score([known[one].calculon for one in ids]),
            score([found.naive[one] for one in ids]),
        ]
        lines.append(_line(name, scores))
    return lines


def _line(name: str, scores: Sequence[Score]) -> str:
    unseen, shipped, calculon, naive = scores
    cells = (unseen.mape, shipped.mape, calculon.mape, calculon.bias, naive.mape)
    return f"| {name} | {unseen.count} | " + " | ".join(f"{100 * one:.1f}" for one in cells) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return exit status 2 if the rows or Calculon cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_calculon")
    parser.add_argument(
        "checkout", metavar="CHECKOUT", help="checkout of github.com/calculon-ai/calculon"
    )
    parser.add_argument("--python", default=sys.executable, help="Python interpreter with numpy")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/train.csv")
    options = parser.parse_args(argv)
    try:
        cases = load(options.data).cases
        chosen = [case for case in cases if is_expressible(case)]
        rows = predict_by_calculon(chosen, options.python, options.checkout)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"compare_calculon: {error}", file=sys.stderr)
        return 2
    classes = {row.case.generation for row in rows}
    found = columns([case for case in cases if case.generation in classes])
    print("\n".join(table(rows, found)))
    rejected = len(chosen) - len(rows)
    print(f"\n{len(rows)} rows; Calculon rejects {rejected} more.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
