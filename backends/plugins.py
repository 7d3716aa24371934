"""Backends of other packages, registered under the entry-point group ``parc.backends``.

The name of an entry point is the name of the backend, and its value is a ``Declaration``::

    [project.entry-points."parc.backends"]
    mylab = "mylab_parc:DECLARATION"

PARC loads a plugin only when its name is looked up, and then checks the whole declaration. A defect
becomes a ``PluginProblem``, never an exception, and affects only specs that use that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from parc.backends import base
from parc.backends.base import Backend, Engine, Framework, ServingBackend
from parc.backends.declaration import Declaration
from parc.backends.plugin_error import REPAIR, PluginError, PluginOwner, PluginProblem
from parc.backends.verifier import EngineVerifier, FrameworkVerifier, Verifier

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "parc.backends"
BACKEND, VERIFIER = "BACKEND", "VERIFIER"
"""Names of the objects in the modules of a declaration."""
RESERVED = ("parc", "plan", "report")
"""Names, up to the first dot, of files that PARC itself writes; no plugin may have such a name."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def plugin_names() -> tuple[str, ...]:
    """Return the names of all registered plugins, sorted, without loading any of them."""
    return tuple(sorted(plugin_entry_points()))


@cache
def load_plugin(name: str) -> Declaration | PluginProblem | None:
    """Load the plugin ``name``; return its declaration, or the problem if it cannot be used.

    Return None if no installed package registers that name.
    """
    found = plugin_entry_points().get(name, ())
    if not found:
        return None
    if len(found) > 1:
        # Two packages with one name: choosing one would make the output depend on the order of
        # installation.
        both = " and ".join(map(_distribution_name, found))
        return PluginProblem(name, f"{both} register this name", "uninstall one of them")
    try:
        message = _find_plugin_defect(name, declared := found[0].load())
        if not message:
            _read_values(name, declared)
    except PluginError as error:
        return error.problem
    except (Exception, SystemExit) as error:  # the plugin's code may raise anything
        message = f"{type(error).__name__}: {error}"
    if message:
        where = f"{found[0].value} of {_distribution_name(found[0])}"
        return PluginProblem(name, f"{where}: {message}", REPAIR)
    assert isinstance(declared, Declaration)
    return declared


def _read_values(name: str, declared: Declaration) -> None:
    """Read the values of the plugin ``name``, such as its versions, which its guard checks.

    Raises:
        PluginError: a value is invalid.
    """
    for module, attribute, _ in _declared_backends_and_verifiers(declared):
        target = plugin_object(name, declared, module, attribute)
        for member, kind in vars(type(target)).items():
            if isinstance(kind, property):
                getattr(target, member)


def plugin_owner(name: str) -> PluginOwner:
    """Return the owner of the plugin ``name``, which an installed package registers."""
    (found, *_) = plugin_entry_points()[name]
    return PluginOwner(name, _distribution_name(found))


def plugin_object(name: str, declared: Declaration, module: str, attribute: str) -> Any:
    """Return the guard of the object ``attribute`` in a module of the plugin ``name``.

    Its exceptions and invalid results are raised as ``PluginError``.

    Raises:
        PluginError: the module cannot be imported.
    """
    # Imported here, because most commands use no plugin.
    from parc.backends.plugin_guard import call_plugin, guarded
    from parc.backends.plugin_members import CHECKS

    owner = plugin_owner(name)
    target = call_plugin(
        owner, f"module {module}", lambda: getattr(declared.module(module), attribute)
    )
    protocols = [
        protocol
        for other, kind, protocol in _declared_backends_and_verifiers(declared)
        if (other, kind) == (module, attribute)
    ]
    # A backend that another one wraps is in a module of its own.
    # Verifiers have members with the names of those of engines, and other arguments.
    checks = CHECKS if attribute == BACKEND else {}
    return guarded(target, owner, (*(protocols or [Framework]), *optional_parts()), checks)


def shadowed_plugins(built_in: tuple[str, ...]) -> tuple[PluginProblem, ...]:
    """Return one problem per plugin that has the name of a built-in backend.

    PARC never uses such a plugin.
    """
    return tuple(
        PluginProblem(
            name,
            f"{' and '.join(map(_distribution_name, found))} and PARC itself declare this name",
            "give the plugin another name or uninstall it",
        )
        for name, found in sorted(plugin_entry_points().items())
        if name in built_in
    )


