"""Select the verifiers of a folder: built-in ones, and those of plugins that its lock names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from parc.backends.built_in import BUILT_IN
from parc.backends.declaration import Declaration
from parc.backends.registry import (
    backend_declaration,
    find_backend_declaration,
    verifier_of_backend,
    wrapped_framework_verifiers,
)
from parc.backends.verifier import EngineVerifier, FrameworkVerifier, Verifier
from parc.compiler.diagnostics import Finding, Sink, Span

UNVERIFIED = "A13"
"""Diagnostic code for files that no verifier has checked."""


def locked_versions(lock: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return target -> version, read from ``parc.lock``; empty if the lock has no versions."""
    versions = lock["decisions"].get("versions") if lock is not None else None
    return versions if isinstance(versions, dict) else {}


def load_verifiers(names: Collection[str], files: Iterable[str] = ()) -> dict[str, Verifier]:
    """Return backend -> verifier, for the backends ``names`` and for backends that own a file.

    ``files`` are the files in the folder. An empty ``names`` means that no lock lists the targets.
    In this case, all built-in verifiers are returned, because an emitted file may refer to a
    missing file of any backend. Frameworks come first, in the order of ``BUILT_IN``. Plugins that
    cannot be loaded are omitted.
    """
    # Modules of other verifiers are not imported: that would take half of the time of a check.
    wanted = {*names, *(file.partition("/")[0].partition(".")[0] for file in files)}
    built_in = [one.name for one in BUILT_IN if not names or one.name in wanted]
    known = {one.name for one in BUILT_IN}
    plugins = sorted(name for name in names if name not in known)
    usable = [name for name in plugins if isinstance(find_backend_declaration(name), Declaration)]
    # verifier() is None for a plugin that declares no verifier.
    found = ((name, verifier_of_backend(name)) for name in (*built_in, *usable))
    return {name: one for name, one in found if one is not None}


def framework_verifier(
    verifiers: Mapping[str, Verifier], artifacts: Mapping[str, str]
) -> FrameworkVerifier | None:
    """Return the verifier of the framework whose file is in ``artifacts``; None if there is none.

    A framework such as Accelerate can start another framework. If ``artifacts`` contains the files
    of both frameworks, the verifier of their combination is returned.
    """
    frameworks = {
        name: cast(FrameworkVerifier, one)
        for name, one in verifiers.items()
        if backend_declaration(name).is_framework and cast(FrameworkVerifier, one).file in artifacts
    }
    # The wrapper's own verifier cannot derive the groups, which the wrapped framework builds.
    for wrapper in frameworks:
        for name, one in wrapped_framework_verifiers(wrapper).items():
            if name in frameworks:
                return cast(FrameworkVerifier, one)
    return next(iter(frameworks.values()), None)


def engine_verifier(
    verifiers: Mapping[str, Verifier], artifacts: Mapping[str, str], names: Iterable[str]
) -> EngineVerifier | None:
    """Return the verifier of the serving engine whose launch file is in ``artifacts``.

    If no such file exists, return the verifier of the first engine in ``names``, or None if
    ``names`` contains no engine.
    """
    engines = {
        name: cast(EngineVerifier, one)
        for name, one in verifiers.items()
        if backend_declaration(name).is_engine
    }
    started = [one for one in engines.values() if one.file in artifacts]
    named = [engines[name] for name in names if name in engines]
    return next(iter((*started, *named)), None)


def report_unverified_targets(artifacts: Iterable[str], names: Iterable[str], sink: Sink) -> None:
    """Report each target in ``names`` whose files no verifier has checked (A13)."""
    files: dict[str, str] = {}
    for file in sorted(artifacts):
        files.setdefault(file.partition("/")[0].partition(".")[0], file)
    for name in sorted(set(names) & files.keys()):
        found = find_backend_declaration(name)
        if isinstance(found, Declaration) and found.verifier:
            continue
        if found is None:
            reason, fix = "no installed backend has this name", "install its plugin"
        elif isinstance(found, Declaration):
            reason, fix = "its plugin declares no verifier", "check its process groups by hand"
        else:
            reason, fix = found.message, found.fix
        finding = Finding(f"the files of {name} were not verified: {reason}", fix=fix)
        sink.report(UNVERIFIED, finding, span=Span(files[name], 1, 1))
