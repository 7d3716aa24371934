"""Even split of the layers into virtual stages; embedding and head count as one layer each.

torchtitan splits in the same way (distributed/pipeline_parallel.py,
_generate_llm_fqn_per_model_part). PARC emits the result explicitly, so that a changed default of
torchtitan cannot change the plan.
"""

from __future__ import annotations

from parc.backends.shared.pipeline_split import even_layer_counts, looped_split, v_schedule_split
from parc.backends.shared.valid_values import format_setting, nearest_value
from parc.compiler.diagnostics import Cause, CodedFinding, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import PipelineSplit, Problem
from parc.compiler.ir.divisors import divisors

V_SCHEDULES = ("zb-v", "dualpipe-v")
"""V-shaped schedules: each rank has one stage of the first half and one of the second half."""


def find_split(problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
    """Return the even split of the layers into pipeline stages; None if no split is valid.

    A split is invalid if a stage would be empty. With vpp above 1, a split is also invalid if the
    spec sets the layers of the first or last stage.
    """
    if vpp > 1 and (problem.pins.first_stage_layers or problem.pins.last_stage_layers):
        return None
    counts = layers_per_virtual_stage(problem, pp * vpp)
    if counts is None:
        return None
    if problem.pins.schedule in V_SCHEDULES and vpp == 2 and pp > 1:
        return v_schedule_split(problem.model, counts, pp)
    return looped_split(problem.model, counts, pp)


def layers_per_virtual_stage(problem: Problem, stages: int) -> tuple[int, ...] | None:
    """Return the number of layers of each virtual stage; None if a stage would be empty."""
    layers, pins = problem.model.layers, problem.pins
    first, last = pins.first_stage_layers, pins.last_stage_layers
    # A single stage has all layers, so that no part of them can be fixed.
    if stages == 1:
        return None if first or last else (layers,)
    if first is None and last is None:
        # + 2: embedding and head count as a layer each, and are subtracted from the first and last
        # stage.
        counts = list(even_layer_counts(layers + 2, stages))
        counts[0] -= 1
        counts[-1] -= 1
        if min(counts) < 1:  # too few layers to leave a slot for embedding and head
            counts = list(even_layer_counts(layers, stages))
    else:
        middle = stages - (first is not None) - (last is not None)
        rest = layers - (first or 0) - (last or 0)
        if rest < middle or (rest and not middle):
            return None
        inner = even_layer_counts(rest, middle) if middle else ()
        counts = [*([first] if first else []), *inner, *([last] if last else [])]
    return tuple(counts) if min(counts) > 0 else None


def why_no_split(problem: Problem, pp: int, vpp: int) -> CodedFinding:
    """Return the reason why no split is valid."""
    layers, pins = problem.model.layers, problem.pins
    cause = (
        Cause("model.layers", f"the model has {layers} layers"),
        Cause("layout.pp", f"pp {pp}"),
    )
    if pins.first_stage_layers or pins.last_stage_layers:
        at = "layout.first_stage_layers" if pins.first_stage_layers else "layout.last_stage_layers"
        given = (pins.first_stage_layers or 0) + (pins.last_stage_layers or 0)
        finding = Finding(
            message=f"the spec puts {given} of {layers} layers on the first or last stage, "
            f"which leaves {layers - given} layers for the other stages",
            label=f"no valid split over pp {pp} x vpp {vpp} = {pp * vpp} stages",
            help="every stage needs a layer, every layer needs a stage, and vpp must be 1",
            fix=f"{at}: auto",
            causes=cause,
        )
        return CodedFinding("P04", at, finding)
    # No vpp is valid if pp exceeds the number of layers, otherwise vpp 1 is.
    at, other = ("layout.vpp", pp) if pp <= layers else ("layout.pp", vpp)
    good = [size for size in divisors(layers) if size * other <= layers]
    example = f"; for example {at}: {format_values(good)}" if good else ""
    finding = Finding(
        message=f"{layers} layers cannot fill pp={pp} x vpp={vpp} = {pp * vpp} stages",
        label=f"{pp * vpp} stages, must be at most {layers}",
        help=f"valid pp x vpp: up to {layers}{example}",
        fix=format_setting(at, nearest_value(good, pp * vpp // other)),
        causes=cause,
    )
    return CodedFinding("P02", at, finding)
