"""Fields of ``plan.json`` that determine Megatron flags in combination."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_settings import PLAN, planned_value, read_plan


@frozen
class PlanFields:
    """Fields of a plan by their dotted path."""

    tree: Mapping[str, Any]

    def __getitem__(self, path: str) -> Any:
        """Return the value at ``path``; raise MalformedFileError if the plan lacks this path."""
        value = planned_value(self.tree, path)
        # planned_value returns a private marker for a missing path.
        if type(value) is object:
            raise MalformedFileError(PLAN, 1, f"{path} is missing")
        return value

    @property
    def latent(self) -> bool:
        """True if the model has multi-head latent attention."""
        return self["problem.model.attention.latent"] is not None

    @property
    def routed(self) -> bool:
        """True if the model has experts."""
        return self["problem.model.experts"] is not None

    @property
    def biased(self) -> bool:
        """True if linear layers have biases; Megatron has one switch for all of them."""
        return bool(self["problem.model.attention.output_bias"])

    @property
    def is_yarn(self) -> bool:
        """True if positions use YaRN. A model sets YaRN either as ``kind`` or as ``scaling``."""
        position = self["problem.model.position"]
        return "yarn" in (position["kind"], position["scaling"])

    @property
    def version(self) -> tuple[int, ...]:
        """Version of Megatron-LM for which the plan was made."""
        versions = dict(self["problem.versions"])
        return tuple(map(int, re.findall(r"\d{1,6}", str(versions.get("megatron", "")))))


def read_fields(artifacts: Mapping[str, str]) -> PlanFields | None:
    """Return the fields of ``plan.json``; None if this file was not emitted."""
    return PlanFields(read_plan(artifacts[PLAN])) if PLAN in artifacts else None
