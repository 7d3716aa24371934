"""Flags of ``vllm serve`` that all processes of a plan share, from the table flags.yaml."""

from __future__ import annotations

from parc.backends.shared.field_table import flag_table
from parc.backends.shared.serving.engine_flags import shared_flags
from parc.backends.shared.serving.serve_script import Argument
from parc.backends.vllm import computed_settings
from parc.compiler.ir import ServingPlan

PACKAGE = "parc.backends.vllm"
EXECUTOR = "--distributed-executor-backend"


def planned_flags() -> frozenset[str]:
    """Return the names of the flags that a plan determines.

    The names include flags that a plan leaves out to use vLLM's default.
    """
    # The positive form of a flag such as --no-enable-prefix-caching is planned too.
    names = (row.setting for row in flag_table(PACKAGE).rows)
    return frozenset(form for name in names for form in (name, name.replace("--no-", "--", 1)))


def shared_arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan."""
    return shared_flags(plan, PACKAGE, computed_settings)


def engine_command_words(plan: ServingPlan, executor: str) -> tuple[str, ...]:
    """Return the words of the command that starts an engine: the checkpoint, then all flags.

    ``executor`` is the mechanism that starts the workers of the engine, such as ``ray``. It
    replaces the executor of the plan.
    """
    own = [one for one in shared_arguments(plan) if one.flag != EXECUTOR]
    words = [word for one in own for word in one.words]
    return (
        plan.problem.service.checkpoint,
        *words,
        EXECUTOR,
        executor,
        *plan.problem.launch.args,
    )
