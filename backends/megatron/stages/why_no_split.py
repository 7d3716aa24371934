"""Explanation of why no split of the layers over pp x vpp chunks matches the spec."""

from __future__ import annotations

from parc.backends.megatron.stages.layout_string import LayoutStringError, parse_layout_string
from parc.backends.megatron.stages.split import SplitPins, find_layout_string_fault, model_depth
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.compiler.diagnostics import Cause, CodedFinding, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Problem
from parc.compiler.ir.divisors import divisors

NO_ENDS = "remove layout.first_stage_layers, layout.last_stage_layers"


def why_no_split(problem: Problem, pp: int, vpp: int) -> CodedFinding:
    """Return the reason why the layers cannot be split.

    Call this function only if ``find_split`` returns None.
    """
    pins = SplitPins.from_pins(problem.pins)
    ends, counts = bool(pins.first or pins.last), bool(pins.embedding or pins.loss)
    if (pins.text is not None) + ends + counts > 1:
        return _explain_conflicting_pins(pins)
    if pp == 1 and vpp > 1:
        return _explain_no_interleaving(vpp)
    if pins.text is not None:
        return _explain_layout_string(problem, pp, vpp, pins.text)
    if pp == 1:
        return _explain_no_pipeline(problem.model.layers, pins)
    if ends:
        return _explain_first_last(problem, pp, vpp, pins)
    if counts:
        return _explain_counted_ends(problem, pp, vpp, pins)
    return _explain_too_many_stages(problem, pp, vpp)


def _explain_conflicting_pins(pins: SplitPins) -> CodedFinding:
    set_pins = [
        name
        for name, is_set in (
            ("pipeline_layout", pins.text is not None),
            ("first_stage_layers", pins.first),
            ("last_stage_layers", pins.last),
            ("count_embedding", pins.embedding),
            ("count_loss", pins.loss),
        )
        if is_set
    ]
    finding = Finding(
        message=f"{' and '.join(set_pins)} exclude each other: each defines the stages",
        label="at most one way to define the stages may be set",
        help="use pipeline_layout, or first/last_stage_layers, or count_embedding/count_loss",
        fix=f"remove layout.{', layout.'.join(set_pins[1:])}",
        causes=tuple(
            Cause(f"layout.{name}", f"{name} defines the stages too") for name in set_pins[1:]
        ),
    )
    return CodedFinding("P05", f"layout.{set_pins[0]}", finding)


def _explain_no_interleaving(vpp: int) -> CodedFinding:
    finding = Finding(
        message=f"vpp={vpp} interleaves pipeline stages, but pp is 1",
        label="vpp > 1 requires pp > 1",
        help="use vpp 1, or pp > 1",
        fix="layout.vpp: 1",
        causes=(Cause("layout.pp", "pp 1"),),
    )
    return CodedFinding("P06", "layout.vpp", finding)


def _explain_no_pipeline(layers: int, pins: SplitPins) -> CodedFinding:
    """Return the reason: the spec sets the layers of the first or last stage, but pp is 1.

    If the layers of both stages are set, Megatron computes -1 middle stages, and its checks pass by
    mistake. Source: TransformerConfig.__post_init__ and get_num_layers_to_build of Megatron-Core
    0.17 to 0.19.
    """
    first, last = pins.first or 0, pins.last or 0
    path = "layout.first_stage_layers" if first else "layout.last_stage_layers"
    if first and last and first + last != layers:
        label = f"Megatron would build {last} of {layers} layers, and report no error"
    else:
        label = f"Megatron stops: the only stage must have all {layers} layers"
    finding = Finding(
        message="the layers of the first or last stage are set, but pp is 1",
        label=label,
        help="remove the layers per stage, or use pp > 1",
        fix=f"remove {path}" if not (first and last) else NO_ENDS,
        causes=(Cause("layout.pp", "pp 1"),),
    )
    return CodedFinding("P03", path, finding)


