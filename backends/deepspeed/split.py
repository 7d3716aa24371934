"""Division of the layers into pipeline stages, as even as the spec's end stages allow.

The emitted program receives the number of layers per stage, because DeepSpeed would otherwise
divide the layers by its own method.
"""

from __future__ import annotations

from functools import cache

from parc.backends.shared.pipeline_split import even_layer_counts, looped_split
from parc.backends.shared.torch.rules import MEGATRON_PINS
from parc.backends.shared.valid_values import format_setting
from parc.compiler.diagnostics import Cause, CodedFinding, Finding
from parc.compiler.ir import Model, Pins, PipelineSplit, Problem


def find_split(problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
    """Return the split of the layers into ``pp`` pipeline stages; None if no split is possible.

    No split is possible if ``vpp`` is above 1, or if the spec sets a field that only Megatron
    supports. The same is true if the stages cannot have the numbers of layers that the spec sets.
    """
    pins = problem.pins
    if vpp > 1 or _unsupported_pin(pins) is not None:
        return None
    return _find_split_cached(problem.model, pp, pins.first_stage_layers, pins.last_stage_layers)


# The search evaluates thousands of layouts, but few pairs of pp and fixed layers.
@cache
def _find_split_cached(
    model: Model, pp: int, first: int | None, last: int | None
) -> PipelineSplit | None:
    counts = _layers_per_stage(model.layers, pp, first, last)
    # DeepSpeed runs one chunk per rank, so chunk c is simply stage c.
    return None if counts is None else looped_split(model, counts, pp)


def _layers_per_stage(
    layers: int, pp: int, first: int | None, last: int | None
) -> tuple[int, ...] | None:
    """Return the number of layers of each stage; None if the layers cannot fill the stages.

    ``first`` and ``last`` are the layers that the spec sets for the first and the last stage, or
    None. The remaining layers are divided evenly, with at least one layer per stage.
    """
    head = () if first is None else (first,)
    tail = () if last is None else (last,)
    middle, rest = pp - len(head) - len(tail), layers - sum(head) - sum(tail)
    if pp == 1 and (head or tail):
        return None
    # A stage without layers would only pass activations on.
    if rest < middle or (middle <= 0 and rest):
        return None
    return (*head, *(even_layer_counts(rest, middle) if middle else ()), *tail)


def _unsupported_pin(pins: Pins) -> str | None:
    """Return the first field of the spec that only Megatron supports; None if there is none."""
    return next((name for name in MEGATRON_PINS if getattr(pins, name)), None)


def why_no_split(problem: Problem, pp: int, vpp: int) -> CodedFinding:
    """Return the reason why ``find_split`` cannot split the layers."""
    pins, layers = problem.pins, problem.model.layers
    name = _unsupported_pin(pins)
    if name is not None:
        return CodedFinding("E08", f"layout.{name}", _explain_unsupported_pin(name))
    if vpp > 1:
        return CodedFinding("E08", "layout.vpp", _explain_no_interleaving(vpp))
    end = "layout.first_stage_layers" if pins.first_stage_layers else "layout.last_stage_layers"
    if pp == 1:
        return CodedFinding("P03", end, _explain_no_pipeline(end))
    if pins.first_stage_layers or pins.last_stage_layers:
        return CodedFinding("P04", end, _explain_pinned_ends(problem, pp))
    finding = Finding(
        message=f"{layers} layers cannot fill pp={pp} stages",
        label=f"pp {pp} exceeds the {layers} layers: every stage needs one",
        help=f"valid pp: 1 to {layers}",
        fix=format_setting("layout.pp", layers),
        causes=(Cause("model.layers", f"{layers} layers"),),
    )
    return CodedFinding("P02", "layout.pp", finding)


def _explain_unsupported_pin(name: str) -> Finding:
    return Finding(
        message=f"deepspeed does not support layout.{name}",
        label=f"only Megatron supports layout.{name}",
        help="DeepSpeed supports first_stage_layers and last_stage_layers",
        fix=f"remove layout.{name}",
        targets=("deepspeed",),
    )


def _explain_no_interleaving(vpp: int) -> Finding:
    return Finding(
        message=f"deepspeed has no interleaved pipeline (vpp={vpp})",
        label="DeepSpeed's schedule runs one model chunk per stage",
        help="valid vpp: 1",
        fix="layout.vpp: 1",
        targets=("deepspeed",),
    )


def _explain_no_pipeline(path: str) -> Finding:
    return Finding(
        message="the spec sets the layers of a pipeline stage, but pp is 1",
        label=f"{path} needs pp > 1",
        help="remove the setting, or set pp above 1",
        fix=f"remove {path}",
        causes=(Cause("layout.pp", "pp 1"),),
    )


def _explain_pinned_ends(problem: Problem, pp: int) -> Finding:
    pins, layers = problem.pins, problem.model.layers
    ends = [n for n in (pins.first_stage_layers, pins.last_stage_layers) if n is not None]
    middle, rest = pp - len(ends), layers - sum(ends)
    return Finding(
        message=f"the layers that the spec fixes leave {rest} of {layers} layers "
        f"for {middle} other stages",
        label=f"{rest} layers for {middle} stages, must be at least one per stage",
        help=f"set at most {max(layers - middle, 0)} layers in the first and last stage together",
        fix="remove layout.first_stage_layers and layout.last_stage_layers",
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
