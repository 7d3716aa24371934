"""Backends by name and role: the built-in ones, and those of installed packages.

Start-up stays cheap: a declaration is data, its modules are imported on first use, and entry points
are scanned only for a name that is not built in, or to list all names (``parc backends``, and the
valid values of a diagnostic). A built-in name therefore never depends on what is installed.
"""

from __future__ import annotations

from typing import Literal, cast

from parc.backends.base import Backend, Engine, Framework, ServingBackend
from parc.backends.declaration import Declaration, Front, JobKind
from parc.backends.plugins import PluginProblem, plugin, plugin_names
from parc.backends.verifier import Verifier
from parc.compiler.ir import Problem

Role = Literal["train", "serve", "framework", "engine"]

BUILT_IN: tuple[Declaration, ...] = (
    Declaration(
        name="megatron",
        package="parc.backends.megatron",
        training=".backend",
        linter=".launch_files.lint",
        importers=(".launch_files.import_arguments",),
        checkpoints=".checkpoints",
        binds_layout=True,
        default_for=("train",),
        verifier=".verify",
    ),
    Declaration(
        name="deepspeed",
        package="parc.backends.deepspeed",
        training=".backend",
        linter=".launch_files.lint",
        importers=(".launch_files.import_config",),
        launchers=("deepspeed",),
        binds_layout=True,
        verifier=".verify",
    ),
    Declaration(
        name="fsdp",
        package="parc.backends.fsdp",
        training=".backend",
        binds_layout=True,
        verifier=".verify",
    ),
    Declaration(
        name="torchtitan",
        package="parc.backends.torchtitan",
        training=".backend",
        binds_layout=True,
        verifier=".verify",
    ),
    Declaration(
        name="accelerate",
        package="parc.backends.accelerate",
        training=".backend",
        launchers=("accelerate",),
        binds_layout=True,
        verifier=".verify",
        fronts=(Front("deepspeed", ".plugin", ".verify_plugin"),),
    ),
    Declaration(
        name="vllm",
        package="parc.backends.vllm",
        serving=".backend",
        linter=".launch_files.lint",
        importers=(".launch_files.import_command",),
        binds_layout=True,
        default_for=("serve",),
        verifier=".verify",
    ),
    Declaration(
        name="kubernetes",
        package="parc.backends.kubernetes",
        training=".backend",
        serving=".backend",
        verifier=".verify",
    ),
    Declaration(
        name="preflight",
        package="parc.backends.preflight",
        training=".backend",
        default_for=("train",),
        verifier=".verify",
    ),
    Declaration(
        name="rankmap",
        package="parc.backends.rankmap",
        training=".backend",
        serving=".backend",
        default_for=("train", "serve"),
        verifier=".verify",
    ),
    Declaration(
        name="ray",
        package="parc.backends.ray",
        serving=".backend",
        verifier=".verify",
    ),
    Declaration(
        name="slurm",
        package="parc.backends.slurm",
        training=".backend",
        serving=".backend",
        default_for=("train",),
        verifier=".verify",
    ),
    Declaration(
        name="torchrun",
        package="parc.backends.torchrun",
        training=".backend",
        launchers=("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        default_for=("train",),
        verifier=".verify",
    ),
)
"""Frameworks and engines first, in the order of the README's matrix. If a spec emits no framework,
the first one binds the layout of its kind of job."""

_BY_NAME = {one.name: one for one in BUILT_IN}


def find(name: str) -> Declaration | PluginProblem | None:
    """Return the declaration of ``name``; why its plugin cannot be used; None if unknown."""
    return _BY_NAME.get(name) or plugin(name)


def declaration(name: str) -> Declaration:
    """Return the declaration of ``name``; KeyError if there is no usable backend of that name."""
    found = find(name)
    if not isinstance(found, Declaration):
        raise KeyError(name)
    return found


def all_names() -> tuple[str, ...]:
    """Return the names of all built-in and installed backends, sorted; usable or not."""
    return tuple(sorted({*_BY_NAME, *plugin_names()}))


def built_in(role: Role) -> tuple[Declaration, ...]:
    """Return the built-in backends with ``role``, in the order of ``BUILT_IN``."""
    return tuple(one for one in BUILT_IN if has_role(one, role))


def installed(role: Role) -> tuple[Declaration, ...]:
    """Return ``built_in(role)``, then the usable plugins with ``role``, sorted by name."""
    return tuple(one for one in all_declared() if has_role(one, role))


def all_declared() -> tuple[Declaration, ...]:
    """Return the built-in backends in the order of ``BUILT_IN``, then usable plugins by name."""
    found = [plugin(name) for name in plugin_names() if name not in _BY_NAME]
    return (*BUILT_IN, *(one for one in found if isinstance(one, Declaration)))


def has_role(one: Declaration, role: Role) -> bool:
    """Return True if ``one`` emits for jobs of a kind, or binds their layout."""
    roles = {
        "train": bool(one.training),
        "serve": bool(one.serving),
        "framework": one.is_framework,
        "engine": one.is_engine,
    }
    return roles[role]


def default_targets(kind: JobKind) -> tuple[str, ...]:
    """Return the names that are emitted if the spec has no ``emit``, sorted."""
    return tuple(sorted(one.name for one in BUILT_IN if kind in one.default_for))


def backend(name: str) -> Backend:
    """Return the training backend ``name``; KeyError if there is none."""
    return cast(Backend, _load(name, declaration(name).training))


def framework(name: str) -> Framework:
    """Return the framework ``name``; KeyError if there is none."""
    if not declaration(name).is_framework:
        raise KeyError(name)
    return cast(Framework, backend(name))


def serving_backend(name: str) -> ServingBackend:
    """Return the serving backend ``name``; KeyError if there is none."""
    return cast(ServingBackend, _load(name, declaration(name).serving))


def engine(name: str) -> Engine:
    """Return the engine ``name``; KeyError if there is none."""
    if not declaration(name).is_engine:
        raise KeyError(name)
    return cast(Engine, serving_backend(name))


def versions_of(name: str) -> tuple[tuple[str, ...], str]:
    """Return the versions of ``name``, oldest first, and the default; KeyError if unknown."""
    found = declaration(name)
    target = cast(Backend, _load(name, found.training or found.serving))
    return target.versions, str(getattr(target, "default_version", target.versions[-1]))


def verifier(name: str) -> Verifier | None:
    """Return the verifier of ``name``; None if it declares none. KeyError if unknown."""
    found = declaration(name)
    return cast(Verifier, found.module(found.verifier).VERIFIER) if found.verifier else None


def front_verifiers(name: str) -> dict[str, Verifier]:
    """Return framework -> verifier of the files that ``name`` and the framework emit together."""
    found = declaration(name)
    verified = ((one.framework, one.verifier) for one in found.fronts if one.verifier)
    return {one: cast(Verifier, found.module(module).VERIFIER) for one, module in verified}


def fronts() -> tuple[tuple[str, str], ...]:
    """Return (front, framework) of the built-in backends."""
    return tuple((one.name, front.framework) for one in BUILT_IN for front in one.fronts)


def front_of(problem: Problem) -> str:
    """Return the emitted backend that starts the framework of ``problem``; empty: none does."""
    return next((one for one in problem.emit if _front(one, problem.framework)), "")


def behind_front(front: str, name: str) -> Framework:
    """Return the framework ``name`` as ``front`` can use it; KeyError for any other pair."""
    found = _front(front, name)
    if found is None:
        raise KeyError((front, name))
    return cast(Framework, _load(front, found.backend))


def framework_of(problem: Problem) -> Framework:
    """Return the framework that binds the layout of ``problem``, with the limits of its front."""
    name, front = problem.framework, front_of(problem)
    return behind_front(front, name) if front else framework(name)


def starts(front: str, name: str) -> bool:
    """Return True if the backend ``front`` can start the framework ``name``."""
    return _front(front, name) is not None


def _front(front: str, name: str) -> Front | None:
    return next((one for one in declaration(front).fronts if one.framework == name), None)


def _load(name: str, module: str) -> object:
    """Return ``BACKEND`` of a module of ``name``; KeyError if no module is declared."""
    if not module:
        raise KeyError(name)
    return declaration(name).module(module).BACKEND
