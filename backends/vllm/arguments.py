"""A plan to the flags that all processes share, by the table in flags.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.vllm import derived
from parc.compiler.ir import ServingPlan


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag with its value; None: the flag alone."""

    flag: str
    value: str | None
    group: str

    @property
    def words(self) -> tuple[str, ...]:
        """As the parser gets them."""
        return (self.flag,) if self.value is None else (self.flag, self.value)


EXECUTOR = "--distributed-executor-backend"


@cache
def flag_table() -> dict[str, Any]:
    """``flags.yaml``."""
    from ruamel.yaml import YAML

    text = files("parc.backends.vllm").joinpath("flags.yaml").read_text("utf-8")
    table: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return table


def rows() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(group, flag, row) of every flag in the table."""
    for group, flags in flag_table().items():
        if group not in ("elsewhere", "ignored"):
            for flag, row in flags.items():
                yield group, flag, row


def planned_flags() -> frozenset[str]:
    """Flags that a plan sets, or leaves out on purpose."""
    return frozenset(flag for _, flag, _ in rows())


def arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """What every process of the plan is told."""
    return tuple(_arguments(plan))


def _arguments(plan: ServingPlan) -> Iterator[Argument]:
    for group, flag, row in rows():
        if row.get("process"):
            continue
        name = row.get("value")
        value = getattr(derived, name)(plan) if name else _field(plan, row["from"][0])
        if value is None or value is False:
            continue
        yield Argument(flag, None if value is True else str(value), group)


def _field(plan: ServingPlan, path: str) -> object:
    noun: object = plan
    for part in path.split("."):
        noun = getattr(noun, part)
    return noun


def engine_words(plan: ServingPlan, executor: str) -> tuple[str, ...]:
    """The checkpoint and all flags of an engine, under another executor than the table says."""
    own = [one for one in arguments(plan) if one.flag != EXECUTOR]
    words = [word for one in own for word in one.words]
    return (
        plan.problem.service.checkpoint,
        *words,
        EXECUTOR,
        executor,
        *plan.problem.launch.args,
    )
