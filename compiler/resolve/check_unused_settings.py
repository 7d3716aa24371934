"""Report settings that no target uses, and launchers whose framework is not emitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir.field_paths import is_path_in_fields
from parc.compiler.resolve.resolve_targets import Targets
from parc.compiler.spec.fields_without_effect import UNUSED_IN_SERVICES
from parc.compiler.spec.layout_spec import OffloadSpec
from parc.compiler.spec.spec import Spec

if TYPE_CHECKING:
    # pydantic builds the models of serving on import, which takes 1 % of a command
    from parc.compiler.spec.service_spec import ServingSpec

    AnySpec = Spec | ServingSpec


def check_unused_settings(
    spec: AnySpec, targets: Targets, sink: Sink, default_program: str = ""
) -> None:
    """Report settings that have no effect, and launchers that cannot start their program.

    E13: no target uses a launch setting. E14: the framework or engine cannot use a setting. E15: a
    launcher would start ``default_program``, the program of the framework, but no target writes the
    arguments of this program.
    """
    _check_launch(spec, targets, sink)
    _check_versions(spec, targets, sink)
    _check_fields_without_effect(spec, targets, sink)
    _check_nvme_path(spec, sink)
    _check_context_groups(spec, sink)
    if targets.framework not in targets.emit and not _has_own_program(spec, default_program):
        _check_launchers(targets, sink)


def paths_of_set_fields(
    model: BaseModel, above: str = "", *, only_changed: bool = False
) -> Iterator[str]:
    """Yield the path of each field that the spec sets, but not the paths of whole sections.

    With ``only_changed``, fields that the spec sets to their default are left out.
    """
    for name, field in type(model).model_fields.items():
        if name not in model.model_fields_set:
            continue
        value = getattr(model, name)
        path = f"{above}{name}"
        if isinstance(value, BaseModel):
            yield from paths_of_set_fields(value, f"{path}.", only_changed=only_changed)
        elif value is not None and not (only_changed and value == field.default):
            yield path


def _check_launch(spec: AnySpec, targets: Targets, sink: Sink) -> None:
    """Report launch settings that no target uses (E13), in one finding per section."""
    from parc.backends.registry import Role, backend_declaration, can_wrap, installed_backends

    # A framework that another target starts emits no launch script.
    behind = [targets.framework] * any(can_wrap(one, targets.framework) for one in targets.emit)
    found = [backend_declaration(name).launch_fields for name in targets.emit if name not in behind]
    used = {field for fields in found for field in fields}
    if getattr(spec.job, "disaggregate", False):
        used.add("router_port")  # of the router between two pools
    unused: dict[str, list[str]] = {}
    for path in paths_of_set_fields(spec.launch):
        if not is_path_in_fields(path, used):
            unused.setdefault(path.rpartition(".")[0] or path, []).append(path)
    for section, paths in unused.items():
        role: Role = "train" if isinstance(spec, Spec) else "serve"
        users = [
            one
            for one in installed_backends(role)
            if is_path_in_fields(paths[0], one.launch_fields)
        ]
        # A spec has only one framework or engine, so that no other one can be added.
        more = [one.name for one in users if not one.binds_layout]
        advice = (
            f"to use the setting, add {' or '.join(more)}" if more else "none of them can use it"
        )
        names = ", ".join(f"launch.{path}" for path in paths)
        whole = not any(is_path_in_fields(field, (section,)) for field in used)
        finding = Finding(
            f"no target uses {names}",
            label=f"used only by {', '.join(one.name for one in users)}"
            if users
            else f"no target of {'training' if role == 'train' else 'serving'} jobs uses it",
            help=f"emit lists {', '.join(targets.emit)}; {advice}",
            fix=f"remove launch.{section if whole else paths[0]}",
        )
        sink.report("E13", finding, at=f"launch.{paths[0]}", key=True)


def _check_versions(spec: AnySpec, targets: Targets, sink: Sink) -> None:
    """Report versions of backends that write no file and are not the framework (E13)."""
    for name in spec.versions:
        path = f"versions.{name}"
        if name not in (*targets.emit, targets.framework) and sink.positions.is_path_in_spec(path):
            finding = Finding(
                f"no target uses {path}",
                label=f"emit lists {', '.join(targets.emit)}",
                fix=f"remove {path}",
            )
            sink.report("E13", finding, at=path, key=True)


def _check_fields_without_effect(spec: AnySpec, targets: Targets, sink: Sink) -> None:
    """Report settings that the framework, the engine or a serving job does not use (E14)."""
    from parc.backends.registry import fields_without_effect

    table = fields_without_effect(targets.framework)
    common = UNUSED_IN_SERVICES if not isinstance(spec, Spec) else {}
    for path in paths_of_set_fields(spec):
        if path in {**table, **common} and not _is_description_only(spec, path):
            finding = Finding(
                f"{targets.framework if path in table else 'a serving job'} does not use {path}",
                label={**common, **table}[path],
                fix=f"remove {path}",
                targets=(targets.framework,),
            )
            sink.report("E14", finding, at=path, key=True)


def _check_context_groups(spec: AnySpec, sink: Sink) -> None:
    """Report groups of a context-parallel exchange in a layout without one (E14)."""
    layout = spec.layout
    groups = getattr(layout, "cp_a2a", None)
    if groups in (None, "auto", 1) or getattr(layout, "cp", None) != 1:
        return
    finding = Finding(
        f"layout.cp_a2a {groups} has no effect, because layout.cp is 1",
        label="without context parallelism, no ranks exchange heads for tokens",
        help="set layout.cp to a multiple of cp_a2a, and layout.cp_comm to a2a+p2p",
        fix="remove layout.cp_a2a",
    )
    sink.report("E14", finding, at="layout.cp_a2a", key=True)


def _check_nvme_path(spec: AnySpec, sink: Sink) -> None:
    """Report ``offload.nvme_path`` if the layout stores nothing on NVMe (E14)."""
    offload = spec.layout.offload if isinstance(spec, Spec) else None
    if not isinstance(offload, OffloadSpec) or not offload.nvme_path:
        return
    if not offload.uses_nvme:
        at = "layout.offload.nvme_path"
        finding = Finding(
            f"{at} has no effect, because nothing is stored on NVMe",
            label="neither optimizer nor parameters is nvme",
            fix=f"remove {at}",
        )
        sink.report("E14", finding, at=at, key=True)


def _is_description_only(spec: AnySpec, path: str) -> bool:
    """Return True if the field ``path`` only describes the hardware or the model.

    A field that changes a catalog model is a description only if the spec also names a checkpoint,
    because the checkpoint then already contains the change.
    """
    section, _, _ = path.partition(".")
    if section != "model":
        return section == "cluster"
    own = not isinstance(spec, Spec) and spec.job.checkpoint is not None
    return own or isinstance(spec.model, str) or spec.model.base is None


def _has_own_program(spec: AnySpec, default_program: str) -> bool:
    """Return True if the launchers need no files that a framework backend writes.

    This is the case if the spec names its own training program, or sets arguments for the
    framework's program. A serving job without ``launch.program`` is accepted here, because another
    check reports a missing engine (V29).
    """
    program = spec.launch.program
    if program is None:
        return not isinstance(spec, Spec)
    return bool(spec.launch.args) or program.rpartition("/")[2] != default_program


def _check_launchers(targets: Targets, sink: Sink) -> None:
    """Report launchers that would start the framework's program without its arguments (E15).

    Only the framework's own target writes these arguments.
    """
    from parc.backends.registry import backend_declaration

    launchers = [name for name in targets.emit if backend_declaration(name).needs_framework]
    if not launchers:
        return
    finding = Finding(
        f"{' and '.join(launchers)} would start the program of {targets.framework} without the "
        "arguments of the plan",
        label=f"only target {targets.framework} writes the arguments, but emit does not list it",
        help="add a framework to emit, or set launch.program to your own program",
        fix=f"emit: [{', '.join(sorted((*targets.emit, targets.framework)))}]",
        targets=tuple(launchers),
    )
    sink.report("E15", finding, at="emit")
