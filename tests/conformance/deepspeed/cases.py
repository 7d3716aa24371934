"""Plans as cases of the checking program of DeepSpeed."""

from __future__ import annotations

import json
from typing import Any

from parc.backends.deepspeed.derived_config import uses_autotp
from parc.backends.deepspeed.files import DS_CONFIG, build_config
from parc.backends.registry import framework
from parc.compiler.ir import Layout, Problem
from tests.every_layout import enumerate_layouts

Case = dict[str, Any]


def layout_as_pinned(problem: Problem) -> Layout | None:
    """Return the layout with the pinned sizes, valid or not."""
    first = next(enumerate_layouts(problem, framework("deepspeed")), None)
    return first[0] if first else None


def case_of(name: str, problem: Problem, layout: Layout, **more: Any) -> Case:
    """Return the config and sizes that DeepSpeed gets, on as many ranks as the cluster has."""
    code_cuts = layout.tp > 1 and not uses_autotp(problem, layout)
    config = json.loads(json.dumps(build_config(DS_CONFIG, problem, layout)))
    return {
        "name": name,
        "config": config,
        "world": min(layout.world, problem.cluster.gpus),
        "pp": layout.pp,
        "mp": layout.tp if code_cuts else 1,
        "ep": layout.ep,
        **more,
    }
