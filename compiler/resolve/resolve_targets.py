"""``emit`` and ``versions`` of the spec -> backends that exist, with versions that they know."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.spec import Spec, TaskSpec


@dataclass(frozen=True, slots=True)
class Targets:
    """What is emitted, and for which versions."""

    emit: tuple[str, ...]
    """Sorted, each once."""
    framework: str
    versions: tuple[tuple[str, str], ...]
    """(backend, version) of the framework, of all in ``emit``, and of all that the spec names."""


DEFAULT_EMIT = {
    "train": ("megatron", "preflight", "rankmap", "slurm", "torchrun"),
    "serve": ("rankmap", "vllm"),
}
"""What is emitted where the spec does not say."""


def resolve_targets(spec: TaskSpec, sink: Sink) -> Targets | None:
    """The targets; None after an error.

    The framework is the one of ``FRAMEWORKS`` in ``emit``; of a front and what it starts
    (``FRONTS``), the latter. Without one it is the first of all: launch scripts and rank maps need
    a rank order, and theirs is that framework's.
    """
    found = len(sink.diagnostics)
    kind = "train" if isinstance(spec, Spec) else "serve"
    emit = DEFAULT_EMIT[kind] if spec.emit is None else spec.emit
    _check_emit(emit, DEFAULT_EMIT[kind], sink)
    for name in spec.versions:
        _check_name(name, f"versions.{name}", sink)
    framework = _framework(kind, emit, sink)
    targets = sorted({*emit, framework, *spec.versions})
    versions = [(name, version_of(name, spec.versions.get(name), sink)) for name in targets]
    known = tuple((name, version) for name, version in versions if version is not None)
    if len(sink.diagnostics) > found or len(known) < len(targets):
        return None
    return Targets(tuple(sorted(emit)), framework, known)


def _framework(kind: str, emit: tuple[str, ...], sink: Sink) -> str:
    """The one framework of ``emit`` that does ``kind`` of job, or the first of all."""
    from parc.backends.registry import BUILT_IN, ENGINES, FRAMEWORKS, FRONTS, SERVING, TRAINING

    does = TRAINING if kind == "train" else SERVING
    for name in (one for one in emit if one in BUILT_IN and one not in does):
        other = "serves models" if kind == "train" else "trains models"
        finding = Finding(
            f"{name} {other}, and the job does not",
            label=f"not a target of this kind of job: {name}",
            help=f"legal: {', '.join(sorted(does))}",
            fix=f"remove emit[{emit.index(name)}]" if len(emit) > 1 else "",
            causes=(Cause("job.kind", "the kind of job is said here"),),
        )
        sink.report("X21", finding, at=f"emit[{emit.index(name)}]")
    bind = FRAMEWORKS if kind == "train" else ENGINES
    chosen = [name for name in emit if name in bind]
    fronts = [front for front, name in FRONTS if front in chosen and name in chosen]
    chosen = [name for name in chosen if name not in fronts]
    for name in dict.fromkeys(chosen[1:]):
        if name == chosen[0]:
            continue
        finding = Finding(
            f"{chosen[0]} and {name} cannot run one plan: each has a rank order of its own",
            label="a second framework",
            help="compile once for each: parc compile --emit",
            fix=f"remove emit[{emit.index(name)}]",
            causes=(Cause(f"emit[{emit.index(chosen[0])}]", "the first framework"),),
        )
        sink.report("X22", finding, at=f"emit[{emit.index(name)}]")
    return chosen[0] if chosen else bind[0]


def _check_emit(emit: tuple[str, ...], default: tuple[str, ...], sink: Sink) -> None:
    if not emit:
        fix = f"emit: [{', '.join(default)}]"
        sink.report("X09", Finding("emit names no target", "one at least", fix=fix), at="emit")
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
    """Report X16 where there is no backend called ``name``."""
    from parc.backends.registry import BUILT_IN

    if name in BUILT_IN:
        return True
    near = did_you_mean(name, BUILT_IN)
    finding = Finding(
        f"there is no target called {name[:60]}",
        label=f"did you mean {' or '.join(near)}?" if near else "no such target",
        help=f"legal: {', '.join(sorted(BUILT_IN))}",
        fix=f"{path}: {near[0]}" if near and path.startswith("emit") else "",
    )
    sink.report("X16", finding, at=path)
    return False


def version_of(name: str, asked: str | None, sink: Sink) -> str | None:
    """The known version that ``asked`` (0.19, 0.19.2) belongs to; the default without one.

    None: there is no backend ``name``, or X18, for it knows no such version.
    """
    from parc.backends.registry import BUILT_IN, backend

    if name not in BUILT_IN:
        return None
    known = backend(name).versions
    default = str(getattr(backend(name), "default_version", known[-1]))
    if asked is None:
        return default
    fits = [one for one in known if asked == one or asked.startswith(f"{one}.")]
    if fits:
        return max(fits, key=len)
    finding = Finding(
        f"{name} {asked[:60]} is not known",
        label="no such version in the flag table",
        help=f"known: {', '.join(known)}",
        fix=f'versions.{name}: "{default}"',
    )
    sink.report("X18", finding, at=f"versions.{name}")
    return None
