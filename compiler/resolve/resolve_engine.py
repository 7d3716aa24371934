"""Engine name -> engine whose declaration is complete: constants, and the axes of its mesh."""

from __future__ import annotations

from parc.backends.base import Engine
from parc.backends.registry import engine
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Mesh, Model
from parc.compiler.ir.engine_constants import EngineConstants, UndeclaredConstantsError
from parc.compiler.ir.serving import ServingLayout

PROBE = ServingLayout(tp=2, pcp=3, pp=5, dp=7, replicas=11)
"""Layout whose degrees all differ, so that each axis of its mesh is identified by its size."""
AXES = {"tp": PROBE.tp, "cp": PROBE.pcp, "pp": PROBE.pp, "dp": PROBE.dp, "replica": PROBE.replicas}
"""Axes that placement, rank map and reports require of an engine's mesh, with their sizes."""


def resolve_engine(name: str, model: Model, sink: Sink) -> tuple[Engine, EngineConstants] | None:
    """Return the engine ``name`` and its constants; None after V32 or V33.

    An engine that declares too little is refused, because an estimate with the constants of another
    engine, or a rank map over other axes, would be wrong without notice.
    """
    target = engine(name)
    constants = _declared_constants(name, target, model, sink)
    has_mesh = _check_mesh(name, target, sink)
    return (target, constants) if constants is not None and has_mesh else None


def _declared_constants(
    name: str, target: Engine, model: Model, sink: Sink
) -> EngineConstants | None:
    """Return the constants of ``target``; None after V32."""
    declared = getattr(target, "constants", None)
    if declared is None:
        _report_undeclared(name, "the backend has no method constants()", sink)
        return None
    try:
        constants: EngineConstants = declared()
    except UndeclaredConstantsError as error:
        _report_undeclared(name, str(error), sink)
        return None
    if any(kind.mixer != "attention" for kind in model.kinds) and constants.states.pages is None:
        missing = f"states.pages is null, and {model.name} has recurrent layers"
        _report_undeclared(name, missing, sink)
        return None
    return constants


def _report_undeclared(name: str, missing: str, sink: Sink) -> None:
    finding = Finding(
        f"{name} does not declare the constants that its estimate needs",
        label=missing,
        help=f"declare them in backends/{name}/constants.yaml, with the keys of "
        "compiler/ir/engine_constants.py, and return them from Engine.constants()",
    )
    sink.report("V32", finding, at="emit")


def _check_mesh(name: str, target: Engine, sink: Sink) -> bool:
    """Return True if the mesh of ``target`` has the required axes; report V33 otherwise."""
    sizes = _sizes(target.mesh(PROBE))
    if sizes == AXES:
        return True
    missing = [axis for axis in AXES if axis not in sizes]
    wrong = [f"{axis} has size {sizes[axis]}" for axis in sizes if AXES.get(axis) != sizes[axis]]
    parts = [f"missing: {', '.join(missing)}"] if missing else []
    finding = Finding(
        f"the mesh of {name} does not have the axes {', '.join(AXES)}",
        label="; ".join([*parts, *wrong]),
        help=f"for {_words(PROBE)}, Engine.mesh() must return "
        + ", ".join(f"{axis} {size}" for axis, size in AXES.items())
        + " in the engine's rank order; an axis of size 1 must not be left out",
    )
    sink.report("V33", finding, at="emit")
    return False


def _sizes(mesh: Mesh) -> dict[str, int]:
    return {axis.name: axis.size for axis in mesh.axes}


def _words(layout: ServingLayout) -> str:
    names = ("tp", "pcp", "pp", "dp", "replicas")
    return ", ".join(f"{name} {getattr(layout, name)}" for name in names)
