"""The law of identity: import of an emitted launch file, then compile, gives the same file.

A launch file does not contain the hosts, and a serving command not the traffic: these sections are
taken from the original spec. PARC_IDENTITY=300 walks that many random plans, and all examples.
"""

from __future__ import annotations

import copy
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Layout, PipelineSplit
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.importers.format_fragment import fragment_tree
from parc.compiler.tools.importers.import_files import import_files
from tests.compiled import EXAMPLES, ROOT, Files, Spec, emitted, example

WALK = int(os.environ.get("PARC_IDENTITY", "0"))
FILES = {
    "megatron-args": "megatron/args.sh",
    "deepspeed-json": "deepspeed/ds_config.json",
    "vllm-args": "vllm/serve.sh",
}
"""Kind of ``parc import`` -> the emitted file with the settings of a framework or engine."""
FEW = ("deepseek-v3-serve", "gpt2-small", "llama-65b-pipeline", "llama-3-70b-offload")
NOT_IN_DEEPSPEED = ("sequence_length", "steps", "seed", "load_dir", "kind", "checkpoint_dir")
"""``job`` fields that DeepSpeed's config does not contain; the program has them."""


def imported(kind: str, text: str) -> tuple[Spec, list[str]]:
    """Return (imported sections, findings) of an emitted file."""
    sink = Sink()
    found = import_files(kind, [(text, "given")], sink)
    assert found is not None, [one.finding.message for one in sink.diagnostics]
    return fragment_tree(found.fragment, sink), [one.finding.message for one in sink.diagnostics]


def completed(kind: str, fragment: Spec, plan: AnyPlan) -> Spec:
    """Return the imported sections with those that the file cannot contain."""
    original: dict[str, Any] = json.loads(plan.problem.spec_json)
    spec = {
        key: original[key]
        for key in ("parc", "name", "cluster", "versions", "emit")
        if key in original
    }
    spec["goals"] = {**original.get("goals", {}), **fragment.get("goals", {})}
    launch = {key: value for key, value in original.get("launch", {}).items() if key != "args"}
    spec["launch"] = {**launch, **fragment.get("launch", {})}
    spec |= {key: fragment[key] for key in ("model", "job", "layout") if key in fragment}
    spec = copy.deepcopy(spec)
    spec.setdefault("model", original["model"])
    if kind == "vllm-args":
        spec["job"]["traffic"] = original["job"]["traffic"]
    if kind == "deepspeed-json":
        kept = {key: original["job"][key] for key in NOT_IN_DEEPSPEED if key in original["job"]}
        spec["job"] |= kept
        for size in ("tp", "pp", "ep", "etp"):
            spec["layout"].setdefault(size, getattr(plan.layout, size))
    return spec


def comparable(plan: AnyPlan) -> object:
    """Return the layout; of a model with a layer pattern, only the layers of its stages.

    The bars in a pattern do not show from which fields of a spec the stages follow.
    """
    layout = plan.layout
    if isinstance(layout, Layout) and plan.problem.model.pattern:
        stages = PipelineSplit("string", False, False, "", layout.split.chunks)
        return replace(layout, split=stages)
    return layout


def assert_identity(kind: str, plan: AnyPlan, files: Files, folder: Path) -> None:
    """Import the file of ``kind``, compile the result, and compare the layout and the file."""
    fragment, findings = imported(kind, files[FILES[kind]])
    assert findings == []
    sink = Sink()
    text = json.dumps(completed(kind, fragment, plan))
    again = plan_spec(SpecSource("again.yaml", text, folder), (), sink)
    assert again is not None, [one.finding.message for one in sink.diagnostics]
    assert comparable(again) == comparable(plan)
    written = {one.path: one.text for one in emit_plan(again, sink)}
    assert written[FILES[kind]] == files[FILES[kind]]


@pytest.mark.parametrize("name", EXAMPLES if WALK else FEW)
def test_an_imported_launch_file_of_an_example_compiles_to_the_same_file(name: str) -> None:
    plan = example(name)
    files = emitted(plan)
    for kind, path in FILES.items():
        if path in files:
            assert_identity(kind, plan, files, ROOT / "examples" / name)


MODELS = (
    "llama-3-8b",
    "mixtral-8x7b",
    "gpt2-medium",
    "mistral-7b-v0.1",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
)


def random_spec(dice: random.Random) -> Spec:
    """Return a small training spec for Megatron with random pins, job and arguments."""
    nodes = dice.choice([1, 2, 4])
    job: Spec = {
        "sequence_length": dice.choice([512, 1024]),
        "global_batch": dice.choice([32, 96, 192]),
        "steps": dice.randint(100, 10**6),
        "learning_rate": dice.uniform(1e-6, 1e-3),
        "weight_decay": dice.random(),
        "seed": dice.randint(1, 10**6),
        "lr_decay": dice.choice(["cosine", "linear", "constant", "wsd", "inverse-square-root"]),
        "adam_beta2": round(dice.random(), 4),
        "gradient_clipping": dice.choice([0.0, 0.5, 1.0]),
        "precision": dice.choice(["bf16", "bf16", "fp16", "fp8"]),
    }
    if job["precision"] != "fp16":
        job["gradient_precision"] = dice.choice(["fp32", "bf16"])
    if dice.random() < 0.5:
        job |= {"data": ["/data/a b", "/data/c"], "checkpoint_dir": "/out/run 1"}
    if dice.random() < 0.5:
        job["warmup_steps"] = dice.choice([0, 50, "2%"])
    layout: Spec = {}
    for name, values in {
        "tp": [1, 2, 4],
        "pp": [1, 2, 4],
        "vpp": [1, 2],
        "micro_batch": [1, 2],
        "zero_stage": [0, 1],
        "sequence_parallel": [True, False],
        "recompute": ["none", "selective", "full"],
        "count_embedding": [True],
        "order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
    }.items():
        if dice.random() < 0.3:
            layout[name] = dice.choice(values)
    spec: Spec = {
        "parc": 1,
        "name": "law",
        "model": dice.choice(MODELS if not WALK else Library(None).names("models")),
        "cluster": {"node": "dgx-h100", "nodes": nodes},
        "job": job,
        "layout": layout,
        "emit": ["megatron"],
    }
    if dice.random() < 0.5:
        args = [["--eval-iters", "10"], ["--log-interval", "7"], ["--no-load-optim"]]
        spec["launch"] = {"args": [word for part in dice.sample(args, 2) for word in part]}
    return spec


def test_an_imported_launch_file_of_a_random_plan_compiles_to_the_same_file() -> None:
    walked = seed = 0
    while walked < max(WALK, 6):
        spec = random_spec(random.Random(seed))
        seed += 1
        sink = Sink()
        plan = plan_spec(SpecSource("spec.yaml", json.dumps(spec), ROOT), (), sink)
        if plan is None:
            continue
        files = {one.path: one.text for one in emit_plan(plan, sink)}
        try:
            assert_identity("megatron-args", plan, files, ROOT)
        except AssertionError as error:
            raise AssertionError(f"seed {seed - 1}: {json.dumps(spec)}\n{error}") from error
        walked += 1
