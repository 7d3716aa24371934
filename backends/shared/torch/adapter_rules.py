"""Rules on jobs whose emitted program trains LoRA adapters with the library peft."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parc.backends.shared.common_rules import always_violated_rule
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

_OTHER_ATTENTION = (
    *("bloom", "codegen", "dbrx", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj"),
    *("mpt", "opt", "persimmon", "phi", "phi3", "xglm"),
)
"""Families whose classes in transformers 5.20 have other projections of attention, such as one for
queries, keys and values."""
_OTHER_MLP = (*_OTHER_ATTENTION, "glm", "glm4", "starcoder2")
"""The same for the projections of the MLP."""
_FIRST_VERSION = {"fsdp": "2.8", "accelerate": "1.13"}
"""Framework -> first version that keeps frozen weights in 16 bit beside adapters in fp32. Before,
FSDP2 required one format per unit (pytorch pull request 154103), and Accelerate converted all
weights to fp32 (accelerate 1.12, utils/fsdp_utils.py, fsdp2_prepare_model)."""


def adapter_rules(problem: Problem, framework: str) -> Iterator[Rule]:
    """Yield the rules (E11) on LoRA adapters that ``framework`` trains; none without adapters."""
    lora = problem.job.lora
    if lora is None:
        return
    first, version = _FIRST_VERSION[framework], problem.version(framework)
    if parse_version(version) < parse_version(first):
        finding = Finding(
            message=f"LoRA needs {framework} {first}, and the target is {version}",
            label=f"{framework} {version} has no units with frozen weights in another format",
            help=f"valid versions of {framework}: {first} or newer",
            fix=f'versions.{framework}: "{first}"',
            targets=(framework,),
        )
        yield always_violated_rule("E11", ("job.lora", f"versions.{framework}"), finding)
    family = problem.model.family
    attention, mlp = family in _OTHER_ATTENTION, family in _OTHER_MLP
    missing = [one for one in lora.targets if (mlp if _in_mlp(one) else attention)]
    if missing:
        valid = "attention" if not attention else "none"
        finding = Finding(
            message=f"the class of family {family} in transformers has no {', '.join(missing)}",
            label="it computes several projections at once, or gives them other names",
            help=f"valid job.lora.targets: {valid}",
            fix="" if attention else "job.lora.targets: attention",
            targets=(framework,),
        )
        yield always_violated_rule("E11", ("job.lora.targets", "job.lora"), finding)
    yield Rule("E11", ("layout.tp",), _splits_tensors, _explain_tensor_parallel(framework), ("tp",))


def _in_mlp(projection: str) -> bool:
    return projection in ("gate_proj", "up_proj", "down_proj")


def _splits_tensors(problem: Problem, layout: Layout) -> bool:
    return layout.tp > 1


def _explain_tensor_parallel(framework: str) -> Callable[[Problem, Layout], Finding]:
    """Return the function that explains that ``framework`` has no adapters with tp above 1."""

    def explain(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            message=f"{framework} does not split LoRA adapters by tensor parallelism",
            label=f"tp is {layout.tp}, must be 1 with job.lora",
            help="valid: tp 1; zero_stage 3 shards the frozen weights over all data-parallel ranks",
            fix="layout.tp: 1",
            targets=(framework,),
        )

    return explain
