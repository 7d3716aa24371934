"""Say why the pins leave no split of the layers over a grid of stages."""

from __future__ import annotations

from parc.backends.megatron.stages.layout_string import LayoutStringError, parse
from parc.backends.megatron.stages.split import SplitPins, depth, layout_fault
from parc.backends.shared.valid_values import divisors, format_pin, format_values, nearest, valid
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Problem

Why = tuple[str, str, Finding]
"""Code, spec path, finding."""


def why_no_split(problem: Problem, pp: int, vpp: int) -> Why:
    """The reason why ``find_split`` gives None for this grid; asked only then."""
    pins = SplitPins.of(problem.pins)
    ends, counts = bool(pins.first or pins.last), bool(pins.embedding or pins.loss)
    if (pins.text is not None) + ends + counts > 1:
        return _several(pins)
    if pp == 1:
        return _no_pipeline(pins, vpp)
    if pins.text is not None:
        return _layout(problem, pp, vpp, pins.text)
    if ends:
        return _ends(problem, pp, vpp, pins)
    if counts:
        return _counts(problem, pp, vpp, pins)
    return _too_many(problem, pp, vpp)


def _several(pins: SplitPins) -> Why:
    asked = [
        name
        for name, wanted in (
            ("pipeline_layout", pins.text is not None),
            ("first_stage_layers", pins.first),
            ("last_stage_layers", pins.last),
            ("count_embedding", pins.embedding),
            ("count_loss", pins.loss),
        )
        if wanted
    ]
    finding = Finding(
        message=f"{' and '.join(asked)} say the stage split in different ways",
        label="at most one way may be pinned",
        help="legal: a pipeline_layout, or first/last_stage_layers, or count_embedding/count_loss",
        fix=f"remove layout.{', layout.'.join(asked[1:])}",
        causes=tuple(Cause(f"layout.{name}", "another way") for name in asked[1:]),
    )
    return "P05", f"layout.{asked[0]}", finding


def _no_pipeline(pins: SplitPins, vpp: int) -> Why:
    if vpp > 1:
        finding = Finding(
            message=f"vpp={vpp} interleaves stages, but pp is 1",
            label="vpp > 1 needs pp > 1",
            help="legal: vpp 1, or pp > 1",
            fix="layout.vpp: 1",
            causes=(Cause("layout.pp", "pp 1"),),
        )
        return "P06", "layout.vpp", finding
    path = _pinned_path(pins)
    finding = Finding(
        message="a stage split is pinned, but pp is 1: Megatron would train the pinned layers only",
        label="a stage split needs pp > 1",
        help="legal: no stage split, or pp > 1",
        fix=f"remove {path}",
        causes=(Cause("layout.pp", "pp 1"),),
    )
    return "P03", path, finding


def _pinned_path(pins: SplitPins) -> str:
    if pins.text is not None:
        return "layout.pipeline_layout"
    if pins.first:
        return "layout.first_stage_layers"
    if pins.last:
        return "layout.last_stage_layers"
    return "layout.count_embedding" if pins.embedding else "layout.count_loss"


def _layout(problem: Problem, pp: int, vpp: int, text: str) -> Why:
    at, model = "layout.pipeline_layout", problem.model
    legal_text = "E once first, L once last, t for each decoder layer, m for each MTP layer"
    try:
        stages = parse(text)
    except LayoutStringError as error:
        label = f"at character {error.at + 1} of {text!r}"
        return "P19", at, Finding(str(error), label=label, help=legal_text)
    fault = layout_fault(depth(model), stages, pp, vpp) or "the layout cannot be used"
    finding = Finding(
        message=fault,
        label=f"{len(stages)} stages, {sum(stage.layers for stage in stages)} decoder layers",
        help=f"{legal_text}; stages a multiple of pp; here {model.layers} t and "
        f"{model.mtp_layers} m over pp {pp} x vpp {vpp}",
        fix="remove layout.pipeline_layout, and let the split be decided",
        causes=(Cause("model.layers", f"{model.layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return "P19", at, finding


def _ends(problem: Problem, pp: int, vpp: int, pins: SplitPins) -> Why:
    layers, middle = problem.model.layers, pp - bool(pins.first) - bool(pins.last)
    other = pins.last if pins.first else None
    at = "layout.first_stage_layers" if pins.first else "layout.last_stage_layers"
    rest = layers - (pins.first or 0) - (pins.last or 0)
    good = valid(
        range(vpp, layers + 1, vpp), lambda n: _fits(layers - n - (other or 0), middle, vpp)
    )
    most = -(-layers // pp)
    near = nearest(good, pins.first or pins.last or most)
    finding = Finding(
        message=f"{layers} layers with {rest} left for {middle} stages in between cannot be split",
        label=_ends_label(rest, middle, vpp),
        help=f"legal values: {format_values(good)}",
        fix=format_pin(at, near),
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return "P04", at, finding


def _ends_label(rest: int, middle: int, vpp: int) -> str:
    if middle == 0:
        return f"{rest} layers left over, must be 0"
    share = rest // middle
    return (
        f"{rest} % {middle} = {rest % middle}, must be 0; "
        f"{share} % vpp {vpp} = {share % vpp}, must be 0"
    )


def _fits(rest: int, middle: int, vpp: int) -> bool:
    if middle == 0:
        return rest == 0
    return rest > 0 and rest % middle == 0 and rest // middle % vpp == 0


def _counts(problem: Problem, pp: int, vpp: int, pins: SplitPins) -> Why:
    layers = problem.model.layers
    total = layers + bool(pins.embedding) + bool(pins.loss)
    good = valid(divisors(total), lambda n: n > 1 and total % (n * vpp) == 0)
    at = "layout.count_embedding" if pins.embedding else "layout.count_loss"
    finding = Finding(
        message=f"{total} layers, with what is counted, cannot be split over pp={pp} x vpp={vpp}",
        label=f"{total} % ({pp} * {vpp}) = {total % (pp * vpp)}, must be 0",
        help=f"legal pp: {format_values(good)}",
        fix=f"remove {at}, and let the split be decided",
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
    return "P01", at, finding


def _too_many(problem: Problem, pp: int, vpp: int) -> Why:
    model, layers = problem.model, problem.model.layers
    most = layers if model.pattern else layers + 1 + bool(model.mtp_layers)
    at = "layout.pp" if pp > layers else "layout.vpp"
    fix = format_pin(at, max(1, layers if pp > layers else layers // pp))
    finding = Finding(
        message=f"{layers} layers cannot fill pp={pp} x vpp={vpp} = {pp * vpp} stages",
        label=f"{pp * vpp} stages, at most {most}",
        help=f"legal pp x vpp: up to {layers}",
        fix=fix,
        causes=(Cause("model.layers", f"{layers} layers"),),
    )
    return "P02", at, finding
