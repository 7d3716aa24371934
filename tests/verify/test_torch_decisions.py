"""DeepSpeed, Accelerate, FSDP and torchtitan: the files show each decision of the plan."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from parc.backends.accelerate.verify_plugin import VERIFIER as PLUGIN
from parc.backends.registry import verifier_of_backend
from parc.backends.verifier import DerivedSetting, Verifier
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.verify_plan import verify_artifacts
from parc.compiler.verify.verify_settings import verify_settings
from tests.backends.plan_fields import TRAINING
from tests.backends.torch.specs import valid_spec
from tests.compiled import Files, Spec, example_files, files_of
from tests.verify.edited.test_edits_torch import SPECS

EXAMPLES = {
    "llama-3-8b-fsdp": "fsdp",
    "llama-3-70b-hsdp": "fsdp",
    "llama-3-8b-accelerate": "accelerate",
    "llama-3-70b-accelerate-zero3": "plugin",
    "llama-65b-pipeline": "deepspeed",
    "mixtral-8x7b-deepspeed": "deepspeed",
    "llama-3-70b-torchtitan": "torchtitan",
}
"""Example with an emitted program -> target."""
DAMAGED = int(os.environ.get("PARC_EDITS", "20"))
"""Damaged files per target."""
SECTIONS = ("layout", "problem.job", "problem.model")


def verifier_of(target: str) -> Verifier:
    """Return the verifier of a target."""
    return PLUGIN if target == "plugin" else verifier_of_backend(target)


def leaves(tree: Any, path: str) -> Iterator[str]:
    """Yield the paths of all values below ``path``; a list is a value."""
    if not isinstance(tree, dict):
        yield path
        return
    for name, value in tree.items():
        yield from leaves(value, f"{path}.{name}")


def section_of(plan: dict[str, Any], path: str) -> Any:
    """Return the tree at a dotted path."""
    for name in path.split("."):
        plan = plan[name]
    return plan


def is_below(path: str, others: Any) -> bool:
    """Return True if ``path`` is one of ``others``, or below one of them."""
    return any(path == one or path.startswith(f"{one}.") for one in others)


def other_value(value: Any) -> Any:
    """Return a value of the same kind that no target treats like ``value``."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 3 + 7
    if isinstance(value, list):
        return [*value, "other"]
    return "other"


@pytest.mark.parametrize(("name", "target"), EXAMPLES.items())
def test_each_field_of_the_plan_is_read_from_the_files_or_has_a_reason(
    name: str, target: str
) -> None:
    files = example_files(name)
    plan, one = json.loads(files["plan.json"]), verifier_of(target)
    shown = {found.path for found in one.derive_settings(files)} | one.not_in_files.keys()
    paths = [path for root in SECTIONS for path in leaves(section_of(plan, root), root)]
    assert [path for path in paths if not is_below(path, shown)] == []


@pytest.mark.parametrize(("name", "target"), EXAMPLES.items())
def test_a_plan_with_another_value_in_any_field_is_reported(name: str, target: str) -> None:
    files = example_files(name)
    plan, one = json.loads(files["plan.json"]), verifier_of(target)
    decisions = list(one.derive_settings(files))
    silent = []
    for path in (path for root in SECTIONS for path in leaves(section_of(plan, root), root)):
        if is_below(path, one.not_in_files):
            continue
        changed = copy.deepcopy(plan)
        parent, _, last = path.rpartition(".")
        section_of(changed, parent)[last] = other_value(section_of(plan, path))
        sink = Sink()
        verify_settings(changed, decisions, sink)
        if path.removeprefix("problem.") not in " ".join(
            found.finding.message for found in sink.diagnostics
        ):
            silent.append(path)
    assert silent == []


@pytest.mark.parametrize("target", SPECS)
def test_each_reason_is_about_a_field_that_exists(target: str) -> None:
    fields = {f"problem.{path}".replace("problem.layout", "layout") for path in TRAINING}
    paths = verifier_of(target).not_in_files
    fields |= {"layout.edp", "layout.dp", "layout.world"}
    assert [path for path in paths if not is_below(path, fields)] == []
    assert all(reason for reason in paths.values())


@pytest.mark.parametrize("target", SPECS)
def test_an_empty_folder_shows_no_decision(target: str) -> None:
    if target != "plugin":
        assert list(verifier_of(target).derive_settings({})) == []


