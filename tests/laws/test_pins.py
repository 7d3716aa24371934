"""The layout in plan.json can be given back as section ``layout`` of the spec; nothing changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.pipeline import plan_spec
from parc.compiler.report.json.plan_json import plan_artifact
from parc.compiler.spec.layout_spec import LayoutSpec
from parc.compiler.spec.reading.source import read_source
from parc.compiler.spec.service_spec import ServingLayoutSpec
from tests.compiled import EXAMPLES, ROOT, Files, emitted, example, messages_of
from tests.samples import slow_cases

REPEATS_SPEC = ("plan.json", "parc.lock", "report.html")
"""Files with the spec or its digest."""
OTHER_ORDER = "| order "
"""Row of the rank map about another rank order, which is compared only if the spec fixes none."""


def pins_of(plan: AnyPlan) -> dict[str, Any]:
    """Return the layout in plan.json, under the names that the spec has for its values."""
    layout = json.loads(plan_artifact(plan).text)["layout"]
    if isinstance(plan, ServingPlan):
        stages = {"stage_layers": layout["stages"]} if layout["stages"] else {}
        names = ServingLayoutSpec.model_fields
        return {**{key: value for key, value in layout.items() if key in names}, **stages}
    split = layout["split"]
    forms = {
        "even": {},
        "counted": {key: split[key] for key in ("count_embedding", "count_loss")},
        "first-last": {
            f"{end}_stage_layers": sum(chunk["layers"] for chunk in split["chunks"][stage])
            for end, stage in (("first", 0), ("last", -1))
        },
        "string": {"pipeline_layout": split["text"]},
    }
    kept = {key: value for key, value in layout.items() if key in LayoutSpec.model_fields}
    return {**kept, **forms[split["form"]]}


def files_to_run(plan: AnyPlan) -> Files:
    """Return the emitted files, without those that repeat the spec."""
    return {
        path: "\n".join(row for row in text.split("\n") if not row.startswith(OTHER_ORDER))
        for path, text in emitted(plan).items()
        if path not in REPEATS_SPEC
    }


SMALL = (
    *("llama-3-70b-128k", "llama-3-70b-accelerate-zero3", "llama-65b-pipeline"),
    *("llama-3-70b-torchtitan", "deepseek-v3-serve"),
)
"""Examples that cover context parallelism, a wrapper, both pipelines in torch, and a service."""


@pytest.mark.parametrize("name", slow_cases(EXAMPLES, lambda name: name not in SMALL))
def test_the_layout_of_a_plan_can_be_given_back_and_changes_nothing(name: str) -> None:
    plan, sink = example(name), Sink()
    source = read_source(str(ROOT / "examples" / name / "spec.yaml"))
    again = plan_spec(source, [f"layout={json.dumps(pins_of(plan))}"], sink)
    assert again is not None, messages_of(sink)
    assert again.layout == plan.layout
    assert files_to_run(again) == files_to_run(plan)
