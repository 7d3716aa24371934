"""Rules on the tokenizer of a job (E11)."""

from __future__ import annotations

from parc.backends.megatron.programs import is_own_program
from parc.backends.megatron.tokenizers import READ_A_MODEL, tokenizer_type, tokenizer_types
from parc.backends.shared.common_rules import always_violated_rule
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.similar_names import close_matches
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule

TYPE, MODEL = "job.tokenizer", "job.tokenizer_model"


def tokenizer_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rule that the job's tokenizer violates, if there is one.

    A program of the user may accept other types, so only Megatron's own programs are checked.
    """
    job = problem.job
    if not is_own_program(problem.launch.program) or not (
        job.tokenizer_type or job.tokenizer_model
    ):
        return ()
    kind, model = tokenizer_type(problem), job.tokenizer_model
    if kind not in tokenizer_types():
        return (always_violated_rule("E11", (TYPE,), _explain_unknown_type(kind, model)),)
    if model is None and kind in READ_A_MODEL:
        return (always_violated_rule("E11", (TYPE, MODEL), _explain_missing_model(kind)),)
    if model is not None and kind not in READ_A_MODEL:
        return (always_violated_rule("E11", (MODEL, TYPE), _explain_unread_model(kind)),)
    return ()


def _explain_unknown_type(kind: str, model: str | None) -> Finding:
    valid = tokenizer_types()
    similar = close_matches(kind, valid, 1)
    if similar:
        fix = f"{TYPE}: {similar[0]}"
    elif model is None:
        # The name of a model on the hub, or its folder.
        fix = f"remove {TYPE}, and set {MODEL}: {kind}"
    else:
        fix = f"remove {TYPE}"
    return Finding(
        message=f"Megatron has no tokenizer type {kind[:60]!r}",
        label="the value must be a type, not the name or folder of a tokenizer",
        help=f"valid values: {', '.join(sorted(valid))}",
        fix=fix,
    )


def _explain_missing_model(kind: str) -> Finding:
    return Finding(
        message=f"{kind} reads a tokenizer, but {MODEL} is not set",
        label=f"needs {MODEL}",
        help=f"set {MODEL} to the name, folder or file of the tokenizer",
        fix=f"{MODEL}: PATH",
    )


def _explain_unread_model(kind: str) -> Finding:
    return Finding(
        message=f"Megatron's {kind} ignores {MODEL}",
        label="has no effect with this tokenizer type",
        help=f"types that read a model: {', '.join(READ_A_MODEL)}",
        fix=f"remove {TYPE}",
        causes=(Cause(TYPE, f"the type is {kind}"),),
    )
