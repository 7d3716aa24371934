"""Any valid fields together give files that agree with the plan, or errors about the spec.

The law of fields compares the values of a single field; here, several fields, targets and GPUs are
combined at random. PARC_FUZZ=8000 sets the number of specs; the default keeps the suite fast, and a
test of the conformance suite tries more of them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec as TrainingSpec
from tests.compiled import Spec, source_of
from tests.laws.field_pairs import (
    DENSE,
    EXPERTS,
    HYBRID,
    LATENT,
    LINEAR,
    PLAIN,
    SERVED_EXPERTS,
    SERVED_HYBRID,
    SERVED_LATENT,
    SERVED_LINEAR,
    SERVICE,
    WIDE,
    fields_of,
    placed,
    values_of,
)
from tests.laws.field_targets import ALL_TARGETS

COUNT = int(os.environ.get("PARC_FUZZ", "50"))
MORE = 200
"""Number of further specs in the conformance suite."""
LEFT_OUT = ("model", "parc", "site", "emit", "versions", "cluster", "job.kind", "job.traffic.trace")
"""Fields that replace the whole base, or select the targets; and those below ``model``."""
FILES = ("cluster.base", "cluster.topology", "cluster.calibration", "cluster.topology_format")
"""Fields that name files, or exclude the hosts of the base."""
FIELDS = {
    serving: tuple(
        (path, values)
        for path, annotation in fields_of(root)
        if path not in (*LEFT_OUT, *FILES) and not path.startswith("model.") and "[]" not in path
        if (values := values_of(path, annotation))
    )
    for serving, root in ((False, TrainingSpec), (True, ServingSpec))
}
BASES = {
    False: (DENSE, PLAIN, EXPERTS, LATENT, HYBRID, LINEAR),
    True: (SERVICE, WIDE, SERVED_EXPERTS, SERVED_LATENT, SERVED_HYBRID, SERVED_LINEAR),
}
NODES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "l40s-8")


def combined(dice: random.Random) -> Spec:
    """Return a spec with one to four fields set to values that are valid alone."""
    serving = dice.random() < 0.4
    targets = [one.emit for one in ALL_TARGETS if one.serving is serving]
    spec: Spec = {**dice.choice(BASES[serving]), "emit": list(dice.choice(targets))}
    if "kubernetes" in spec["emit"]:
        spec = placed(spec, "launch.kubernetes.image", "image")
    if dice.random() < 0.5:
        spec = placed(spec, "cluster.node", dice.choice(NODES))
    if dice.random() < 0.3:
        spec = placed(spec, "layout", {})
    for path, values in dice.sample(FIELDS[serving], dice.randint(1, 4)):
        spec = placed(spec, path, dice.choice(values))
    return spec


def test_the_files_of_a_plan_never_contradict_it() -> None:
    assert number_of_plans(range(COUNT)) > COUNT // 6


@pytest.mark.conformance
def test_the_files_of_more_plans_never_contradict_them() -> None:
    assert number_of_plans(range(COUNT, COUNT + MORE)) > MORE // 6


def number_of_plans(seeds: Iterable[int]) -> int:
    """Check the specs with these seeds; return the number of specs that have a plan."""
    compiled = 0
    for seed in seeds:
        spec, sink = combined(random.Random(seed)), Sink()
        try:
            plan = plan_spec(source_of(spec), (), sink)
            if plan is not None:
                compiled += 1
                emit_plan(plan, sink)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {json.dumps(spec)}") from error
        errors = [one for one in sink.diagnostics if one.severity == "error"]
        assert plan is not None or errors, f"seed {seed}: {json.dumps(spec)}"
        wrong = [one.finding.message for one in errors if one.code.startswith("PARC-A")]
        assert not wrong, f"seed {seed}: {wrong} {json.dumps(spec)}"
    return compiled
