"""Rules of Megatron-Bridge in addition to the rules of Megatron-Core.

The emitted program builds GPTModelProvider or MLAModelProvider (Megatron-Bridge 0.6.2,
models/gpt_provider.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.megatron.capabilities import BRIDGE
from parc.backends.shared.common_rules import always_violated_rule
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule


def bridge_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return one rule per feature that Megatron-Bridge or the emitted program lacks."""
    found = [
        always_violated_rule("E11", (path, "model"), finding)
        for path, finding in _unsupported_features(problem)
    ]
    if _lacks_deepep(problem):
        paths = ("job.moe_dispatcher", "cluster")
        found.append(always_violated_rule("E11", paths, _explain_dispatcher(problem)))
    return tuple(found)


def _unsupported_features(problem: Problem) -> Iterator[tuple[str, Finding]]:
    model = problem.model
    features = (
        ("model.pattern", model.pattern, "a layer pattern", "layers of one mixer"),
        ("model.linear_attention", model.linear, "linear attention", "softmax attention"),
    )
    for path, found, name, valid in features:
        if found:
            yield path, _use_megatron(f"{model.name} has {name}", name, valid)
    position = model.position
    if position.kind == "learned" and position.max_positions != problem.job.sequence_length:
        length = problem.job.sequence_length
        yield (
            "model.position.max_positions",
            _use_megatron(
                f"{model.name} has {position.max_positions} learned positions, but Megatron-Bridge "
                f"creates one per token of a sequence: {length}",
                f"max_positions {position.max_positions}, sequence_length {length}",
                "equal max_positions and sequence_length",
            ),
        )


def _explain_dispatcher(problem: Problem) -> Finding:
    return Finding(
        message=f"Megatron-Bridge does not start DeepEP on {problem.cluster.gpu.name}",
        label="deepep needs an Ampere, Hopper, B200 or B300 GPU",
        help="valid moe_dispatcher: hybridep, alltoall",
        fix="job.moe_dispatcher: hybridep",
        causes=(Cause("cluster", f"the GPU is {problem.cluster.gpu.name}"),),
        targets=(BRIDGE,),
    )


def _lacks_deepep(problem: Problem) -> bool:
    # training/flex_dispatcher_backend.py: major 8 or 9, or a name that starts with these words.
    gpu = problem.cluster.gpu
    allowed = gpu.compute_capability[0] in (8, 9) or gpu.name.startswith(("b200", "b300"))
    routed = problem.model.experts is not None
    return routed and problem.job.moe_dispatcher == "deepep" and not allowed


def _use_megatron(message: str, label: str, valid: str) -> Finding:
    return Finding(
        message=message,
        label=label,
        help=f"valid for {BRIDGE}: {valid}; megatron trains the model as it is",
        fix="emit: [megatron, preflight, rankmap, slurm, torchrun]",
        targets=(BRIDGE,),
    )
