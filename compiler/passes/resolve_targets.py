"""``emit`` and ``versions`` of the spec -> backends that exist, with versions that they know."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.spec import Spec


@dataclass(frozen=True, slots=True)
class Targets:
    """What is emitted, and for which versions."""

    emit: tuple[str, ...]
    """Sorted, each once."""
    framework: str
    versions: tuple[tuple[str, str], ...]
    """(backend, version) of the framework, of all in ``emit``, and of all that the spec names."""


def resolve_targets(spec: Spec, sink: Sink) -> Targets | None:
    """The targets; None after an error.

    The framework is the first of ``FRAMEWORKS`` in ``emit``. Without one it is the first of all:
    launch scripts and rank maps need a rank order, and theirs is that framework's.
    """
    from parc.backends.registry import FRAMEWORKS

    _check_emit(spec.emit, sink)
    for name in spec.versions:
        _check_name(name, f"versions.{name}", sink)
    framework = next((name for name in FRAMEWORKS if name in spec.emit), FRAMEWORKS[0])
    targets = sorted({*spec.emit, framework, *spec.versions})
    versions = [(name, _version(name, spec.versions.get(name), sink)) for name in targets]
    known = tuple((name, version) for name, version in versions if version is not None)
    if len(known) < len(targets) or len(set(spec.emit)) < len(spec.emit):
        return None
    return Targets(tuple(sorted(spec.emit)), framework, known)


def _check_emit(emit: tuple[str, ...], sink: Sink) -> None:
    first: dict[str, str] = {}
    for index, name in enumerate(emit):
        path = f"emit[{index}]"
        if name in first:
            cause = Cause(first[name], "first listed here")
            sink.report("X17", Finding(f"{name} is listed twice", causes=(cause,)), at=path)
        elif _check_name(name, path, sink):
            first[name] = path


def _check_name(name: str, path: str, sink: Sink) -> bool:
    """Report X16 where there is no backend called ``name``."""
    from parc.backends.registry import BUILT_IN

    if name in BUILT_IN:
        return True
    near = did_you_mean(name, BUILT_IN)
    finding = Finding(
        f"there is no target called {name[:60]}",
        label=f"did you mean {' or '.join(near)}?" if near else "no such target",
        help=f"legal: {', '.join(sorted(BUILT_IN))}",
    )
    sink.report("X16", finding, at=path)
    return False


def _version(name: str, asked: str | None, sink: Sink) -> str | None:
    """The known version that ``asked`` (0.19, 0.19.2) belongs to; the default without one."""
    from parc.backends.registry import BUILT_IN, backend

    if name not in BUILT_IN:
        return None
    known = backend(name).versions
    default = str(getattr(backend(name), "default_version", known[-1]))
    if asked is None:
        return default
    for version in known:
        if asked == version or asked.startswith(f"{version}."):
            return version
    finding = Finding(
        f"{name} {asked[:60]} is not known",
        label="no such version in the flag table",
        help=f"known: {', '.join(known)}",
        fix=f'versions.{name}: "{default}"',
    )
    sink.report("X18", finding, at=f"versions.{name}")
    return None
