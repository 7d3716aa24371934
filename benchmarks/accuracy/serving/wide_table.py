"""Conversion of a wide table of serving measurements (``serving.csv``) to the published format.

Values that a row leaves out are filled by these rules:

- weight format: bf16; block fp8 and int8 count as fp8, mxfp4 as nvfp4. GPT-OSS is mxfp4, the only
  format in which it was published.
- cache format: fp8 with fp8 and fp4 weights, as these checkpoints specify; otherwise 16 bit.
- lengths: the sampled benchmark that names a day of 2026 draws them from 0.8 to 1.0 of nominal.
- attention data parallelism and expert parallelism without degrees: experts over all GPUs;
  attention by request if there is no NVLink, otherwise by head.
- more ranks than GPUs: tp counts the ranks of attention data parallelism.
- disaggregated rows: only the decode pool and its TPOT are used.
- waits of new requests: those of the options in the scripts of the sampled benchmark that names a
  day of 2026 (SemiAnalysisAI/InferenceX, benchmarks/single_node); see ``wait_steps``.
- sweeps: layouts are compared only if they were measured with the same version of the engine. If
  the source does not record whether speculative decoding was on, they must also have been measured
  on the same day: between two days, such rows of the same layout differ by up to a factor of 2.

Rows of tier C, without numeric mean lengths, or of an unknown model are left out, and rows whose
measurements contradict the row (see ``_contradiction``).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from pathlib import Path

from benchmarks.accuracy.serving.rows import ServingRow, parse_number, row_of
from parc.compiler.cost.counts.flops import layer_flops
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.steady_state import decode_steps
from parc.compiler.cost.serving.traffic import max_running_requests

NODES = {
    "a100-80": "dgx-a100",
    "h100-80": "hgx-h100",
    "h200": "hgx-h200",
    "b200": "hgx-b200",
    "b300": "hgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s-8",
    "rtx6000pro": "rtx-pro-6000-8",
    "gh200-96": "gh200-1",
    "gh200-144": "gh200-1 gh200-144gb",
    "a100-40": "dgx-a100-40gb",
    "a100-pcie": "a100-pcie-8",
    "h800": "hgx-h800",
    "h100-pcie": "h100-pcie-8",
    "h20": "hgx-h20",
    "mi300x": "mi300x-8",
    "mi325x": "mi325x-8",
    "mi355x": "mi355x-8",
}
MODELS = (
    ("llama3.1-8b", "llama-3.1-8b"),
    ("llama2-70b", "llama-2-70b"),
    ("llama-2-13b", "llama-2-13b"),
    ("llama-2-7b", "llama-2-7b"),
    ("qwen3-235b", "qwen3-235b-a22b"),
    ("qwen3-30b", "qwen3-30b-a3b"),
    ("mixtral-8x22b", "mixtral-8x22b"),
    ("deepseek-v3", "deepseek-v3"),
    ("deepseek-r1", "deepseek-r1"),
    ("kimi-k2", "kimi-k2"),
)
"""(prefix, catalog name) of model names that differ from the catalog's."""
SUFFIXES = ("-instruct", "-fp8", "-fp4", "-nvfp4", "-base")
FORMATS = {"": "bf16", "fp8-block": "fp8", "int8": "fp8", "mxfp4": "nvfp4", "fp4": "nvfp4"}
LENGTH_SHARE = 0.9
DAY = re.compile(r"(\d{4})-(\d\d)-\d\d(?:\.csv)?")
MEASURED_ON = re.compile(r"measured (\d{4}-\d\d-\d\d)")
VERSION = re.compile(r"(\d+)\.(\d+)\.")
OVERLAPPING_VLLM = (0, 14)
"""First version of vLLM with asynchronous scheduling by default."""
OVERLAPPING_SINCE = "2025-11"
"""Month since which the scripts of the sampled benchmark set --async-scheduling for vLLM."""
UNRECORDED = "speculative/MTP settings not recorded"
LEAST_SHARE = 0.5
"""Smallest number of decoding requests, divided by the number that fits into memory."""
UNCERTAIN_MEMORY = 0.07
"""Device memory that an engine may need beyond the estimate, as a fraction of the whole: 83 % of
the published readings are within this error (docs/accuracy.md, Memory)."""
POLLED_OFTEN = ("hgx-b300", "qwen3.5-397b-a17b", "fp8")
"""Node, model and weights of the benchmark whose server polls for requests every 10 steps under any
load."""
BALANCE_TIMEOUT = 60
"""Steps after which TensorRT-LLM starts prompts that only some ranks have (timeout_iters in the
scripts of InferenceX)."""
BALANCE_INTERVALS = 60
"""Intervals of the numerical integration up to BALANCE_TIMEOUT."""
MODES = ("agg", "agg-online", "agg-offline", "disagg", "decode-step")
MEAN = re.compile(r"mean ~ (\d+)")


