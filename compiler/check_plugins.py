"""Checks of the declarations of plugins that need the catalog or the fields of a spec.

The other defects are found when a plugin is loaded (``backends/plugins.py``) and when it is called
(``backends/plugin_guard.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from parc.backends.declaration import Declaration
from parc.backends.plugin_error import REPAIR, PluginProblem
from parc.backends.plugins import plugin_owner
from parc.backends.registry import (
    WITHOUT_EFFECT,
    engine,
    fields_without_effect,
    find_backend_declaration,
    framework,
)
from parc.backends.shared.strategies import STRATEGIES
from parc.compiler.catalog.find_generation import find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.ir import KernelStack
from parc.compiler.plugin_errors import plugins_among, report_problem
from parc.compiler.spec.launch_spec import LaunchSpec
from parc.compiler.spec.service_spec import ServingLaunchSpec

PROBE_MODEL = "llama-3-8b"
"""Model of the catalog with which members of an engine are called."""


def check_plugins(targets: Iterable[str], sink: Sink) -> bool:
    """Return True if all plugins among ``targets`` have valid declarations.

    Otherwise report their unknown names of strategies, spec fields and software stacks (X23).
    Plugins that cannot be loaded are reported where their names are resolved.
    """
    names = plugins_among(targets)
    problems = [problem for name in names for problem in plugin_problems(name)]
    for problem in problems:
        report_problem(problem, tuple(targets), sink)
    return not problems


def plugin_problems(name: str) -> tuple[PluginProblem, ...]:
    """Return the problems in the declaration of the plugin ``name``; none if it is not usable."""
    declared = find_backend_declaration(name)
    if not isinstance(declared, Declaration):
        return ()
    owner = plugin_owner(name)
    return tuple(
        PluginProblem(name, f"{owner.distribution}: {defect}", REPAIR)
        for defect in _defects(declared)
    )


def _defects(declared: Declaration) -> Iterator[str]:
    known = _launch_fields()
    for field in declared.launch_fields:
        if field not in known:
            yield f"launch_fields has the unknown field {_suggest(field, known)}"
    strategies: set[str] = set()
    if declared.is_framework:
        strategies |= framework(declared.name).strategies.keys()
        yield from _stack_defects(framework(declared.name).stack)
    if declared.is_engine:
        strategies |= engine(declared.name).strategies.keys()
    valid = [one.name for one in STRATEGIES]
    for strategy in sorted(strategies.difference(valid)):
        yield (
            f"strategies has the unknown name {_suggest(strategy, valid)}; "
            f"valid names: {', '.join(valid)}"
        )


def _stack_defects(stack: KernelStack) -> Iterator[str]:
    """Yield names in ``stack`` that no generation of the catalog has."""
    stacks = _catalog_stacks()
    if stack.like and stack.like not in {name for one in stacks.values() for name in one}:
        names = sorted({name for one in stacks.values() for name in one})
        yield f"stack has like={_suggest(stack.like, names)}; valid names: {', '.join(names)}"
    for generation in stack.rows:
        # A user's file may define any other generation.
        if generation not in stacks and did_you_mean(generation, stacks):
            yield f"stack has rows of the unknown GPU generation {_suggest(generation, stacks)}"


def _suggest(name: str, valid: Iterable[str]) -> str:
    near = did_you_mean(name, valid)
    return f"{name!a:.60}" + (f" (did you mean {near[0]}?)" if near else "")


@cache
def _launch_fields() -> frozenset[str]:
    """Return the fields and sections below ``launch`` of a spec, of training and serving jobs."""
    return frozenset(one for model in (LaunchSpec, ServingLaunchSpec) for one in _paths(model, ""))


def _paths(annotation: Any, above: str) -> Iterator[str]:
    """Yield the paths of all fields of the models in ``annotation``, each below ``above``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield f"{above}{name}"
            yield from _paths(field.annotation, f"{above}{name}.")
    else:
        for part in get_args(annotation):
            yield from _paths(part, above)


@cache
def _catalog_stacks() -> dict[str, tuple[str, ...]]:
    """Return GPU generation -> its software stacks with efficiency factors, from the catalog."""
    library = Library()
    found = {}
    for name in library.names("generations"):
        generation = find_generation(name, library, Sink(), "")
        found[name] = tuple(generation.efficiency) if generation is not None else ()
    return found


def check_tables(name: str, sink: Sink) -> None:
    """Report fields in ``without_effect.yaml`` of the plugin ``name`` that no spec has (X23).

    Raises:
        PluginError: the table cannot be read.
    """
    # Imported here, because the descriptions of all fields are read from their sources.
    from parc.compiler.spec.schema import all_fields

    known = all_fields()
    unknown = [one for one in fields_without_effect(name) if one not in known]
    if unknown:
        message = f"{plugin_owner(name).distribution}: {WITHOUT_EFFECT} has the unknown field "
        problem = PluginProblem(name, message + _suggest(unknown[0], known), REPAIR)
        report_problem(problem, (name,), sink)


def check_engine_members(name: str, sink: Sink) -> None:
    """Report missing constants (V32) and mesh axes (V33) of the engine ``name``.

    Raises:
        PluginError: a member fails or returns an invalid value.
    """
    from parc.backends.base import OptionalFeatures
    from parc.compiler.resolve.resolve_model import resolve_model
    from parc.compiler.resolve.resolve_service import resolve_engine

    model = resolve_model(PROBE_MODEL, Library(), Sink())
    assert model is not None
    resolve_engine(name, model, sink)
    target = engine(name)
    target.context_tokens(model)
    if isinstance(target, OptionalFeatures):
        target.service_features(model)
