"""Conversion of a Megatron launch script into a problem and a layout that rules can check.

Each of the two exists in two forms: a complete one, with placeholders for unknown values, and a
partial one, in which these values are marked as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parc.backends.megatron.arguments.arguments import planned_arguments
from parc.backends.megatron.meshes import ORDERS
from parc.backends.megatron.stages.layout_string import add_implied_vpp
from parc.backends.registry import framework
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import NO_OFFLOAD, NO_ZERO_PLUS, Layout, PipelineSplit, Problem
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.lint.check_rules import LaunchFacts, framework_or_even_split
from parc.compiler.tools.lint.complete_facts import (
    cluster_section,
    known_cluster,
    resolve_spec_tree,
)
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import (
    is_field_known,
    mark_fields_unknown,
    with_field_values,
)

FRAMEWORK = framework("megatron")
STAND_IN = {"layers": 2, "hidden": 128, "heads": 2, "ffn": 512, "vocab": 32_000}
"""Placeholder values for model sizes that the script does not contain; no rule is checked against
these values."""
OF_HEADS = ("kv_heads", "head_dim")
"""Model sizes that cannot be interpreted without the number of heads."""
DEFAULTS = {
    **{"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "zero_stage": 0},
    **{"gtp": 1, "egtp": 1},
}
"""Megatron's defaults of parallel sizes (megatron/training/arguments.py); etp defaults to tp."""
EXPERTS = {"count": 2, "top_k": 1, "size": 128}
"""Placeholder values for sizes of routed experts that the script does not contain."""
SPLITTING = ("first_stage_layers", "last_stage_layers", "pipeline_layout")
FIELDS = {
    "recompute": ("recompute", "recompute.granularity", "recompute.method", "recompute.layers"),
    "split": ("vpp", "pp", *SPLITTING, "count_embedding", "count_loss"),
    "schedule": ("vpp", "pp"),
}
"""Layout field -> spec fields that determine the layout field. Other layout fields are determined
by the spec field of the same name."""

Known = Callable[[str], bool]
"""Predicate that is true for the spec fields which the launch file determines."""


@frozen
class MegatronJobFacts(LaunchFacts[Problem, Layout]):
    """Problem and layout that a launch script of Megatron determines."""

    guessed_experts: bool
    """True if it is unknown whether the model has experts."""


def read_megatron_facts(
    spec: Mapping[str, Any], known: Known, options: LintOptions
) -> tuple[MegatronJobFacts | None, tuple[Diagnostic, ...]]:
    """Return (problem and layout of a Megatron launch, findings on single flag values).

    The first item is None if no problem can be built from the flags.

    Args:
        spec: fragment of a spec, read from the flags.
        known: predicate that is true for spec fields which the launch determines.
        options: additional facts that the user gave on the command line.
    """
    tree = _complete_spec_tree(spec, options)
    trial = Sink()
    problem = resolve_spec_tree(tree, options, trial)
    if any(found.code == "PARC-D07" for found in trial.diagnostics) and options.model is None:
        # hidden is not divisible by heads: the finding is kept, and a stand-in lets rules go on.
        tree["model"]["head_dim"] = STAND_IN["hidden"]
        problem = resolve_spec_tree(tree, options, Sink())
    if not isinstance(problem, Problem):
        return None, trial.diagnostics
    partial = _known_problem(problem, known, options)
    layout, partial_layout = _full_and_known_layout(problem, partial, known)
    guessed = options.model is None and not known("model.experts.count")
    return MegatronJobFacts(problem, layout, partial, partial_layout, guessed), trial.diagnostics


