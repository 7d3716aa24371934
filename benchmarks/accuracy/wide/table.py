"""Reader of a wide table of training runs: ``train.csv``, one run per row, blank if unknown.

``models.csv`` in the same folder or in the one above may contain architecture facts. Rows that the
scoring rule excludes (superseded, tier C, not pretraining) are skipped. Hybrid models that the
catalog lacks are counted as not modeled.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.accuracy.runs import Run
from benchmarks.accuracy.wide.dense_recipes import recipe_settings
from benchmarks.accuracy.wide.jax_recipes import policy_words, recipe_shard
from benchmarks.accuracy.wide.models import Architectures
from benchmarks.accuracy.wide.moe_recipes import FEATURES, RECOMPUTE, recipe_words
from benchmarks.accuracy.wide.words import (
    NODES,
    features,
    framework,
    network_gbps,
    nics,
    release_features,
    shard,
)

PRECISIONS = {"fp8-mx": "mxfp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "bf16": "bf16", "fp16": "fp16"}
"""Precision in the source -> format. Every other word that begins with fp8 means fp8."""


@dataclass
class TrainingTable:
    """Runs of a table, and counts of the reasons why others were left out."""

    runs: list[Run] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_training_table(folder: Path) -> TrainingTable:
    """Return every usable row of ``folder/train.csv``; ``folder`` may also be the file itself."""
    path = folder / "train.csv" if folder.is_dir() else folder
    beside = (path.parent / "models.csv", path.parent.parent / "models.csv")
    architectures = Architectures(next((file for file in beside if file.is_file()), None))
    table = TrainingTable()
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not is_scored(row) and not is_in_sweep(row):
                table.left_out["not scored"] += 1
            elif reason := _why_unmodeled(row, architectures):
                table.left_out[reason] += 1
            else:
                table.runs.append(_run_of_row(row, architectures))
    return table


def is_scored(row: dict[str, str]) -> bool:
    """Return True if a row is scored: tier A or B, the latest of its kind, pretraining."""
    return row["is_latest"] == "1" and row["tier"] in ("A", "B") and row["task"] == "pretrain"


def is_in_sweep(row: dict[str, str]) -> bool:
    """Return True if a row belongs to a pretraining sweep. Such rows are kept even if they are not
    scored, because the order of their measured times is still compared with predictions."""
    return bool(row["sweep_id"]) and row["task"] == "pretrain"


def _why_unmodeled(row: dict[str, str], architectures: Architectures) -> str:
    if architectures.is_unknown_hybrid(row["model"]):
        return "hybrid of state-space and attention layers"
    if row["gpu"] not in NODES:
        return f"no such GPU in the catalog: {row['gpu']}"
    if architectures.model(row) is None:
        return f"architecture unknown: {row['model']}"
    timed = _parse_float(row["derived_step_time_s"]) or _parse_float(row["derived_tokens_s_gpu"])
    if not timed and row["sweep_rank"] != "OOM":
        return "no time measured"
    return "" if _parse_int(row["num_gpus"]) and _parse_int(row["seq_len"]) else "size unknown"


def _run_of_row(row: dict[str, str], architectures: Architectures) -> Run:
    name, layers, spec = architectures.model(row) or ("", None, None)
    stated = {"0": False, "1": True}.get(row["sp"].removesuffix(".0"))
    recipe = recipe_settings(row)
    zero, step = _parse_int(row["zero_stage"]), _parse_float(row["derived_step_time_s"])
    return Run(
        id=row["id"],
        model=name,
        layers=layers,
        mtp=0 if "w/o MTP" in row["notes"] else architectures.mtp(row["model"]),
        node=_node_type(row),
        gpus=_parse_int(row["num_gpus"]) or 1,
        gpus_per_node=_smaller_host_gpus(row),
        network_gbps=network_gbps(f"{row['cluster']}; {row['overlap']}"),
        nics=nics(f"{row['cluster']}; {row['source']}"),
        precision=PRECISIONS.get(row["precision"], "fp8"),
        recipe=row["precision"],
        sequence=_parse_int(row["seq_len"]) or 1,
        global_batch=_parse_int(row["global_batch"]),
        tp=_parse_int(row["tp"]),
        cp=_parse_int(row["cp"]) or 1,
        pp=_parse_int(row["pp"]) or 1,
        vpp=_parse_int(row["vpp"]) or None,
        ep=_parse_int(row["ep"]) or None,
        etp=_parse_int(row["etp"]) or None,
        shard=_parse_int(row["gpus_per_node"])
        if "intra-node" in row["fsdp"]
        else shard(row["fsdp"]) or recipe_shard(row["source"]),
        zero=3 if zero is None and row["fsdp"] not in ("", "0", "0.0") else zero,
        sequence_parallel=recipe.sequence_parallel if stated is None else stated,
        micro_batch=_parse_int(row["micro_batch"]),
        recompute=_parse_recompute(row),
        overlap=_stated_and_recipe_features(row),
        step_seconds=step,
        tokens_per_s_per_gpu=None if step else _parse_float(row["derived_tokens_s_gpu"]),
        oom=row["sweep_rank"] == "OOM",
        tier=row["tier"] if is_scored(row) else "C",
        sweep=row["sweep_id"],
        cluster=row["cluster"],
        framework=framework(f"{row['source']} {row['notes']} {row['id']}"),
        source=row["source"],
        spec=spec,
    )


def _stated_and_recipe_features(row: dict[str, str]) -> str:
    """Return the features that the row states, joined with the features of its recipe."""
    stated = features(f"{row['overlap']}; {row['notes']}")
    stated |= release_features(row["source"], row["gpu"])
    known = set(recipe_words(FEATURES, row).split("+"))
    return "+".join(sorted((stated | known | recipe_settings(row).features) - {""}))


def _node_type(row: dict[str, str]) -> str:
    """Return the node type of the GPU.

    16 V100 per host means a DGX-2. An H100 with HBM2e is a variant with less bandwidth and power.
    """
    if row["gpu"] == "v100-32" and _parse_int(row["gpus_per_node"]) == 16:
        return "dgx-2"
    if "p5" in row["cluster"] and row["gpu"] == "h100-80":
        return "aws-p5"
    if "Jean Zay" in row["cluster"] and row["gpu"] == "a100-80":
        return "jean-zay-a100"
    if "HBM2e" in row["cluster"] and row["gpu"] == "h100-80":
        return NODES["h100-96-meta"]
    return NODES[row["gpu"]]


def _smaller_host_gpus(row: dict[str, str]) -> int | None:
    """Return the GPUs per host if the host is a smaller variant of an 8-GPU type, or else None."""
    stated = _parse_int(row["gpus_per_node"])
    usual = not row["gpu"].startswith(("gb", "gh")) and stated is not None and stated < 8
    return stated if usual else None


def _parse_recompute(row: dict[str, str]) -> str | None:
    """Convert ``selective:a,b`` to ``selective:a+b``. The first word is the granularity."""
    words = re.split(r"[\s(]", row["recompute"].strip(), maxsplit=1)
    if words[0]:
        return words[0].replace(",", "+")
    return recipe_words(RECOMPUTE, row) or policy_words(row) or recipe_settings(row).recompute


def _parse_int(text: str) -> int | None:
    number = _parse_float(text)
    return None if number is None else int(number)


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
