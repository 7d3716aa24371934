"""AIConfigurator and PARC on the same published service measurements, and on the same questions.

    python -m benchmarks.compare_aiconfigurator [--python PYTHON] [--data FOLDER] [--every N]

PYTHON is an interpreter that has AIConfigurator 0.12 (``pip install aiconfigurator==0.12.0``).
It is not part of this project. Three tables are printed:

- errors on rows that AIConfigurator can express: closed loops without prefill pools, for models and
  GPUs of its databases. Their weights are given as its quantization modes; its token budget of a
  step is its own default or 8,192, whichever is more accurate over all rows of an engine.
- choices among the layouts of published sweeps, by predicted throughput per GPU.
- questions as its users ask them: GPUs, lengths and limits on mean TTFT and TPOT, without a load.

PARC's errors of TTFT come from fits without any row of the source; its other errors are those of
the shipped constants. AIConfigurator has been calibrated by its authors on some of the same
deployments, which cannot be undone here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import parc
from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.score import format_median_errors
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving, read_serving
from benchmarks.accuracy.serving.rows import ServingRow
from benchmarks.accuracy.serving.waits import predict_unseen_sources, wait_rows

SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "b200-180gb": "b200_sxm",
    "b300-288gb": "b300_sxm",
    "gb200-186gb": "gb200",
    "gb300-288gb": "gb300",
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "l40s-48gb": "l40s",
    "rtx-pro-6000-96gb": "rtx_pro_6000_server",
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
MODELS = {
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
}
"""Catalog model -> checkpoint whose configuration AIConfigurator contains."""
QUANTIZATION: Mapping[str, Sequence[Mapping[str, str]]] = {
    "bf16": [{"gemm_quant_mode": "bfloat16", "moe_quant_mode": "bfloat16"}],
    "fp16": [{"gemm_quant_mode": "bfloat16", "moe_quant_mode": "bfloat16"}],
    "fp8": [
        {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"},
        {"gemm_quant_mode": "fp8_block", "moe_quant_mode": "fp8_block"},
    ],
    "nvfp4": [{"gemm_quant_mode": "nvfp4", "moe_quant_mode": "nvfp4"}],
    "mxfp4": [{}],
}
"""Weight format -> quantization modes to try, in this order."""
BLOCK_FP8 = ("deepseek-r1", "deepseek-v3", "minimax-m2.5")
"""Models whose checkpoint has fp8 weights in blocks."""
AS_PUBLISHED = ("gpt-oss-120b",)
"""Models in the format of their checkpoint: AIConfigurator chooses the modes of a GPU."""
CACHES = {"fp8": "fp8"}
STEP_TOKENS = (None, 8192)
"""Token budgets of a step to compare; None is AIConfigurator's default."""
QUESTIONS = (
    ("qwen3-32b", "hgx-h100", "vllm", "bf16", 8, 4000, 1000, 2.0, 0.050),
    ("qwen3-32b", "hgx-h200", "vllm", "bf16", 8, 4000, 500, 1.0, 0.025),
    ("llama-3.1-8b", "hgx-h100", "vllm", "bf16", 8, 1024, 1024, 0.5, 0.020),
    ("llama-3.1-70b", "hgx-h100", "vllm", "bf16", 8, 1024, 1024, 1.0, 0.040),
    ("llama-3.1-70b", "hgx-h200", "sglang", "bf16", 16, 2000, 500, 1.0, 0.030),
    ("llama-3.1-70b", "hgx-h100", "tensorrt-llm", "bf16", 8, 4000, 1000, 2.0, 0.060),
    ("qwen3-235b-a22b", "hgx-h200", "sglang", "bf16", 16, 4000, 1000, 2.0, 0.050),
    ("qwen3-30b-a3b", "hgx-h100", "vllm", "bf16", 8, 4000, 1000, 1.0, 0.030),
    ("mixtral-8x7b", "hgx-h100", "tensorrt-llm", "bf16", 8, 1024, 1024, 1.0, 0.030),
    ("deepseek-v3", "hgx-h200", "sglang", "fp8", 16, 4000, 1000, 3.0, 0.050),
)
"""Model, host type, engine, weights, GPUs, input and output tokens, TTFT and TPOT in seconds."""
NODES = {"hgx-h100": "h100_sxm", "hgx-h200": "h200_sxm"}
DRIVER = Path(__file__).parent / "aiconfigurator_rows.py"
Answer = dict[str, Any]
Errors = dict[str, float]
"""Quantity -> predicted / measured - 1."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Row that both tools predict, with the errors of both."""

    row: ServingRow
    parc: Errors
    other: Errors


def quantization_modes(model: str, weights: str, cache: str) -> Iterable[dict[str, str]]:
    """Yield the quantization modes to try, best first."""
    kv = {"kvcache_quant_mode": CACHES.get(cache, "bfloat16")}
    if model in AS_PUBLISHED:
        yield {}
        return
    tries = QUANTIZATION[weights]
    for one in reversed(tries) if model in BLOCK_FP8 else tries:
        yield {**one, **kv}
        yield dict(one)


