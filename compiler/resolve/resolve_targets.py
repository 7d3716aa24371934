"""Resolve ``emit`` and ``versions`` of a spec to backends that exist, in supported versions."""

from __future__ import annotations

from collections.abc import Iterable

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.ir.cluster import Reserved
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.spec import Spec, TaskSpec


@frozen
class Targets:
    """Backends whose files are emitted, the framework of the layout, and their versions."""

    emit: tuple[str, ...]
    """Names of the backends whose files are emitted, sorted."""
    framework: str
    """Framework or engine whose rules the layout must satisfy. Its files need not be emitted."""
    versions: tuple[tuple[str, str], ...]
    """(backend, version) of the framework, of each backend in ``emit``, and of each backend for
    which the spec sets a version."""


def resolve_targets(spec: TaskSpec, sink: Sink) -> Targets | None:
    """Return the targets of ``spec``; None after an error.

    The framework of the targets is the framework that ``emit`` lists. If ``emit`` lists none, the
    first built-in framework for the kind of job is used, because launch scripts need a rank order.
    A launcher that starts the framework, such as accelerate for deepspeed, does not count as a
    second framework.
    """
    from parc.backends.registry import default_targets

    found = len(sink.diagnostics)
    training = isinstance(spec, Spec)
    default = default_targets("train" if training else "serve")
    emit = default if spec.emit is None else spec.emit
    check_emit(emit, default, sink)
    for name in spec.versions:
        _check_target_name(name, f"versions.{name}", sink)
    framework = find_framework(training, emit, sink)
    targets = sorted({*emit, framework, *spec.versions})
    versions = [(name, resolve_version(name, spec.versions.get(name), sink)) for name in targets]
    supported = tuple((name, version) for name, version in versions if version is not None)
    # Each error of emit and versions is reported before the compile stops.
    if len(sink.diagnostics) > found or len(supported) < len(targets):
        return None
    return Targets(tuple(sorted(emit)), framework, supported)


def reserved_by(emit: Iterable[str]) -> Reserved:
    """Return what the launchers in ``emit`` reserve for a job; the largest part counts."""
    from parc.backends.registry import backend_declaration

    declared = [backend_declaration(name) for name in emit]
    launchers = {one.reserves for one in declared if one.needs_framework}
    if "hosts" in launchers:
        return "hosts"
    return "gpus" if launchers == {"gpus"} else None


def find_framework(training: bool, emit: tuple[str, ...], sink: Sink) -> str:
    """Return the name of the framework or engine whose rules the layout must satisfy.

    Report targets for another kind of job (X21), and a second framework (X22).
    """
    from parc.backends.declaration import Declaration
    from parc.backends.registry import (
        Role,
        backend_has_role,
        built_in_backends,
        can_wrap,
        find_backend_declaration,
    )

    found = ((name, find_backend_declaration(name)) for name in emit)
    declared = {name: one for name, one in found if isinstance(one, Declaration)}
    for name, one in declared.items():
        if not backend_has_role(one, "train" if training else "serve"):
            _report_wrong_job_kind(training, name, emit, sink)
    role: Role = "framework" if training else "engine"
    binding = [name for name, one in declared.items() if backend_has_role(one, role)]
    wrappers = {one for one in binding for name in binding if can_wrap(one, name)}
    binding = [name for name in binding if name not in wrappers]
    for name in binding[1:]:
        finding = Finding(
            f"{binding[0]} and {name} are both frameworks, and a plan has one framework",
            label=f"{name} is a second framework",
            help="run parc compile --emit once per framework",
            fix=f"remove emit[{emit.index(name)}]",
            causes=(
                Cause(
                    f"emit[{emit.index(binding[0])}]",
                    f"{binding[0]} is already the framework of this plan",
                ),
            ),
        )
        sink.report("X22", finding, at=f"emit[{emit.index(name)}]")
    return binding[0] if binding else built_in_backends(role)[0].name


def _report_wrong_job_kind(training: bool, name: str, emit: tuple[str, ...], sink: Sink) -> None:
    """Report that the target ``name`` does not support this kind of job (X21)."""
    from parc.backends.registry import installed_backends

    kind = "training" if training else "serving"
    valid = sorted(one.name for one in installed_backends("train" if training else "serve"))
    finding = Finding(
        f"{name} does not support {kind} jobs",
        label=f"{name} emits no files for {kind} jobs",
        help=f"valid values: {', '.join(valid)}",
        fix=f"remove emit[{emit.index(name)}]" if len(emit) > 1 else "",
        causes=(Cause("job.kind", "the kind of job is set here"),),
    )
    sink.report("X21", finding, at=f"emit[{emit.index(name)}]")


def check_emit(emit: tuple[str, ...], default: tuple[str, ...], sink: Sink) -> None:
    """Report an empty ``emit`` (X09), a duplicate target (X17), or an unusable one (X16, X23)."""
    if not emit:
        fix = f"emit: [{', '.join(default)}]"
        sink.report(
            "X09",
            Finding(
                "emit is empty",
                "emit must name at least one target",
                help="name the framework of your program; parc import leaves emit empty if it does "
                "not recognize the framework",
                fix=fix,
            ),
            at="emit",
        )
    first: dict[str, str] = {}
    for index, name in enumerate(emit):
        path = f"emit[{index}]"
        if name in first:
            cause = Cause(first[name], f"{name} is listed first here")
            finding = Finding(f"emit lists {name} twice", fix=f"remove {path}", causes=(cause,))
            sink.report("X17", finding, at=path)
        elif _check_target_name(name, path, sink):
            first[name] = path


def _check_target_name(name: str, path: str, sink: Sink) -> bool:
    """Return True if the backend ``name`` can be used.

    Otherwise it is reported as an unknown backend (X16) or a defective plugin (X23).
    """
    from parc.backends.declaration import Declaration
    from parc.backends.registry import all_backend_names, find_backend_declaration

    found = find_backend_declaration(name)
    if isinstance(found, Declaration):
        return True
    if found is not None:
        sink.report("X23", found.finding(), at=path)
        return False
    valid = all_backend_names()
    near = did_you_mean(name, valid)
    finding = Finding(
        f"unknown target {name[:60]}",
        label=f"did you mean {' or '.join(near)}?" if near else "no such target",
        help=f"valid values: {', '.join(valid)}",
        fix=f"{path}: {near[0]}" if near and path.startswith("emit") else "",
    )
    sink.report("X16", finding, at=path)
    return False


def resolve_version(name: str, requested: str | None, sink: Sink) -> str | None:
    """Return the supported version that ``requested`` belongs to: for 0.19.2, this is 0.19.

    If ``requested`` is None, return the default version of the backend ``name``. Return None if the
    backend is unknown or does not support the version (X18).
    """
    from parc.backends.registry import is_built_in, supported_versions

    try:
        supported, default = supported_versions(name)
    except KeyError:
        return None
    if requested is None:
        return default
    # The dot keeps 0.1 from matching 0.19.
    fits = [one for one in supported if requested == one or requested.startswith(f"{one}.")]
    if fits:
        return max(fits, key=len)
    finding = Finding(
        f"{name} version {requested[:60]} is not supported",
        label="PARC has no flag table for this version"
        if is_built_in(name)
        else "the plugin does not declare this version",
        help=f"valid values: {', '.join(supported)}",
        fix=f'versions.{name}: "{default}"',
    )
    sink.report("X18", finding, at=f"versions.{name}")
    return None
