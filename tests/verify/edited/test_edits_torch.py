"""Random edits of the files of DeepSpeed, Accelerate, FSDP and torchtitan are named.

``PARC_EDITS=500 pytest tests/verify/edited/test_edits_torch.py`` measures as many edits per file.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
from collections.abc import Iterator
from functools import cache

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests.backends.torch.specs import DENSE
from tests.compiled import Files, Spec, files_of
from tests.verify.edits import (
    EDITS,
    NAMED,
    Behavior,
    EditScore,
    RandomEdit,
    false_alarms,
    json_behavior,
    measure_edits,
    shell_behavior,
    shell_neutral,
)

JOB: Spec = {
    "sequence_length": 2048,
    "global_batch": 64,
    "checkpoint_dir": "/data/run",
    "load_dir": "/data/start",
    "data": ["/data/a.bin"],
    "gradient_clipping": 0.5,
    "adam_beta2": 0.98,
    "adam_epsilon": 1.0e-7,
    "weight_decay": 0.05,
}


def small_spec(targets: tuple[str, ...], job: Spec, layout: Spec) -> Spec:
    """Return a spec of 16 ranks."""
    return {
        "parc": 1,
        "name": "edited",
        "model": DENSE,
        "cluster": {"node": "dgx-h100", "racks": [{"name": "r1", "nodes": ["h1", "h2"]}]},
        "job": JOB | job,
        "layout": {"micro_batch": 2} | layout,
        "emit": [*targets, "rankmap"],
    }


COUNT = EDITS if "PARC_EDITS" in os.environ else 10
"""Edits per file."""
NO_DATA = {"data": []}
BF16 = {"gradient_precision": "bf16"}
SPECS = {
    "fsdp": small_spec(("fsdp",), {}, {"zero_stage": 3, "dp_shard": 8}),
    "deepspeed": small_spec(
        ("deepspeed",), NO_DATA, {"pp": 2, "tp": 2, "zero_stage": 1, "recompute": "full"}
    ),
    "accelerate": small_spec(("accelerate",), BF16, {"zero_stage": 3, "dp_shard": 8}),
    "plugin": small_spec(("accelerate", "deepspeed"), {}, {"zero_stage": 3}),
    "torchtitan": small_spec(
        ("torchtitan",), {}, {"pp": 2, "vpp": 2, "schedule": "zb-v", "cp": 2, "zero_stage": 2}
    ),
}
"""Target -> spec whose files are edited."""
EDITED = {
    "fsdp": ("config.json", "train.py", "parallelize.py", "model.py", "learning_rate.py"),
    "deepspeed": (
        *("ds_config.json", "train.json", "train.py", "model.py"),
        *("hostfile", "launch.sh"),
    ),
    "accelerate": ("config.yaml", "job.json", "train.py", "learning_rate.py"),
    "plugin": ("config.yaml", "job.json", "../deepspeed/ds_config.json"),
    "torchtitan": ("parc_titan.py",),
}
FOLDERS = {"plugin": "accelerate"}
CASES = [(target, name) for target, names in EDITED.items() for name in names]
"""Target, and file in its folder."""


DEFAULTS: dict[str, Spec] = {
    "config.yaml": {
        "fsdp_config.fsdp_activation_checkpointing": False,
        "fsdp_config.fsdp_reshard_after_forward": True,
        "parallelism_config.parallelism_config_cp_size": 1,
        "parallelism_config.parallelism_config_dp_replicate_size": 1,
        "parallelism_config.parallelism_config_tp_size": 1,
    },
    # train_batch_size follows from the other two batch sizes, overlap_comm from stage 3.
    "../deepspeed/ds_config.json": {"train_batch_size": 64, "zero_optimization.overlap_comm": True},
    "ds_config.json": {"train_batch_size": 64},
    "parc_titan.py": {
        "ParallelismConfig.data_parallel_replicate_degree": "1",
        "ParallelismConfig.tensor_parallel_degree": "1",
        "ParallelismConfig.expert_parallel_degree": "1",
        "ParallelismConfig.fsdp_reshard_after_forward": "'never'",
        "CheckpointManager.Config.interval": "500",
        "TrainingConfig.mixed_precision_param": "'bfloat16'",
        "TrainingConfig.mixed_precision_reduce": "'float32'",
        "TrainingConfig.seq_len": "2048",
        "LRSchedulersContainer.Config.decay_ratio": "None",
        "Trainer.Config.activation_checkpoint": "None",
        "dict.scaling": "'none'",
        "dict.theta": "10000.0",
    },
}
"""File -> settings that may be left out, because the framework has the same default.