def _explain_layout_string(problem: Problem, pp: int, vpp: int, text: str) -> CodedFinding:
    at, model = "layout.pipeline_layout", problem.model
    syntax = "E once first, L once last, t for each decoder layer, m for each MTP layer"
    try:
        stages = parse_layout_string(text)
    except LayoutStringError as error:
        label = f"the error is at character {error.at + 1} of {text!r}"
        return CodedFinding("P19", at, Finding(str(error), label=label, help=syntax))
    fault = (
        find_layout_string_fault(model_depth(model), stages, pp, vpp) or "the layout cannot be used"
    )
    finding = Finding(
        message=fault,
        label=f"the layout has {len(stages)} stages and "
        f"{sum(stage.layers for stage in stages)} decoder layers",
        help=f"{syntax}; the number of stages is pp x vpp; this plan needs "
        f"{model.layers} t and {model.mtp_layers} m on pp {pp} x vpp {vpp} stages",
        fix="remove layout.pipeline_layout, so that PARC chooses the split",
        causes=(Cause("model.layers", f"{model.layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return CodedFinding("P19", at, finding)


def _explain_first_last(problem: Problem, pp: int, vpp: int, pins: SplitPins) -> CodedFinding:
    layers, middle = problem.model.layers, pp - bool(pins.first) - bool(pins.last)
    other = pins.last if pins.first else None
    at = "layout.first_stage_layers" if pins.first else "layout.last_stage_layers"
    rest = layers - (pins.first or 0) - (pins.last or 0)
    good = filter_valid(
        range(vpp, layers + 1, vpp),
        lambda n: _splits_evenly(layers - n - (other or 0), middle, vpp),
    )
    most = -(-layers // pp)
    near = nearest_value(good, pins.first or pins.last or most)
    fixed = layers - rest
    ends = " and the ".join(
        name for name, count in (("first", pins.first), ("last", pins.last)) if count
    )
    finding = Finding(
        message=f"the layers that the spec fixes leave {rest} of {layers} layers "
        f"for {middle} other stages"
        if rest >= 0
        else f"the {ends} stage would have {fixed} layers, but the model has {layers}",
        label=_explain_remainder(rest, middle, vpp)
        if rest > 0 or not middle
        else f"{fixed} layers, must be less than {layers}, because other stages need layers",
        help=f"valid {at}: {format_values(good)}",
        fix=format_setting(at, near),
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return CodedFinding("P04", at, finding)


def _explain_remainder(rest: int, middle: int, vpp: int) -> str:
    if middle == 0:
        return f"{rest} layers remain, must be 0"
    share = rest // middle
    return (
        f"{rest} % {middle} = {rest % middle}, must be 0; "
        f"{share} % vpp {vpp} = {share % vpp}, must be 0"
    )


def _splits_evenly(rest: int, middle: int, vpp: int) -> bool:
    if middle == 0:
        return rest == 0
    return rest > 0 and rest % middle == 0 and rest // middle % vpp == 0


def _explain_counted_ends(problem: Problem, pp: int, vpp: int, pins: SplitPins) -> CodedFinding:
    layers = problem.model.layers
    total = layers + bool(pins.embedding) + bool(pins.loss)
    good = filter_valid(divisors(total), lambda n: n > 1 and total % (n * vpp) == 0)
    at = "layout.count_embedding" if pins.embedding else "layout.count_loss"
    counted = (("embedding", pins.embedding), ("loss", pins.loss))
    ends = " and the ".join(name for name, is_counted in counted if is_counted)
    finding = Finding(
        message=f"the {layers} layers and the {ends} count as {total} layers, "
        f"which are not divisible by pp={pp} x vpp={vpp}",
        label=f"{total} % ({pp} * {vpp}) = {total % (pp * vpp)}, must be 0",
        help=f"valid pp: {format_values(good)}",
        fix=f"remove {at}, so that PARC chooses the split",
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return CodedFinding("P01", at, finding)


def _explain_too_many_stages(problem: Problem, pp: int, vpp: int) -> CodedFinding:
    model, layers = problem.model, problem.model.layers
    # A layout string may have stages with only the MTP layers or the loss; a layer pattern may not.
    most = layers if model.pattern else layers + 1 + bool(model.mtp_layers)
    at = "layout.pp" if pp > layers else "layout.vpp"
    fix = format_setting(at, max(1, layers if pp > layers else layers // pp))
    finding = Finding(
        message=f"{layers} layers cannot fill pp={pp} x vpp={vpp} = {pp * vpp} stages",
        label=f"{pp * vpp} stages, must be at most {most}",
        help=f"use pp x vpp up to {layers}",
        fix=fix,
        causes=(Cause("model.layers", f"{layers} layers"),),
    )
    return CodedFinding("P02", at, finding)
