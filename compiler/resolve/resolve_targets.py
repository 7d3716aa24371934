"""``emit`` and ``versions`` of the spec -> backends that exist, in supported versions."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.spec import Spec, TaskSpec


@dataclass(frozen=True, slots=True)
class Targets:
    """Backends to emit, the one that binds the layout, and their versions."""

    emit: tuple[str, ...]
    """Names without duplicates, sorted."""
    framework: str
    """Framework or engine that binds the layout; it need not be emitted."""
    versions: tuple[tuple[str, str], ...]
    """(backend, version) of the framework, of all in ``emit``, and of all that the spec names."""


def resolve_targets(spec: TaskSpec, sink: Sink) -> Targets | None:
    """Return the targets of ``spec``; None after an error.

    The framework is the only one in ``emit``; of a front and the framework that it starts, the
    latter. If ``emit`` names none, it is the first built-in one for the kind of job, because launch
    scripts and rank maps need a rank order.
    """
    from parc.backends.registry import default_targets

    found = len(sink.diagnostics)
    training = isinstance(spec, Spec)
    default = default_targets("train" if training else "serve")
    emit = default if spec.emit is None else spec.emit
    _check_emit(emit, default, sink)
    for name in spec.versions:
        _check_name(name, f"versions.{name}", sink)
    framework = _framework(training, emit, sink)
    targets = sorted({*emit, framework, *spec.versions})
    versions = [(name, version_of(name, spec.versions.get(name), sink)) for name in targets]
    supported = tuple((name, version) for name, version in versions if version is not None)
    if len(sink.diagnostics) > found or len(supported) < len(targets):
        return None
    return Targets(tuple(sorted(emit)), framework, supported)


def _framework(training: bool, emit: tuple[str, ...], sink: Sink) -> str:
    """Return the framework or engine that binds the layout; report targets that cannot be used."""
    from parc.backends.declaration import Declaration
    from parc.backends.registry import Role, built_in, find, has_role, starts

    found = ((name, find(name)) for name in emit)
    declared = {name: one for name, one in found if isinstance(one, Declaration)}
    for name, one in declared.items():
        if not has_role(one, "train" if training else "serve"):
            _report_wrong_kind(training, name, emit, sink)
    role: Role = "framework" if training else "engine"
    binding = [name for name, one in declared.items() if has_role(one, role)]
    fronts = {front for front in binding for name in binding if starts(front, name)}
    binding = [name for name in binding if name not in fronts]
    for name in binding[1:]:
        finding = Finding(
            f"{binding[0]} and {name} cannot share one plan: their rank orders differ",
            label="a second framework",
            help="compile once per framework: parc compile --emit",
            fix=f"remove emit[{emit.index(name)}]",
            causes=(Cause(f"emit[{emit.index(binding[0])}]", "the first framework"),),
        )
        sink.report("X22", finding, at=f"emit[{emit.index(name)}]")
    return binding[0] if binding else built_in(role)[0].name


def _report_wrong_kind(training: bool, name: str, emit: tuple[str, ...], sink: Sink) -> None:
    """Report X21 for a target that has no files for this kind of job."""
    from parc.backends.registry import installed

    kind = "training" if training else "serving"
    valid = sorted(one.name for one in installed("train" if training else "serve"))
    finding = Finding(
        f"{name} does not support {kind} jobs",
        label=f"not a target for {kind} jobs: {name}",
        help=f"valid values: {', '.join(valid)}",
        fix=f"remove emit[{emit.index(name)}]" if len(emit) > 1 else "",
        causes=(Cause("job.kind", "the kind of job is set here"),),
    )
    sink.report("X21", finding, at=f"emit[{emit.index(name)}]")


def _check_emit(emit: tuple[str, ...], default: tuple[str, ...], sink: Sink) -> None:
    """Report an empty list (X09), duplicates (X17) and unusable names (X16, X23)."""
    if not emit:
        fix = f"emit: [{', '.join(default)}]"
        sink.report("X09", Finding("emit is empty", "needs at least one", fix=fix), at="emit")
    first: dict[str, str] = {}
    for index, name in enumerate(emit):
        path = f"emit[{index}]"
        if name in first:
            cause = Cause(first[name], "first listed here")
            finding = Finding(f"{name} is listed twice", fix=f"remove {path}", causes=(cause,))
            sink.report("X17", finding, at=path)
        elif _check_name(name, path, sink):
            first[name] = path


def _check_name(name: str, path: str, sink: Sink) -> bool:
    """Report X16 for an unknown backend and X23 for a plugin with a defect; True if usable."""
    from parc.backends.declaration import Declaration
    from parc.backends.registry import all_names, find

    found = find(name)
    if isinstance(found, Declaration):
        return True
    if found is not None:
        sink.report("X23", found.finding(), at=path)
        return False
    valid = all_names()
    near = did_you_mean(name, valid)
    finding = Finding(
        f"there is no target called {name[:60]}",
        label=f"did you mean {' or '.join(near)}?" if near else "no such target",
        help=f"valid values: {', '.join(valid)}",
        fix=f"{path}: {near[0]}" if near and path.startswith("emit") else "",
    )
    sink.report("X16", finding, at=path)
    return False


def version_of(name: str, asked: str | None, sink: Sink) -> str | None:
    """Return the supported version that ``asked`` (0.19, 0.19.2) belongs to, or the default.

    None: there is no usable backend ``name``, or X18 because it has no such version.
    """
    from parc.backends.registry import versions_of

    try:
        supported, default = versions_of(name)
    except KeyError:
        return None
    if asked is None:
        return default
    fits = [one for one in supported if asked == one or asked.startswith(f"{one}.")]
    if fits:
        return max(fits, key=len)
    finding = Finding(
        f"{name} {asked[:60]} is not supported",
        label="no such version in the flag table",
        help=f"valid values: {', '.join(supported)}",
        fix=f'versions.{name}: "{default}"',
    )
    sink.report("X18", finding, at=f"versions.{name}")
    return None