def found_in(files: Files) -> list[tuple[str, int, str]]:
    """Return (file, line, message) of each setting that differs from the plan."""
    sink = Sink()
    verify_artifacts(files, sink)
    return [
        (one.span.file, one.span.line, one.finding.message)
        for one in sink.diagnostics
        if one.code == "PARC-A14" and one.span is not None
    ]


EDITS = [
    (
        "deepspeed",
        "deepspeed/ds_config.json",
        '"stage": 1',
        '"stage": 2',
        'layout.zero_stage: line 38 has "stage": 2, the plan has 1',
    ),
    (
        "deepspeed",
        "deepspeed/train.json",
        '"seed": 1234',
        '"seed": 1',
        'job.seed: line 32 has "seed": 1, the plan has 1234',
    ),
    (
        "plugin",
        "accelerate/job.json",
        '"steps": 1000',
        '"steps": 10',
        'job.steps: line 41 has "steps": 10, the plan has 1000',
    ),
    (
        "accelerate",
        "accelerate/config.yaml",
        "mixed_precision: bf16",
        "mixed_precision: 'no'",
        "job.precision: line 9 has mixed_precision: 'no' (meaning 'fp32'), the plan has 'bf16'",
    ),
    (
        "fsdp",
        "fsdp/config.json",
        '"reshard_after_forward": true',
        '"reshard_after_forward": false',
        'layout.zero_stage: line 44 has "reshard_after_forward": false (meaning 2), the plan has 3',
    ),
    (
        "torchtitan",
        "torchtitan/parc_titan.py",
        'pipeline_parallel_schedule="ZBVZeroBubble"',
        'pipeline_parallel_schedule="DualPipeV"',
        'layout.schedule: line 159 has pipeline_parallel_schedule="DualPipeV" '
        "(meaning 'dualpipe-v'), the plan has 'zb-v'",
    ),
]
"""(target, file, old text, new text, message)."""


@pytest.mark.parametrize(("target", "file", "old", "new", "message"), EDITS)
def test_a_changed_setting_is_reported_at_its_line_with_both_values(
    target: str, file: str, old: str, new: str, message: str
) -> None:
    files = files_of(SPECS[target])
    before = files[file]
    assert before.count(old) == 1
    line = before[: before.index(old)].count("\n") + 1
    found = found_in(files | {file: before.replace(old, new)})
    assert (file, line, message) in found


FOREIGN = [
    ("fsdp", "fsdp/config.json", '  "seed"', '  "extra": 1,\n  "seed"', "extra = 1"),
    (
        "deepspeed",
        "deepspeed/ds_config.json",
        '    "stage": 1',
        '    "round_robin_gradients": true,\n    "stage": 1',
        "zero_optimization.round_robin_gradients = True",
    ),
    (
        "accelerate",
        "accelerate/config.yaml",
        "use_cpu: false",
        "use_cpu: false\ndowncast_bf16: true",
        "downcast_bf16 = True",
    ),
    (
        "torchtitan",
        "torchtitan/parc_titan.py",
        "seq_len=2048,",
        "seq_len=2048, enable_cpu_offload=True,",
        "training.enable_cpu_offload = True",
    ),
]


@pytest.mark.parametrize(("target", "file", "old", "new", "setting"), FOREIGN)
def test_a_setting_that_no_plan_sets_is_reported(
    target: str, file: str, old: str, new: str, setting: str
) -> None:
    files = files_of(SPECS[target])
    assert files[file].count(old) == 1
    found = found_in(files | {file: files[file].replace(old, new)})
    assert [one for one in found if f"has {setting}, which the plan does not need" in one[2]]


