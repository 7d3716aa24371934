"""Step times of published rows by other tools, recorded for docs/accuracy.md.

    python -m benchmarks.baselines --calculon CHECKOUT --llm-analysis CHECKOUT --python PYTHON

The checkouts are of github.com/calculon-ai/calculon (caa4b11) and github.com/cli99/llm-analysis
(d841e40), which are not part of this project; PYTHON has numpy, fire and scikit-learn. Each tool
predicts the rows that it can express, with the files that it ships (``compare_calculon`` describes
Calculon's). llm-analysis runs dense models without context parallelism on A100 and H100 at the
FLOPs efficiency that its documentation suggests, 0.5. Boosted trees are fitted to the open rows:
the logarithm of the measured over the naive time, by sizes and degrees.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.naive import peak_flops, work_flops
from benchmarks.accuracy.runs import PUBLISHED
from benchmarks.accuracy.sources import is_fitted, is_locked
from benchmarks.compare_calculon import is_expressible, predict_by_calculon

RECORDED = PUBLISHED / "baselines.csv"
FOLDER = Path(__file__).parent
LLM_ANALYSIS_GPUS = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb")
RECOMPUTE = {"none": "NONE", "selective": "ATTN_COMPUTE", "full": "FULL"}
LEVELS = ("none", "selective", "full")


def llm_analysis_input(case: Case) -> dict[str, Any] | None:
    """Return the case in the format of ``llm_analysis_rows``, or None if it cannot be expressed."""
    model, layout, job = case.problem.model, case.layout, case.problem.job
    gpu = case.problem.cluster.gpu.name
    low = case.run.precision == "fp8"
    if case.kind == "MoE" or layout.cp > 1 or gpu not in LLM_ANALYSIS_GPUS:
        return None
    if not low and case.run.precision not in ("bf16", "fp16"):
        return None
    return {
        "gpu": gpu,
        "model": {
            "name": model.name,
            "num_layers": model.layers,
            "n_head": model.attention.heads,
            "hidden_dim": model.hidden,
            "vocab_size": model.vocab,
            "max_seq_len": job.sequence_length,
            "num_key_value_heads": model.attention.kv_heads,
            "ffn_embed_dim": model.ffn.size,
            "mlp_gated_linear_units": model.ffn.gated,
        },
        "dtype": {"name": "fp8", "weight_bits": 8, "activation_bits": 8} if low else {},
        "parallelism": {"tp_size": layout.tp, "pp_size": layout.pp, "dp_size": layout.dp},
        "training": {
            "batch_size_per_gpu": layout.micro_batch,
            "gradient_accumulation_steps": layout.micro_batches(job.global_batch),
            "seq_len": job.sequence_length,
            "total_num_tokens": job.global_batch * job.sequence_length,
        },
        "recompute": RECOMPUTE[layout.recompute.granularity],
        "zero": layout.zero_stage,
    }


def llm_analysis_seconds(cases: Sequence[Case], python: str, checkout: str) -> dict[str, float]:
    """Return the seconds of every case that llm-analysis can express, by run id."""
    asked = [(case, one) for case in cases if (one := llm_analysis_input(case)) is not None]
    answers = _run(python, "llm_analysis_rows.py", [one for _, one in asked], checkout)
    pairs = zip(asked, answers, strict=True)
    return {case.run.id: seconds for (case, _), seconds in pairs if seconds}


def features(case: Case) -> list[float]:
    """Return the numbers by which trees split, mostly logarithms."""
    model, layout, job = case.problem.model, case.layout, case.problem.job
    cluster = case.problem.cluster
    sizes = (case.run.gpus, layout.tp, layout.cp, layout.pp, layout.vpp, layout.ep, layout.dp)
    sizes += (layout.micro_batch, layout.micro_batches(job.global_batch), job.sequence_length)
    sizes += (model.hidden, model.layers, model.attention.heads, model.vocab)
    experts = model.experts
    sizes += (experts.count, experts.top_k) if experts else (1, 1)
    rates = (peak_flops(case), cluster.gpu.memory_bytes, work_flops(case))
    words = ("volta", "ampere", "hopper", "blackwell", "cdna4", "cdna3", "cdna2")
    stack = case.generation.partition("/")[2]
    return [
        *(log(one) for one in (*sizes, *rates)),
        float(words.index(cluster.gpu.generation)),
        float(LEVELS.index(layout.recompute.granularity)),
        float(layout.zero_stage),
        *(float(stack == name) for name in ("torch-native", "unfused", "bigscience", "jax")),
    ]


def tree_seconds(cases: Sequence[Case], python: str) -> dict[str, float]:
    """Return the seconds of the locked cases by trees fitted to the open ones, by run id."""
    rows = [case for case in cases if is_fitted(case)]
    locked = [case for case in cases if is_locked(case)]
    ideal = {case.run.id: work_flops(case) / peak_flops(case) for case in cases}
    data = {
        "train": [features(case) for case in rows],
        "target": [log(case.seconds / ideal[case.run.id]) for case in rows],
        "test": [features(case) for case in locked],
    }
    answers = _run(python, "tree_rows.py", data)
    pairs = zip(locked, answers, strict=True)
    return {case.run.id: ideal[case.run.id] * exp(value) for case, value in pairs}


def _run(python: str, script: str, data: object, *words: str) -> list[Any]:
    command = [python, str(FOLDER / script), *words]
    done = subprocess.run(
        command, input=json.dumps(data), capture_output=True, text=True, check=True
    )
    answers: list[Any] = json.loads(done.stdout)
    return answers


def write_recorded(path: Path, columns: dict[str, dict[str, float]]) -> None:
    """Write the seconds of each run, by tool and run id, as CSV with one row per tool and run."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("tool", "id", "seconds"))
        for tool, seconds in columns.items():
            writer.writerows((tool, run, f"{value:.4g}") for run, value in sorted(seconds.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the recorded predictions; return exit status 2 if a tool cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines")
    parser.add_argument("--calculon", metavar="CHECKOUT", required=True)
    parser.add_argument("--llm-analysis", metavar="CHECKOUT", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--output", type=Path, default=RECORDED)
    options = parser.parse_args(argv)
    cases = [case for case in load(None).cases if case.scored]
    expressible = [case for case in cases if is_expressible(case)]
    try:
        answers = predict_by_calculon(expressible, options.python, options.calculon)
        columns = {
            "Calculon": {one.case.run.id: one.calculon * one.case.seconds for one in answers},
            "llm-analysis": llm_analysis_seconds(cases, options.python, options.llm_analysis),
            "boosted trees": tree_seconds(cases, options.python),
        }
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"baselines: {error}", file=sys.stderr)
        return 2
    write_recorded(options.output, columns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
