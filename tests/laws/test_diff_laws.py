"""A diff shows every change of a spec that changes an emitted file, and no other change."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.pipeline import emit_plan
from parc.compiler.report.diff.diff_pools import PoolsDiff, diff_plans
from parc.compiler.report.diff.read_side import NotAnOutputDirectory
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec as TrainingSpec
from tests.compiled import Files, Spec, planned
from tests.laws.field_pairs import SERVING, TRAINING, fields_of, placed, trials_of, values_of
from tests.samples import sample_of

pytestmark = pytest.mark.usefixtures("few_requests")

FIXED = ("parc", "job.kind", "emit", "versions")
IMAGE = "launch.kubernetes.image"
TARGETS = {
    False: ["kubernetes", "megatron", "preflight", "rankmap", "slurm", "torchrun"],
    True: ["kubernetes", "rankmap", "slurm", "vllm"],
}
FIELDS = [
    (serving, path, values)
    for serving, root in ((False, TrainingSpec), (True, ServingSpec))
    for path, annotation in fields_of(root)
    if path not in FIXED and (values := values_of(path, annotation))
]


def files_with(spec: Spec, path: str, value: Any, serving: bool) -> Files:
    """Return the files of a spec with a value of a field; empty if the spec has errors."""
    spec = placed({**spec, "emit": TARGETS[serving]}, IMAGE, "image")
    plan, sink = planned(placed(spec, path, value))
    if plan is None or sink.failed():
        return {}
    return {one.path: one.text for one in emit_plan(plan, sink, report=False, verify=False)}


def compare(old: Files, new: Files) -> PoolsDiff | None:
    """Return the diff; None if only one side has two pools."""
    try:
        return diff_plans(("old", old), ("new", new))
    except NotAnOutputDirectory:
        return None


def name_of(field: tuple[bool, str, tuple[Any, ...]]) -> str:
    """Return the name of a test."""
    return f"{'serving' if field[0] else 'training'}-{field[1]}"


@pytest.mark.parametrize("field", sample_of(FIELDS, 20), ids=name_of)
def test_a_field_that_changes_a_file_is_in_the_diff(
    field: tuple[bool, str, tuple[Any, ...]],
) -> None:
    serving, path, values = field
    for _, spec in trials_of(path, SERVING if serving else TRAINING):
        old, new = (files_with(spec, path, value, serving) for value in values[:2])
        if not old or not new or (found := compare(old, new)) is None:
            continue
        assert found.has_changes is (old != new)
        # A table of the plan shows the change, not only the list of files.
        assert any(one.has_planned_changes for one in found.parts) is (old != new)
        assert ("no changes" in found.text()) is (old == new)
