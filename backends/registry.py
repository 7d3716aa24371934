"""Look-up of backends by name and role: built-in backends, and backends of installed packages.

Modules are imported on first use, and entry points are read only to list all names or to find one
that is not built in, so that a built-in name never depends on which packages are installed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any, Literal, cast

from parc.backends.base import Backend, Engine, Framework, ServingBackend
from parc.backends.built_in import BUILT_IN
from parc.backends.declaration import Declaration, JobKind, WrappedFramework
from parc.backends.plugin_error import PluginProblem
from parc.backends.plugins import (
    BACKEND,
    VERIFIER,
    load_plugin,
    plugin_names,
    plugin_object,
    plugin_owner,
)
from parc.backends.verifier import Verifier
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Problem

Role = Literal["train", "serve", "framework", "engine"]

WITHOUT_EFFECT = "without_effect.yaml"
"""File in the package of a backend with the fields of a spec that the backend cannot use."""
_BY_NAME = {one.name: one for one in BUILT_IN}


def find_backend_declaration(name: str) -> Declaration | PluginProblem | None:
    """Return the declaration of the backend ``name``; None if the name is unknown.

    For a plugin that cannot be used, return the problem with the plugin.
    """
    # Built-in names win, so that no plugin can replace a built-in backend.
    return _BY_NAME.get(name) or load_plugin(name)


def backend_declaration(name: str) -> Declaration:
    """Return the declaration of the backend ``name``.

    Raises:
        KeyError: no usable backend has that name.
    """
    found = find_backend_declaration(name)
    if not isinstance(found, Declaration):
        raise KeyError(name)
    return found


def is_built_in(name: str) -> bool:
    """Return True if the backend ``name`` is a part of PARC, and no plugin."""
    return name in _BY_NAME


def all_backend_names() -> tuple[str, ...]:
    """Return the sorted names of all built-in backends and plugins, usable or not."""
    return tuple(sorted({*_BY_NAME, *plugin_names()}))


def built_in_backends(role: Role) -> tuple[Declaration, ...]:
    """Return the declarations of the built-in backends with ``role``, in their fixed order."""
    return tuple(one for one in BUILT_IN if backend_has_role(one, role))


def installed_backends(role: Role) -> tuple[Declaration, ...]:
    """Return the declarations of all usable backends with ``role``: built-in ones, then plugins."""
    return tuple(one for one in all_declarations() if backend_has_role(one, role))


def all_declarations() -> tuple[Declaration, ...]:
    """Return the declarations of all usable backends: built-in ones, then plugins by name."""
    found = [load_plugin(name) for name in plugin_names() if name not in _BY_NAME]
    return (*BUILT_IN, *(one for one in found if isinstance(one, Declaration)))


def backend_has_role(declaration: Declaration, role: Role) -> bool:
    """Return True if the backend of ``declaration`` has ``role``.

    The roles "train" and "serve" mean that the backend emits files for training or serving jobs;
    "framework" and "engine" mean that it also determines the layout of these jobs.
    """
    roles = {
        "train": bool(declaration.training),
        "serve": bool(declaration.serving),
        "framework": declaration.is_framework,
        "engine": declaration.is_engine,
    }
    return roles[role]


def default_targets(kind: JobKind) -> tuple[str, ...]:
    """Return the names of the backends that a spec without ``emit`` uses, sorted."""
    # Plugins are left out: installing a package must not change the output of existing specs.
    return tuple(sorted(one.name for one in BUILT_IN if kind in one.default_for))


def backend(name: str) -> Backend:
    """Return the training backend ``name``.

    Raises:
        KeyError: no training backend has that name.
    """
    return cast(Backend, _load_backend(name, backend_declaration(name).training))


def framework(name: str) -> Framework:
    """Return the framework ``name``.

    Raises:
        KeyError: no framework has that name.
    """
    if not backend_declaration(name).is_framework:
        raise KeyError(name)
    return cast(Framework, backend(name))


def serving_backend(name: str) -> ServingBackend:
    """Return the serving backend ``name``.

    Raises:
        KeyError: no serving backend has that name.
    """
    return cast(ServingBackend, _load_backend(name, backend_declaration(name).serving))


def engine(name: str) -> Engine:
    """Return the engine ``name``.

    Raises:
        KeyError: no engine has that name.
    """
    if not backend_declaration(name).is_engine:
        raise KeyError(name)
    return cast(Engine, serving_backend(name))


def fields_without_effect(name: str) -> dict[str, str]:
    """Return spec field -> reason why the backend ``name`` cannot use the field.

    The file ``WITHOUT_EFFECT`` in the backend's package contains these rows; the result is
    empty if there is no such file.

    Raises:
        KeyError: no usable backend has that name.
    """
    package = import_module(backend_declaration(name).package)
    if name in _BY_NAME:
        return _read_fields_without_effect(package)
    from parc.backends.plugin_guard import call_plugin

    def read() -> dict[str, str]:
        return _read_fields_without_effect(package)

    found: dict[str, str] = call_plugin(plugin_owner(name), WITHOUT_EFFECT, read)
    return found


def _read_fields_without_effect(package: ModuleType) -> dict[str, str]:
    """Return the rows of the file ``without_effect.yaml`` in ``package``; empty without the file.

    Raises:
        ValueError: the file is not a mapping of texts.
    """
    if not hasattr(package, "__path__"):  # a plugin that is a single module has no data files
        return {}
    file = files(package) / WITHOUT_EFFECT
    rows = parse_table(file.read_text("utf-8")) if file.is_file() else {}
    if not isinstance(rows, dict) or not all(isinstance(one, str) for one in rows.values()):
        raise ValueError("the file must contain lines FIELD: REASON")
    return dict(rows)


def supported_versions(name: str) -> tuple[tuple[str, ...], str]:
    """Return (supported versions from oldest to newest, default version) of the target ``name``.

    Raises:
        KeyError: no backend has that name.
    """
    found = backend_declaration(name)
    target = cast(Backend, _load_backend(name, found.training or found.serving))
    # A framework may support a version that is not released yet, so the newest is not always the
    # default.
    return target.versions, str(getattr(target, "default_version", target.versions[-1]))


def verifier_of_backend(name: str) -> Verifier | None:
    """Return the verifier of the backend ``name``.

    None if the backend declares none, or if no usable backend has that name: the plugin that wrote
    the files may not be installed.
    """
    found = find_backend_declaration(name)
    if not isinstance(found, Declaration):
        return None
    return cast(Verifier, _load(name, found.verifier, VERIFIER)) if found.verifier else None


def reader_of_backend(declared: Declaration, module: str, attribute: str) -> Any:
    """Return the object ``attribute`` in a module of a backend: its linter, importers and so on.

    Functions of a plugin raise ``PluginError`` for exceptions.
    """
    found = getattr(declared.module(module), attribute)
    if declared.name in _BY_NAME:
        return found
    from parc.backends.plugin_guard import guard_callables

    return guard_callables(found, plugin_owner(declared.name), attribute)


def wrapped_framework_verifiers(name: str) -> dict[str, Verifier]:
    """Return framework -> verifier, for the frameworks that the backend ``name`` wraps.

    The verifier checks the files that both backends emit together, such as those of Accelerate and
    DeepSpeed.
    """
    found = backend_declaration(name)
    verified = ((one.framework, one.verifier) for one in found.wrapped_frameworks if one.verifier)
    return {one: cast(Verifier, _load(name, module, VERIFIER)) for one, module in verified}


def launching_wrapper(problem: Problem) -> str:
    """Return the backend in ``emit`` that starts the job's framework; empty if there is none.

    Such a backend is called a wrapper: for example, Accelerate starts DeepSpeed.
    """
    wraps = (one for one in problem.emit if _find_wrapped_framework(one, problem.framework))
    return next(wraps, "")


def wrapped_framework(wrapper: str, name: str) -> Framework:
    """Return the framework ``name``, limited to what the backend ``wrapper`` supports.

    Raises:
        KeyError: ``wrapper`` cannot start the program of that framework.
    """
    found = _find_wrapped_framework(wrapper, name)
    if found is None:
        raise KeyError((wrapper, name))
    return cast(Framework, _load_backend(wrapper, found.backend))


def framework_of_problem(problem: Problem) -> Framework:
    """Return the framework that determines the layout of ``problem``.

    If another backend, a wrapper, starts the framework's program, the result is limited to what the
    wrapper supports.
    """
    name, wrapper = problem.framework, launching_wrapper(problem)
    return wrapped_framework(wrapper, name) if wrapper else framework(name)


def can_wrap(wrapper: str, name: str) -> bool:
    """Return True if the backend ``wrapper`` can start the program of the framework ``name``."""
    return _find_wrapped_framework(wrapper, name) is not None


def _find_wrapped_framework(wrapper: str, name: str) -> WrappedFramework | None:
    """Return the entry for the framework ``name`` in the declaration of ``wrapper``, or None."""
    return next(
        (one for one in backend_declaration(wrapper).wrapped_frameworks if one.framework == name),
        None,
    )


def _load_backend(name: str, module: str) -> object:
    """Import ``module`` of the backend ``name`` and return its object ``BACKEND``.

    Raises:
        KeyError: ``module`` is empty, that is, not declared.
    """
    if not module:
        raise KeyError(name)
    return _load(name, module, BACKEND)


def _load(name: str, module: str, attribute: str) -> object:
    """Return the object ``attribute`` in a module of the backend ``name``.

    The object of a plugin has a guard, whose members raise ``PluginError`` for defects.
    """
    declared = backend_declaration(name)
    if name in _BY_NAME:
        return getattr(declared.module(module), attribute)
    return plugin_object(name, declared, module, attribute)