def planned_flags(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """Return flag -> values for all flags that PARC would write for a fragment of a spec.

    Sizes that the fragment lacks get placeholder values. The result is None if the fragment is
    invalid.
    """
    options = LintOptions()
    tree = _complete_spec_tree(spec, options)
    tree["job"] |= spec.get("job", {})
    tree["versions"] = {}
    problem = resolve_spec_tree(tree, options, Sink())
    if not isinstance(problem, Problem):
        return None
    layout, _ = _full_and_known_layout(problem, problem, lambda _: True)
    return {one.flag: one.values for one in planned_arguments(problem, layout)}


def is_gpu_count_known(known: Known, options: LintOptions) -> bool:
    """Return True if the number of GPUs of the job is known."""
    per_node = known("cluster.node.gpus_per_node") or options.cluster is not None
    whole = known("cluster.nodes") and per_node
    return options.gpus is not None or whole


def _complete_spec_tree(spec: Mapping[str, Any], options: LintOptions) -> dict[str, Any]:
    """Return a complete spec: the fields of ``spec``, and placeholder values for other fields."""
    model: Any = options.model
    if model is None:
        written = dict(spec.get("model", {}))
        # Without the number of heads, the sizes per head cannot be compared with anything.
        if "heads" not in written:
            written = {key: size for key, size in written.items() if key not in OF_HEADS}
        elif "hidden" not in written:
            # A multiple of the heads, so that D07 (hidden not divisible by heads) cannot come from
            # a stand-in.
            written["hidden"] = written["heads"] * STAND_IN["hidden"]
        model = {**STAND_IN, "name": "the model", **written}
        # So large that no sequence length exceeds the unknown context length.
        position = {"max_positions": 10**9, **model.get("position", {})}
        model["position"] = position
        experts = model.pop("experts", {})
        if "count" in experts:
            model["experts"] = {**EXPERTS, **experts}
        # Megatron's own default is 4 x hidden.
        elif not model["ffn"]:
            model["ffn"] = 4 * model["hidden"]
    job = {"sequence_length": 4096, "global_batch": 1, "precision": "bf16"} | {
        key: value
        for key, value in spec.get("job", {}).items()
        if key
        in (
            "sequence_length",
            "global_batch",
            "precision",
            "gradient_precision",
            "moment_precision",
        )
    }
    counted = {"count_embedding": False, "count_loss": False}
    layout = add_implied_vpp({**counted, **spec.get("layout", {})})
    return {
        "parc": 1,
        "name": "lint",
        "model": model,
        "cluster": cluster_section(spec.get("cluster", {}), options),
        "job": job,
        "layout": layout,
        "emit": ["megatron"],
        "versions": {"megatron": options.version},
    }


def _known_problem(problem: Problem, known: Known, options: LintOptions) -> Problem:
    """Return a copy of ``problem`` that marks all fields with placeholder values as unknown."""
    job = {"sequence_length", "global_batch", "precision"}
    shared = options.gpus is not None or known("cluster.node.gpus_per_node")
    cluster = known_cluster(problem.cluster, options, shared, is_gpu_count_known(known, options))
    partial = with_field_values(
        problem,
        job=mark_fields_unknown(problem.job, [one for one in job if not known(f"job.{one}")]),
        cluster=cluster,
    )
    if options.model is None:
        partial = with_field_values(partial, model=_known_model(problem, known))
    return partial


def _known_model(problem: Problem, known: Known) -> Any:
    model = problem.model
    plain = ("layers", "hidden", "vocab", "mtp_layers")
    hidden = [one for one in plain if not known(f"model.{one}")]
    if not known("model.ffn") and not known("model.hidden"):
        hidden.append("ffn")
    if not known("model.heads"):
        hidden.append("attention")
    else:
        model = with_field_values(
            model, attention=mark_fields_unknown(model.attention, _unknown_attention_fields(known))
        )
    if not known("model.position.max_positions"):
        hidden.append("position")
    if model.experts is not None:
        unknown = [one for one in ("top_k", "size") if not known(f"model.experts.{one}")]
        model = with_field_values(model, experts=mark_fields_unknown(model.experts, unknown))
    elif not known("model.experts.count"):
        hidden.append("experts")
    return mark_fields_unknown(model, hidden)


def _unknown_attention_fields(known: Known) -> list[str]:
    """Return the attention fields that the launch leaves unknown.

    If the hidden size is unknown, ``head_dim`` is unknown too, because its default is computed from
    the hidden size.
    """
    unknown = [one for one in ("kv_heads", "latent") if not known(f"model.{one}")]
    width = known("model.head_dim") and known("model.hidden")
    return unknown if width else [*unknown, "head_dim"]


def _full_and_known_layout(
    problem: Problem, partial: Problem, known: Known
) -> tuple[Layout, Layout]:
    """Return (layout, copy of the layout in which placeholder values are marked as unknown)."""
    pins = problem.pins
    sizes = {name: getattr(pins, name) or default for name, default in DEFAULTS.items()}
    tp, cp, pp, vpp = (sizes[name] for name in ("tp", "cp", "pp", "vpp"))
    gpus = problem.cluster.gpus
    # The quotient is rounded down; rule D09 reports a number of GPUs that is not divisible.
    dp = max(gpus // (tp * cp * pp), 1)
    distinct = max(dp // sizes["gtp"], 1)
    replicas = distinct if sizes["zero_stage"] == 0 else 1
    split = _split_from_flags(problem, pp, vpp)
    whole = Layout(
        tp=tp,
        cp=cp,
        pp=pp,
        vpp=vpp,
        ep=sizes["ep"],
        zero_stage=sizes["zero_stage"],
        dp_replicate=replicas,
        dp_shard=distinct // replicas,
        etp=pins.etp or tp,
        micro_batch=pins.micro_batch or 1,
        schedule="interleaved" if vpp > 1 else "1f1b",
        sequence_parallel=bool(pins.sequence_parallel),
        recompute=pins.recompute or FRAMEWORK.recompute_settings(problem)[0],
        split=split,
        order=pins.order or ORDERS[0],
        cp_comm=pins.cp_comm or "p2p",
        cp_a2a=pins.cp_a2a or 1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
        cuda_graphs=pins.cuda_graphs or False,
        gtp=sizes["gtp"],
        egtp=sizes["egtp"],
    )
    hidden = [name for name in _layout_fields() if not _is_field_given(name, known)]
    tiled = all(_is_field_given(name, known) for name in ("tp", "cp", "pp"))
    # dp follows from the number of ranks, so it is unknown if one of these sizes or the cluster is.
    if not tiled or not is_field_known(partial.cluster, "racks"):
        hidden += ["dp_replicate", "dp_shard"]
    if not is_field_known(partial.model, "layers"):
        hidden.append("split")
    return whole, mark_fields_unknown(whole, set(hidden))


def _layout_fields() -> tuple[str, ...]:
    return (*DEFAULTS, "etp", "micro_batch", "sequence_parallel", "order", *FIELDS)


def _is_field_given(name: str, known: Known) -> bool:
    if name == "etp":
        return known("layout.etp") and known("layout.tp")
    return all(known(f"layout.{pin}") for pin in FIELDS.get(name, (name,)))


def _split_from_flags(problem: Problem, pp: int, vpp: int) -> PipelineSplit:
    """Return the split into pipeline stages that the flags specify, or Megatron's even split."""
    pins = problem.pins
    given = pins.count_embedding or pins.count_loss or any(getattr(pins, one) for one in SPLITTING)
    return framework_or_even_split(problem, FRAMEWORK, pp, vpp, bool(given))