Sources: accelerate 1.15.0, commands/launch.py; deepspeed 0.19.8, runtime/config.py; torchtitan
0.3.0, config/configs.py, models/common/rope.py.
"""


def program_behavior(text: str, defaults: Spec) -> object:
    """Return the syntax tree without strings that are statements, which document variables.

    Keywords are sorted, and left out if their value is that of ``defaults``.
    """
    try:
        # compile() rejects more than ast.parse(), such as repeated keywords.
        compile(text, "program", "exec")
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ("not Python", text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_string(one)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            node.keywords = [
                word
                for word in sorted(node.keywords, key=lambda one: one.arg or "")
                if defaults.get(f"{name}.{word.arg}") != ast.unparse(word.value)
            ]
    return ast.dump(tree)


def _is_string(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def without_defaults(tree: object, defaults: Spec, path: str = "") -> object:
    """Return a JSON or YAML tree without the settings that have their default value."""
    if isinstance(tree, dict):
        return {
            key: without_defaults(value, defaults, f"{path}{key}.")
            for key, value in tree.items()
            if f"{path}{key}" not in defaults or repr(value) != repr(defaults[f"{path}{key}"])
        }
    return tree


def hostfile_behavior(text: str) -> object:
    """Return the lines as launch.sh counts them, without what DeepSpeed ignores at their ends."""
    lines = text.rstrip("\n").split("\n")
    # DeepSpeed reads the digits after slots= and nothing else (launcher/runner.py).
    return [re.sub(r"(?<=\bslots=)(\d+).*", r"\1", " ".join(line.split())) for line in lines]


TEXTS: dict[str, Behavior] = {"sh": shell_behavior, "hostfile": hostfile_behavior}


def behavior_of(name: str) -> Behavior:
    """Return the oracle for a file: two texts with equal results behave in the same way."""
    kind, defaults = name.rpartition(".")[2], DEFAULTS.get(name, {})
    if kind in TEXTS:
        return TEXTS[kind]
    if kind == "py":
        return lambda text: program_behavior(text, defaults)

    def behavior(text: str) -> object:
        try:
            tree = json.loads(text) if kind == "json" else YAML(typ="safe").load(text)
        except (ValueError, YAMLError):
            return ("damaged", text)
        return json_behavior(json.dumps(without_defaults(tree, defaults), default=str))

    return behavior


@cache
def artifacts(target: str) -> Files:
    """Return the files of the spec of ``target``."""
    return files_of(SPECS[target])


def path_of(target: str, name: str) -> str:
    """Return the path of a file in the output folder."""
    folder = FOLDERS.get(target, target)
    return name.removeprefix("../") if name.startswith("../") else f"{folder}/{name}"


@pytest.mark.parametrize("target", EDITED)
def test_random_edits_that_change_behavior_are_named(target: str) -> None:
    scores: dict[str, EditScore] = {}
    for name in EDITED[target]:
        path = path_of(target, name)
        scores[path] = measure_edits(artifacts(target), path, behavior_of(name), COUNT)
    missed = [f"{path}: {edit}" for path, one in scores.items() for edit in one.missed]
    alarms = [f"{path}: {edit}" for path, one in scores.items() for edit in one.alarms]
    changed = sum(one.changed for one in scores.values())
    neutral = sum(one.neutral for one in scores.values())
    print(f"{target}: {changed} edits, {len(missed)} missed; {neutral} neutral", missed)
    assert not alarms
    assert len(missed) <= (1 - NAMED) * changed, missed


def shuffled_json(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield the file with its keys in another order, or another format."""
    choose = random.Random(seed)
    while True:

        def shuffled(items: list[tuple[str, object]]) -> dict[str, object]:
            choose.shuffle(items)
            return dict(items)

        tree = json.loads(text, object_pairs_hook=shuffled)
        indent = choose.choice((None, 1, 4, "\t"))
        yield RandomEdit(json.dumps(tree, indent=indent), "keys in another order")


def commented(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield the YAML or Python file with a comment or an empty line more."""
    choose = random.Random(seed)
    lines = text.split("\n")
    quotes = [number for number, line in enumerate(lines) if line.count('"""') == 1]
    while True:
        at = choose.randrange(len(lines) + 1)
        # Inside a text of several lines a comment would be text; that is also neutral here.
        added = choose.choice(("", "# a remark", "# tp: 4, lr=3e-4"))
        inside = sum(one < at for one in quotes) % 2
        new = [*lines[:at], "" if inside else added, *lines[at:]]
        yield RandomEdit("\n".join(new), f"line {added!r} inserted at {at}")


def padded(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield the hostfile with blanks at the ends of its lines."""
    choose = random.Random(seed)
    while True:
        lines = [line and line + choose.choice((" ", "\t", "  ")) for line in text.split("\n")]
        yield RandomEdit("\n".join(lines), "blanks at the ends of lines")


def reformatted(text: str, seed: int) -> Iterator[RandomEdit]:
    """Yield the Python file as another formatter prints it, without comments."""
    while True:
        yield RandomEdit(ast.unparse(ast.parse(text)), "other format")


@pytest.mark.parametrize(("target", "name"), CASES)
def test_edits_without_effect_are_not_named(target: str, name: str) -> None:
    path = path_of(target, name)
    text, files = artifacts(target)[path], artifacts(target)
    kind = name.rpartition(".")[2]
    edits = {"json": shuffled_json, "sh": shell_neutral, "hostfile": padded}
    neutral = edits.get(kind, commented)(text, 2)
    assert not false_alarms(files, path, neutral, max(3, COUNT // 5))
    if kind == "py":
        assert not false_alarms(files, path, reformatted(text, 2), 1)
