"""Which stage holds which layers: counts in the program, even ones unless an end is pinned."""

from __future__ import annotations

from functools import cache

from parc.backends.shared.plain_split import even_counts, looped_split
from parc.backends.shared.torch.rules import MEGATRON_PINS
from parc.backends.shared.valid_values import format_pin
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Model, Pins, Problem, Split


def find_split(problem: Problem, pp: int, vpp: int) -> Split | None:
    """The split; None where there are virtual stages or the pins leave none."""
    pins = problem.pins
    if vpp > 1 or _foreign(pins) is not None:
        return None
    return _split(problem.model, pp, pins.first_stage_layers, pins.last_stage_layers)


@cache
def _split(model: Model, pp: int, first: int | None, last: int | None) -> Split | None:
    counts = _counts(model.layers, pp, first, last)
    return None if counts is None else looped_split(model, counts, pp)


def _counts(layers: int, pp: int, first: int | None, last: int | None) -> tuple[int, ...] | None:
    """Layers of every stage, at least one each; None where there are not enough or too many."""
    head = () if first is None else (first,)
    tail = () if last is None else (last,)
    middle, rest = pp - len(head) - len(tail), layers - sum(head) - sum(tail)
    if pp == 1 and (head or tail):
        return None
    if rest < middle or (middle <= 0 and rest):
        return None
    return (*head, *(even_counts(rest, middle) if middle else ()), *tail)


def _foreign(pins: Pins) -> str | None:
    """The first pin that DeepSpeed has no word for."""
    return next((name for name in MEGATRON_PINS if getattr(pins, name)), None)


def why_no_split(problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
    """The reason why ``find_split`` gives None; asked only then."""
    pins, layers = problem.pins, problem.model.layers
    name = _foreign(pins)
    if name is not None:
        return "E08", f"layout.{name}", _no_word(name)
    if vpp > 1:
        return "E08", "layout.vpp", _no_interleaving(vpp)
    end = "layout.first_stage_layers" if pins.first_stage_layers else "layout.last_stage_layers"
    if pp == 1:
        return "P03", end, _no_pipeline(end)
    if pins.first_stage_layers or pins.last_stage_layers:
        return "P04", end, _ends(problem, pp)
    finding = Finding(
        message=f"{layers} layers cannot fill pp={pp} stages",
        label=f"{pp} stages > {layers} layers",
        help=f"legal pp: up to {layers}",
        fix=format_pin("layout.pp", layers),
        causes=(Cause("model.layers", f"{layers} layers"),),
    )
    return "P02", "layout.pp", finding


def _no_word(name: str) -> Finding:
    return Finding(
        message=f"deepspeed has no {name}",
        label="Megatron's word: cannot be expressed",
        help="legal: first_stage_layers, last_stage_layers, or no pin: the program counts layers",
        fix=f"remove layout.{name}",
        targets=("deepspeed",),
    )


def _no_interleaving(vpp: int) -> Finding:
    return Finding(
        message="deepspeed does not support pipeline (interleaved, vpp)",
        label=f"vpp={vpp}: its schedule runs one chunk a stage",
        help="legal vpp: 1",
        fix="layout.vpp: 1",
        targets=("deepspeed",),
    )


def _no_pipeline(path: str) -> Finding:
    return Finding(
        message="a stage split is pinned, but pp is 1",
        label="a stage split needs pp > 1",
        help="legal: no stage split, or pp > 1",
        fix=f"remove {path}",
        causes=(Cause("layout.pp", "pp 1"),),
    )


def _ends(problem: Problem, pp: int) -> Finding:
    pins, layers = problem.pins, problem.model.layers
    ends = [n for n in (pins.first_stage_layers, pins.last_stage_layers) if n is not None]
    middle, rest = pp - len(ends), layers - sum(ends)
    return Finding(
        message=f"{layers} layers with {rest} left for {middle} stages in between cannot be split",
        label=f"{rest} layers for {middle} stages, must be at least one each",
        help=f"legal: first and last stage together up to {max(layers - middle, 0)}",
        fix="remove layout.first_stage_layers and layout.last_stage_layers",
        causes=(Cause("model.layers", f"{layers} layers"), Cause("layout.pp", f"pp {pp}")),
    )