LIMITED: list[tuple[str, Spec, Spec]] = [
    ("deepspeed", {"steps": 5}, {}),
    ("deepspeed", {"steps": 2}, {}),
    ("deepspeed", {"lr_decay": "linear", "min_learning_rate": 0}, {}),
    ("deepspeed", {"lr_decay": "constant"}, {}),
    ("deepspeed", {"precision": "fp16"}, {}),
    ("deepspeed", {"gradient_precision": "bf16"}, {"zero_stage": 0}),
    ("deepspeed", {"gradient_clipping": 0}, {"pp": 1, "tp": 1, "cp": 2}),
    ("deepspeed", {}, {"pp": 1, "tp": 4, "recompute": "none"}),
    ("fsdp", {"gradient_clipping": 0}, {"zero_stage": 0, "dp_shard": "auto"}),
    ("torchtitan", {"sequence_length": 131072}, {}),
    ("torchtitan", {"gradient_clipping": 0, "lr_decay": "constant"}, {}),
    ("torchtitan", {"lr_decay": "wsd", "wsd_decay_steps": 300}, {"pp": 1, "vpp": "auto"}),
]
"""Target, job and layout whose values the framework rounds, limits or expresses by other ones."""


@pytest.mark.parametrize(("target", "job", "layout"), LIMITED)
def test_a_value_that_the_framework_limits_is_no_difference(
    target: str, job: Spec, layout: Spec
) -> None:
    spec = copy.deepcopy(SPECS[target])
    spec["job"] |= job
    spec["layout"] |= layout
    if layout.get("vpp") == "auto":
        del spec["layout"]["schedule"]
    assert files_of(spec)


@pytest.mark.parametrize("target", ["fsdp", "torchtitan", "accelerate"])
def test_no_random_plan_differs_from_its_files(target: str) -> None:
    for seed in range(6):
        assert files_of(valid_spec(target, seed))


def test_a_decision_can_accept_other_planned_values() -> None:
    sink = Sink()
    found = DerivedSetting("layout.tp", 2, "f", accepts=lambda plan: plan < 2)
    for planned, codes in ((1, []), (2, []), (3, ["PARC-A14"])):
        sink = Sink()
        verify_settings({"layout": {"tp": planned}}, [found], sink)
        assert [one.code for one in sink.diagnostics] == codes


ODD: tuple[Any, ...] = (None, True, 0, -1, 10**400, 1.5, 1e308, "x", "", [], [[1]], {}, {"a": 1})
"""Values of a damaged file."""


def damaged(tree: Any, dice: Random) -> Any:
    """Return a JSON tree in which one value, or one whole object, is an odd one."""
    if isinstance(tree, dict) and tree and dice.random() < 0.9:
        name = dice.choice(sorted(tree))
        return tree | {name: damaged(tree[name], dice)}
    return dice.choice(ODD)


@pytest.mark.parametrize("target", SPECS)
def test_damaged_values_give_findings_and_no_exception(target: str) -> None:
    files, dice = files_of(SPECS[target]), Random(target)
    names = [name for name in files if name.endswith(".json") and name != "rankmap.json"]
    for _ in range(DAMAGED):
        name = dice.choice(names)
        text = json.dumps(damaged(json.loads(files[name]), dice))
        found_in(files | {name: text})
    for value in ODD:
        for name in ("torchtitan/parc_titan.py", "accelerate/config.yaml"):
            if name in files:
                found_in(files | {name: with_value(files[name], value, dice)})


def with_value(text: str, value: Any, dice: Random) -> str:
    """Return a Python or YAML file in which one value is ``value``."""
    places = list(re.finditer(r"(?<==)[\w.\"]+(?=,\n)|(?<=: )[\w.]+(?=\n)", text))
    place = dice.choice(places)
    return text[: place.start()] + repr(value) + text[place.end() :]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("h1 slots=8", "# the first rack\nh1 slots=8", "PARC-A02"),
        ("h2 slots=8", "\nh2 slots=8", "PARC-A02"),
        ("h1 slots=8", "h1 slots=80", "PARC-A07"),
        ("h1 slots=8", "h1 slots=8 \t", None),
        ("h1 slots=8", "h1   slots=8 # the first", None),
        ("h2 slots=8\n", "h2 slots=8\n\n# the end\n", None),
    ],
)
def test_a_hostfile_is_read_as_deepspeed_and_the_launch_script_do(
    old: str, new: str, code: str | None
) -> None:
    files = files_of(SPECS["deepspeed"])
    text = files["deepspeed/hostfile"]
    assert text == "h1 slots=8\nh2 slots=8\n"
    sink = Sink()
    verify_artifacts(files | {"deepspeed/hostfile": text.replace(old, new)}, sink)
    assert [one.code for one in sink.diagnostics] == ([code] if code else [])