def request_of(row: ServingRow, step_tokens: int | None) -> list[Answer] | None:
    """Return the alternatives of a request for ``row``, or None if it cannot be expressed."""
    layout, traffic = row.layout, row.traffic
    system = SYSTEMS.get(row.cluster.gpu.name)
    path = MODELS.get(row.model.name)
    if row.kind == "step" or row.setup.prefill_apart or not (system and path):
        return None
    if traffic.concurrency is None or row.setup.weights not in QUANTIZATION:
        return None
    base: Answer = {
        "model_path": path,
        "system_name": system,
        "backend_name": ENGINES[row.setup.engine.name],
        "isl": round(traffic.input_tokens),
        "osl": round(traffic.output_tokens),
        # requests on one data-parallel rank of attention
        "batch_size": max(round(traffic.concurrency / (layout.replicas * layout.dp)), 1),
        "tp_size": layout.tp,
        "pp_size": layout.pp,
        "attention_dp_size": layout.dp,
    }
    if step_tokens is not None:
        base["ctx_tokens"] = step_tokens
    if row.model.experts:
        base["moe_ep_size"] = layout.ep
        base["moe_tp_size"] = layout.tp * layout.dp // layout.ep
    return [
        {**base, **mode}
        for mode in quantization_modes(row.model.name, row.setup.weights, row.setup.kv)
    ]


def run_aiconfigurator(requests: Sequence[list[Answer]], python: str) -> list[Answer]:
    """Return AIConfigurator's answers to ``requests``."""
    command = [python, str(DRIVER)]
    text = json.dumps(requests)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    answers: list[Answer] = json.loads(done.stdout)
    return answers


def errors_of_answer(row: ServingRow, answer: Answer) -> Errors:
    """Return the errors of an answer for every quantity that was measured."""
    measured = row.measured
    pairs = (
        ("TTFT", answer["ttft"] / 1e3, measured.ttft_seconds),
        ("TPOT", answer["tpot"] / 1e3, measured.tpot_seconds),
        ("tokens/s", answer["tokens/s/gpu"], measured.tokens_per_second_per_gpu),
    )
    return {name: value / truth - 1 for name, value, truth in pairs if truth}


def compare(predictions: Sequence[ServingPrediction], python: str) -> list[Compared]:
    """Return the rows that both tools predict, with the better token budget for each engine."""
    unseen = predict_unseen_sources(wait_rows(predictions))
    chosen = [one for one in predictions if request_of(one.row, None) is not None]
    found: list[Compared] = []
    tries = []
    for tokens in STEP_TOKENS:
        requests = [request for one in chosen if (request := request_of(one.row, tokens))]
        tries.append(run_aiconfigurator(requests, python))
    for engine in sorted({one.row.setup.engine.name for one in chosen}):
        own = [index for index, one in enumerate(chosen) if one.row.setup.engine.name == engine]
        ways = [
            [
                Compared(one.row, _parc_errors(one, unseen), errors_of_answer(one.row, answers[at]))
                for at in own
                if "error" not in answers[at] and (one := chosen[at])
            ]
            for answers in tries
        ]
        found += min(ways, key=_distance)
    return found


def _parc_errors(one: ServingPrediction, unseen: Mapping[str, float]) -> Errors:
    ratio = unseen.get(one.row.name)
    ttft = None if ratio is None else ratio - 1
    pairs = (("TTFT", ttft), ("TPOT", one.tpot), ("tokens/s", one.rate))
    return {name: error for name, error in pairs if error is not None}


def _distance(rows: Sequence[Compared]) -> float:
    errors = [abs(error) for row in rows for error in row.other.values()]
    return median(errors) if errors else float("inf")


def error_table(rows: Sequence[Compared]) -> str:
    """Return Markdown with the median absolute errors of both tools, by engine and quantity."""
    lines = []
    engines = sorted({one.row.setup.engine.name for one in rows})
    for engine in [*engines, "all"]:
        own = [one for one in rows if engine in (one.row.setup.engine.name, "all")]
        for quantity in ("TPOT", "TTFT", "tokens/s"):
            both = [one for one in own if quantity in one.parc and quantity in one.other]
            if both:
                pair = (
                    format_median_errors(one.parc[quantity] for one in both),
                    format_median_errors(one.other[quantity] for one in both),
                )
                lines.append((engine, quantity, str(len(both)), *pair))
    return markdown(("engine", "quantity", "rows", "PARC", "AIConfigurator"), lines)


def choice_table(rows: Sequence[Compared]) -> str:
    """Return Markdown: choices of both tools among the measured layouts of each sweep."""
    sweeps: dict[str, list[Compared]] = {}
    for one in rows:
        if one.row.sweep and "tokens/s" in one.other and "tokens/s" in one.parc:
            sweeps.setdefault(one.row.sweep, []).append(one)
    several = [own for own in sweeps.values() if len({one.row.layout for one in own}) > 1]
    lines = []
    for name in ("PARC", "AIConfigurator"):
        regrets = [_regret(own, name) for own in several]
        right = sum(regret == 0 for regret in regrets)
        figures = (mean(regrets), max(regrets)) if regrets else (0.0, 0.0)
        worst = [f"{100 * value:.1f}" for value in figures]
        lines.append((name, str(len(several)), str(right), *worst))
    return markdown(("tool", "sweeps", "fastest chosen", "mean regret, %", "worst, %"), lines)