@dataclass
class ServingTable:
    """Rows that can be evaluated, and counts of the reasons why others cannot."""

    rows: list[ServingRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_serving_table(folder: Path) -> ServingTable:
    """Return the rows of ``folder/serving.csv`` (or of ``folder/measured/serving.csv``).

    Raises:
        OSError: Neither file can be read.
    """
    path = folder / "serving.csv"
    if not path.is_file():
        path = folder / "measured" / "serving.csv"
    wide = ServingTable()
    with path.open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            reason = _why_unusable(record)
            row = None if reason else row_of(published(record))
            if row is not None and (reason := _contradiction(row)):
                row = None
            if row is not None:
                wide.rows.append(row)
            else:
                wide.left_out[reason or f"unknown model, GPU or format: {record['model']}"] += 1
    return wide


def _why_unusable(record: Mapping[str, str]) -> str:
    """Return the reason why a row cannot be evaluated, or an empty string."""
    if record["tier"] == "C":
        return "tier C"
    if record["mode"] not in MODES:
        return f"mode {record['mode']}: no mean lengths or load"
    if not _prompt_length(record["isl"]) or not parse_number(record["osl"]):
        return "no mean lengths"
    axis = "decode_tp" if record["mode"] == "disagg" else "tp"
    return "" if parse_number(record[axis]) else "no layout"


def _contradiction(row: ServingRow) -> str:
    """Return the reason why the measured values cannot be those of the row, or an empty string."""
    if row.kind == "step" or row.setup.prefill_apart:
        return ""
    deployment = build_deployment(row.model, row.cluster, row.setup, row.layout)
    memory = deployment.memory
    gpu, measured, traffic = row.cluster.gpu, row.measured, row.traffic
    if memory.weights_bytes > gpu.memory_bytes:
        return "weights larger than the memory of the stated GPUs"
    # The prompts alone, at the highest rate of the data sheet.
    peak = 1e12 * max(rate for _, rate in gpu.peak_tflops)
    requests = measured.tokens_per_second_per_gpu / traffic.output_tokens
    if requests * _prompt_flops(row) > peak:
        return "more FLOP/s than the peak of the stated GPUs"
    if traffic.concurrency is None or not (measured.ttft_seconds and measured.tpot_seconds):
        return ""
    # Little's law: each request decodes during this share of its time in the system.
    decoding = measured.tpot_seconds * decode_steps(row.setup, traffic)
    running = traffic.concurrency * decoding / (measured.ttft_seconds + decoding)
    cache = memory.kv_bytes - UNCERTAIN_MEMORY * gpu.memory_bytes
    fitting = max_running_requests(deployment, traffic, cache)
    fitting = min(fitting * row.layout.dp * row.layout.replicas, traffic.concurrency)
    return "an unrecorded limit of requests" if running < LEAST_SHARE * fitting else ""


def _prompt_flops(row: ServingRow) -> float:
    """Return the FLOPs of the layers for the prompt of one request."""
    model, length = row.model, row.traffic.computed_input_tokens
    kinds = Counter(model.layer_kinds)
    return sum(
        number * layer_flops(model, kind, length, round(length)).total
        for kind, number in kinds.items()
    )


def sweep_of(record: Mapping[str, str]) -> str:
    """Return the name of the sweep of a row of the wide table, or an empty string."""
    if not record["sweep_id"]:
        return ""
    parts = [record["sweep_id"], record["engine_version"]]
    day = MEASURED_ON.search(record["notes"])
    if UNRECORDED in record["notes"] and day:
        parts.append(day[1])
    return " ".join(part for part in parts if part)


def published(record: Mapping[str, str]) -> dict[str, str]:
    """Convert a row to the published format."""
    step, apart = record["mode"] == "decode-step", record["mode"] == "disagg"
    weights = FORMATS.get(record["precision"], record["precision"])
    if "gpt-oss" in record["model"].lower():
        weights = "mxfp4"
    layout = _decode_pool(record) if apart else _layout_of_record(record)
    cache = record["kv_dtype"] or ("fp8" if weights in ("fp8", "nvfp4") else "bf16")
    sampled = "silicon_sample" in record["source"]
    found = {
        "id": record["id"],
        "model": _model_name(record["model"]),
        "node": NODES.get(record["gpu"], ""),
        "engine": _engine_name(record),
        "weights": weights,
        "kv": cache,
        **layout,
        "apart": "1" if apart else "",
        "input_tokens": _prompt_length(record["isl"]),
        "output_tokens": "2" if step else record["osl"],
        "share": str(LENGTH_SHARE) if sampled and "2026" in record["source"] else "",
        "concurrency": record["batch_size"] if step else record["concurrency"],
        "request_rate": "" if parse_number(record["concurrency"]) else record["qps"],
        "ttft_ms": "" if apart else record["ttft_ms"],
        "tpot_ms": record["tpot_ms"],
        "output_tokens_per_second_per_gpu": "" if apart else record["output_tok_s_per_gpu"],
        "sweep": sweep_of(record),
        "kind": "step" if step else "",
        "source": _source_name(record["source"]),
    }
    return found | {"wait_steps": str(wait_steps(found) or "")}


def wait_steps(record: Mapping[str, str]) -> float:
    """Return the decode steps for which options of InferenceX delay a new request.

    ``record`` is a row of the published format. The options are those of the scripts of March and
    April 2026.
    """
    if "sample of 2026" not in record["source"]:
        return 0.0
    if record["engine"] == "trtllm":
        ranks = parse_number(record["dp"])
        per_rank = parse_number(record["concurrency"]) / max(ranks, 1.0)
        if ranks <= 1 or not per_rank:
            return 0.0
        answer = LENGTH_SHARE * parse_number(record["output_tokens"])
        return balance_steps(per_rank / answer, ranks)
    if record["engine"] != "sglang" or record["node"] not in ("hgx-b200", "hgx-b300"):
        return 0.0
    # --scheduler-recv-interval; a request arrives in the middle of an interval on average.
    is_short = (record["node"], record["model"], record["weights"]) == POLLED_OFTEN
    interval = 10 if is_short or parse_number(record["concurrency"]) < 16 else 30
    return (interval - 1) / 2


def balance_steps(rate: float, ranks: float) -> float:
    """Return the mean number of steps that a prompt waits for prompts on all other ranks.

    ``rate`` is the number of prompts per step and rank. TensorRT-LLM (attention_dp_config:
    enable_balance, timeout_iters) starts prompts as soon as each of the ``ranks`` data-parallel
    ranks has one, at the latest BALANCE_TIMEOUT steps after the first prompt arrived.
    """
    width = BALANCE_TIMEOUT / BALANCE_INTERVALS
    # The probability that a rank has no prompt yet falls exponentially. The mean of the wait is the
    # integral of the probability that at least one of the other ranks has none.
    window = sum(
        width * (1 - (1 - exp(-rate * width * (step + 0.5))) ** (ranks - 1))
        for step in range(BALANCE_INTERVALS)
    )
    # The first prompt waits for the whole window, and the later ones for half of it on average.
    first = 1 / (1 + rate * ranks * window)
    return window * (1 + first) / 2


def _prompt_length(text: str) -> str:
    """Return the prompt length or the stated mean of a data set; empty if there is neither."""
    found = MEAN.search(text)
    return found[1] if found else text if parse_number(text) else ""


def _model_name(name: str) -> str:
    low = name.lower().rsplit("/", 1)[-1]
    for suffix in SUFFIXES:
        low = low.replace(suffix, "")
    return next((known for prefix, known in MODELS if low.startswith(prefix)), low)


def _engine_name(record: Mapping[str, str]) -> str:
    known = ("sglang", "vllm", "trtllm+triton")
    name = next((one for one in known if record["engine"].startswith(one)), "trtllm")
    return f"{name}+sync" if name == "vllm" and _is_synchronous(record) else name


def _is_synchronous(record: Mapping[str, str]) -> bool:
    """Return True if a row of vLLM was measured before it overlapped host and GPU by default."""
    number = VERSION.match(record["engine_version"])
    if number:
        return (int(number[1]), int(number[2])) < OVERLAPPING_VLLM
    day = MEASURED_ON.search(record["notes"])
    return not day or day[1] < OVERLAPPING_SINCE


def _source_name(text: str) -> str:
    """Return the repository and, for a sampled table, its file or month."""
    place = text.split()[0]
    if "/" not in place:  # the organization and its repository are separate words
        place = "/".join(text.split()[:2])
    if "silicon_sample" not in text:
        return place
    sample = text.rsplit("(", 1)[-1].rstrip(")").removeprefix("source_file=")
    return place + " " + DAY.sub(r"sample of \1/\2", sample)


def _layout_of_record(record: Mapping[str, str]) -> dict[str, str]:
    tp, dp = record["tp"], record["attn_dp"]
    if "enable_attention_dp" in record["notes"]:
        pcie = "no NVLink" in record["notes"]
        spread = _degrees("1", "1", tp, tp) if pcie else _degrees(tp, "1", "1", tp)
        return spread | {"gpus": _whole_number(record["num_gpus"])}
    degrees = _degrees(tp, record["pp"], dp, record["moe_ep"])
    ranks = int(degrees["tp"]) * int(degrees["dp"])
    gpus = parse_number(record["gpus_per_instance"]) or parse_number(record["num_gpus"])
    if ranks > gpus > 0:  # tp counts all ranks here, because it refers to the experts
        degrees["tp"] = str(max(int(degrees["tp"]) // int(degrees["dp"]), 1))
    if int(degrees["tp"]) * int(degrees["dp"]) % int(degrees["ep"]):
        degrees["ep"] = "1"
    return degrees | {"gpus": _whole_number(record["num_gpus"] or record["gpus_per_instance"])}


def _decode_pool(record: Mapping[str, str]) -> dict[str, str]:
    degrees = _degrees(record["decode_tp"], "1", record["decode_dp"], record["decode_ep"])
    workers = int(parse_number(record["decode_workers"]) or 1)
    gpus = workers * int(degrees["tp"]) * int(degrees["dp"])
    return degrees | {"gpus": str(gpus)}


def _degrees(tp: str, pp: str, dp: str, ep: str) -> dict[str, str]:
    return {
        "tp": _whole_number(tp),
        "pp": _whole_number(pp),
        "dp": _whole_number(dp),
        "ep": _whole_number(ep),
    }


def _whole_number(text: str) -> str:
    return str(max(int(parse_number(text)), 1))
