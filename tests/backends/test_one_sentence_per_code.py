"""Sentences about the sizes of a model, which are the same in all frameworks and engines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from parc.backends.registry import installed_backends
from tests.cli.specs import parc

SENTENCES = {
    "D01": r"\d+ attention heads are not divisible by tp=\d+",
    "D02": r"\d+ key-value heads are (not divisible by|neither a multiple nor a divisor of) tp=\d+",
    "D06": r"the width of an? [A-Za-z ]+, \d+, is not divisible by (etp|tp)=\d+"
    r"|the width of the [A-Za-z ]+, \d+, is not divisible by (tp=\d+|its \d+ ranks)",
    "M01": r"ep=\w+ distributes experts, but the model has none",
}
MISTAKES = (
    {"model": "llama-3-70b", "layout": {"tp": 3}},
    {
        "model": {"base": "llama-3-70b", "heads": 48, "kv_heads": 12, "head_dim": 128},
        "layout": {"tp": 8},
    },
    {"model": {"base": "llama-3-70b", "ffn": 28670}, "layout": {"tp": 8}},
    {"model": "llama-3-70b", "layout": {"ep": 8}},
)
TRAINING = {"sequence_length": 4096, "global_batch": 512}
SERVING = {
    "kind": "serve",
    "precision": "bf16",
    "traffic": {"input_tokens": 1000, "output_tokens": 200},
}
TARGETS = [
    *((one.name, TRAINING) for one in installed_backends("framework") if one.training),
    *((one.name, SERVING | {"checkpoint": "/m"}) for one in installed_backends("engine")),
]


@pytest.mark.parametrize(("target", "job"), TARGETS)
def test_each_target_reports_sizes_with_the_sentence_of_the_code(
    target: str, job: dict[str, Any], tmp_path: Path
) -> None:
    checked = set()
    for number, mistake in enumerate(MISTAKES):
        spec = tmp_path / f"{number}.yaml"
        cluster = {"node": "dgx-h100", "nodes": 3 if number == 0 else 4}
        head = {"parc": 1, "name": "x", "cluster": cluster, "job": job, "emit": [target]}
        spec.write_text(json.dumps(head | mistake), "utf-8")
        document = json.loads(parc("check", str(spec), "--format", "json").stdout)
        for found in document["diagnostics"]:
            code = found["code"].removeprefix("PARC-")
            if code in SENTENCES:
                checked.add(code)
                assert re.fullmatch(SENTENCES[code], found["message"]), found["message"]
    assert checked
