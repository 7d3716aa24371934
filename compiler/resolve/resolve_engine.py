"""Engine name -> engine whose declaration is complete: its constants and the axes of its mesh."""

from __future__ import annotations

from parc.backends.base import Engine
from parc.backends.registry import declaration, engine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Model
from parc.compiler.ir.engine_constants import EngineConstants, UndeclaredConstantsError
from parc.compiler.ir.serving import ServingLayout

PROBE = ServingLayout(tp=2, pcp=3, pp=5, dp=7, replicas=11)
"""Layout whose degrees all differ, so that the size of an axis identifies it."""
AXES = {"tp": PROBE.tp, "cp": PROBE.pcp, "pp": PROBE.pp, "dp": PROBE.dp, "replica": PROBE.replicas}
"""Axes that placement, rank map and reports require of an engine's mesh, with their sizes."""


def resolve_engine(name: str, model: Model, sink: Sink) -> tuple[Engine, EngineConstants] | None:
    """Return the engine ``name`` and its constants; None after V32 or V33.

    An incomplete declaration is refused: an estimate with the constants of another engine, or a
    rank map over other axes, would be wrong without notice.
    """
    target = engine(name)
    has_axes = _check_mesh(target, sink)
    constants = _declared_constants(target, model, sink)
    return (target, constants) if constants is not None and has_axes else None


def _declared_constants(target: Engine, model: Model, sink: Sink) -> EngineConstants | None:
    """Return the constants of ``target``; None after V32."""
    missing = ""
    try:
        constants = target.constants()
    except UndeclaredConstantsError as error:
        missing = str(error)
    else:
        if not isinstance(constants, EngineConstants):
            missing = f"constants() returns {type(constants).__name__}, not EngineConstants"
        elif constants.states.pages is None and any(k.mixer != "attention" for k in model.kinds):
            missing = f"states.pages is null, but {model.name} has recurrent layers"
        else:
            return constants
    finding = Finding(
        f"{target.name} does not declare the constants that its estimate needs",
        label=missing,
        help=f"declare them in constants.yaml of {declaration(target.name).package}; "
        "EngineConstants in compiler/ir/engine_constants.py defines the keys",
    )
    sink.report("V32", finding, at="emit")
    return None


def _check_mesh(target: Engine, sink: Sink) -> bool:
    """Return True if the mesh of ``target`` has the required axes; report V33 otherwise."""
    sizes = {axis.name: axis.size for axis in target.mesh(PROBE).axes}
    if sizes == AXES:
        return True
    missing = [f"{axis} is missing" for axis in AXES if axis not in sizes]
    wrong = [f"{axis} has size {size}" for axis, size in sizes.items() if AXES.get(axis) != size]
    degrees = {"tp": PROBE.tp, "pcp": PROBE.pcp, "pp": PROBE.pp, "dp": PROBE.dp}
    finding = Finding(
        f"the mesh of {target.name} does not have the axes {', '.join(AXES)}",
        label=", ".join([*missing, *wrong]),
        help=f"for {_words(degrees | {'replicas': PROBE.replicas})}, mesh() must return "
        f"{_words(AXES)}, in the engine's rank order and including axes of size 1",
    )
    sink.report("V33", finding, at="emit")
    return False


def _words(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