def _regret(rows: Sequence[Compared], tool: str) -> float:
    def predicted(one: Compared) -> float:
        error = (one.parc if tool == "PARC" else one.other)["tokens/s"]
        return one.row.measured.tokens_per_second_per_gpu * (1 + error)

    pick = max(rows, key=predicted)
    best = max(one.row.measured.tokens_per_second_per_gpu for one in rows)
    return best / pick.row.measured.tokens_per_second_per_gpu - 1


def question_table(python: str) -> str:
    """Return Markdown: what each tool chooses and predicts for each question, and its CPU time."""
    lines = []
    for question, answer in zip(QUESTIONS, run_aiconfigurator(_searches(), python), strict=True):
        model, node, engine, weights, gpus, *numbers = question
        limits = f"{numbers[0]}/{numbers[1]} tokens, {numbers[2]:g} s, {1e3 * numbers[3]:g} ms"
        lines.append(
            (
                f"{model} {weights}, {gpus} GPUs of {node}, {engine}",
                limits,
                *_own_answer(question),
                *_other_answer(answer),
            )
        )
    head = ("question", "traffic and limits", "PARC", "tokens/s per GPU, TTFT, TPOT", "CPU s",
            "AIConfigurator", "tokens/s per GPU, TTFT, TPOT", "CPU s")  # fmt: skip
    return markdown(head, lines)


def _searches() -> list[list[Answer]]:
    return [
        [
            {
                "model_path": MODELS[model],
                "system": NODES[node],
                "backend": ENGINES[engine],
                "total_gpus": gpus,
                "isl": inputs,
                "osl": outputs,
                "ttft": 1e3 * ttft,
                "tpot": 1e3 * tpot,
            }
        ]
        for model, node, engine, _, gpus, inputs, outputs, ttft, tpot in QUESTIONS
    ]


def _own_answer(question: tuple[Any, ...]) -> tuple[str, str, str]:
    model, node, engine, weights, gpus, inputs, outputs, ttft, tpot = question
    start = time.process_time()
    try:
        plan = parc.compile(
            {
                "parc": 1,
                "name": "question",
                "model": model,
                "cluster": {"node": node, "nodes": gpus // 8},
                "job": {
                    "kind": "serve",
                    "precision": weights,
                    "traffic": {"input_tokens": inputs, "output_tokens": outputs},
                },
                "goals": {"ttft": f"{ttft}s", "tpot": f"{1e3 * tpot}ms"},
                "emit": [engine],
            }
        )
    except parc.SpecError as error:
        return f"none: {error.diagnostics[0].code}", "", f"{time.process_time() - start:.1f}"
    seconds = time.process_time() - start
    layout, found = plan.layout, plan.estimate
    pick = f"{layout.replicas} x tp{layout.tp} pp{layout.pp} dp{layout.dp} ep{layout.ep}"
    figures = _figures(found.tokens_per_second_per_gpu, found.ttft_seconds, found.tpot_seconds)
    return pick, figures, f"{seconds:.1f}"


def _other_answer(answer: Answer) -> tuple[str, str, str]:
    if "error" in answer:
        return f"none: {answer['error'][:60]}", "", ""
    parallel = answer.get("parallel", "prefill and decode pools")
    figures = _figures(answer["tokens/s/gpu"], answer["ttft"] / 1e3, answer["tpot"] / 1e3)
    return str(parallel), figures, f"{answer['cpu_seconds']:.1f}"


def _figures(rate: float, ttft: float, tpot: float) -> str:
    return f"{rate:,.0f}, {1e3 * ttft:,.0f} ms, {1e3 * tpot:.1f} ms"


def thin_out(predictions: Sequence[ServingPrediction], every: int) -> list[ServingPrediction]:
    """Return the rows of each ``every``-th sweep; a row without a sweep counts as one."""
    names = {one.row.name: one.row.sweep or one.row.name for one in predictions}
    kept = set(list(dict.fromkeys(names.values()))[::every])
    return [one for one in predictions if names[one.row.name] in kept]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return exit status 2 if AIConfigurator does not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_aiconfigurator")
    parser.add_argument("--python", default=sys.executable, help="Python with AIConfigurator")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/serving.csv")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="compare only each Nth sweep (default 1)"
    )
    options = parser.parse_args(argv)
    predictions = thin_out(predict_serving(read_serving(options.data).rows), options.every)
    try:
        rows = compare(predictions, options.python)
        questions = question_table(options.python)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"compare_aiconfigurator: {error}", file=sys.stderr)
        return 2
    total = sum(request_of(one.row, None) is not None for one in predictions)
    print(f"{len(predictions)} rows; {total} can be expressed; {len(rows)} have an answer.\n")
    print("\n\n".join([error_table(rows), choice_table(rows), questions]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