@cache
def plugin_entry_points() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of all plugins, by name and then by package.

    PARC calls this function only for names that are not built in, because importing
    ``importlib.metadata`` and reading the metadata of all packages takes tens of milliseconds.
    """
    from importlib import metadata

    found: dict[str, list[EntryPoint]] = {}
    for one in metadata.entry_points(group=GROUP):
        found.setdefault(one.name, []).append(one)
    return {name: tuple(sorted(some, key=_distribution_name)) for name, some in found.items()}


def _distribution_name(entry_point: EntryPoint) -> str:
    """Return the name and version of the package that registers ``entry_point``."""
    return (
        f"{entry_point.dist.name} {entry_point.dist.version}"
        if entry_point.dist
        else entry_point.value
    )


def _find_plugin_defect(name: str, declared: object) -> str:
    """Return the first defect of a loaded entry point; empty if the plugin is usable."""
    # Imported here, because most commands use no plugin.
    from parc.backends.value_types import find_type_defect

    if not isinstance(declared, Declaration):
        return f"it is a {type(declared).__name__}, must be a parc.backends.declaration.Declaration"
    if defect := find_type_defect(declared, Declaration, "DECLARATION is"):
        return defect
    if declared.name != name:
        return f"it declares the name {declared.name!r:.60}, the entry point is called {name!r:.60}"
    if not _NAME.fullmatch(name) or name in RESERVED:
        return f"{name!r:.80} is not a valid name: lower-case letters, digits, _ and -"
    if declared.default_for:
        return "default_for must be empty: only built-in backends are emitted by default"
    if not declared.training and not declared.serving:
        return "it declares neither a training nor a serving module"
    # One defect is enough for a message; the modules of the declaration are imported only here.
    return next(_missing_members(declared), "")


def _missing_members(declared: Declaration) -> Iterator[str]:
    """Yield one text per declared module whose required object is missing or incomplete."""
    for module, attribute, protocol in _declared_backends_and_verifiers(declared):
        target = getattr(declared.module(module), attribute, None)
        lacking = [one for one in protocol_members(protocol) if not hasattr(target, one)]
        if target is None:
            yield f"the module {module} has no {attribute}"
        elif isinstance(target, type):
            yield f"{attribute} of {module} is a class, must be an object: {target.__name__}()"
        elif lacking:
            yield f"{attribute} of {module} lacks {', '.join(lacking)} of {protocol.__name__}"
        elif attribute == BACKEND and (target.name != declared.name or not target.versions):
            yield f"BACKEND of {module} needs the name {declared.name!r} and at least one version"
        elif attribute == BACKEND:
            yield from _misspelled_members(target, f"{attribute} of {module}")
    for module, name, needed in _declared_linter_and_importers(declared):
        reader = getattr(declared.module(module), name, None)
        lacking = [one for one in needed if not hasattr(reader, one)]
        if lacking:
            yield f"{name} of {module} lacks {', '.join(lacking)}"


def _misspelled_members(target: object, label: str) -> Iterator[str]:
    """Yield one text per member whose name is almost that of a member of an optional part.

    Without this check, the part would count as absent, and the plan would silently lack it.
    """
    from difflib import get_close_matches

    optional = {name: part.__name__ for part in optional_parts() for name in protocol_members(part)}
    missing = [name for name in optional if not hasattr(target, name)]
    for name in dir(target):
        near = get_close_matches(name, missing, n=1, cutoff=0.9)
        if near and name not in optional:
            yield f"{label} has {name}; rename it, or write {near[0]} of {optional[near[0]]}"


@cache
def optional_parts() -> tuple[type[Any], ...]:
    """Return the protocols of optional parts of backends; ``isinstance`` tests for such a part."""
    return tuple(
        one
        for one in vars(base).values()
        if getattr(one, "_is_runtime_protocol", False) and one.__module__ == base.__name__
    )


def _declared_linter_and_importers(
    declared: Declaration,
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (module, object name, required members) of the declared linter and importers."""
    if declared.linter:
        yield declared.linter, "LINTER", ("recognizes", "lint")
    for module in declared.importers:
        yield module, "IMPORTERS", ("formats", "launch_lines")
    if declared.checkpoints:
        yield declared.checkpoints, "compare_checkpoints", ("__call__",)


def _declared_backends_and_verifiers(declared: Declaration) -> Iterator[tuple[str, str, type[Any]]]:
    """Yield (module, object name, protocol) of the declared backends and verifiers."""
    binds = declared.binds_layout
    if declared.training:
        yield declared.training, BACKEND, Framework if binds else Backend
    if declared.serving:
        yield declared.serving, BACKEND, Engine if binds else ServingBackend
    if declared.verifier:
        if declared.is_framework:
            yield declared.verifier, VERIFIER, FrameworkVerifier
        if declared.is_engine:
            yield declared.verifier, VERIFIER, EngineVerifier
        yield declared.verifier, VERIFIER, Verifier


def protocol_members(protocol: type[Any]) -> tuple[str, ...]:
    """Return the names of the public members of a protocol, sorted."""
    found = {
        name
        # Only protocols count: the MRO ends with ``Generic`` and ``object``, whose members are not
        # required.
        for parent in protocol.__mro__
        if getattr(parent, "_is_protocol", False)
        for name in (*vars(parent), *vars(parent).get("__annotations__", ()))
        if not name.startswith("_")
    }
    return tuple(sorted(found))
