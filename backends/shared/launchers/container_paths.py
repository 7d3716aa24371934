"""Paths of a job that no volume of its container contains."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator

from parc.backends.registry import backend, backend_declaration
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Plan, ServingPlan
from parc.compiler.ir.frozen import frozen


@frozen
class JobPath:
    """Path that the programs of a job read or write."""

    at: str
    """Spec path of the setting."""
    text: str
    written: bool = False


@frozen
class Container:
    """Container of a job: where its files come from, and how a message describes it."""

    target: str
    """Name of the launcher, such as ``slurm``."""
    folders: Collection[str]
    """Folders in the container that outlive it."""
    keeps_working_folder: bool
    """True if the working folder is a folder of the host."""
    setting: str
    """Field of the spec that adds a folder."""


def missing_paths(plan: AnyPlan, container: Container) -> list[JobPath]:
    """Return the paths of the job that are not below a folder of ``container``.

    A relative path that the job only reads may be in the image, or name a repository; only a
    config.json is reported, because it is a file next to the spec.
    """
    paths = [*(_service_paths(plan) if isinstance(plan, ServingPlan) else _training_paths(plan))]
    return [one for one in paths if not _is_inside(one, container)]


def report_missing_paths(
    container: Container, fix: str, missing: list[JobPath], sink: Sink
) -> None:
    """Report the paths ``missing`` in the container (L37); ``fix`` is the edit that adds them."""
    if not missing:
        return
    first, *others = missing
    written = [one.text for one in missing if one.written]
    finding = Finding(
        f"{len(missing)} paths of the job are not in the container"
        if others
        else f"{first.text} is not in the container",
        label=f"what the job writes to {written[0]} is lost when the container ends"
        if written
        else f"the program finds no {first.text}, unless the image contains it",
        help=f"{container.setting} adds folders of shared storage to the container"
        if fix
        else f"copy {first.text} into the working folder of the image",
        fix=fix,
        causes=tuple(Cause(one.at, f"{one.text} is not in the container") for one in others),
        targets=(container.target,),
    )
    sink.report("L37", finding, at=first.at)


def missing_folders(missing: list[JobPath]) -> list[str]:
    """Return the folders that contain all absolute paths of ``missing``, sorted.

    These are the parents of the paths, without those below another one.
    """
    parents = {_parent(one.text) for one in missing if one.text.startswith("/")}
    return sorted(
        one for one in parents if not any(_is_below(one, other) for other in parents - {one})
    )


def _parent(path: str) -> str:
    parent = posixpath.dirname(path.rstrip("/"))
    return path.rstrip("/") if parent in ("", "/") else parent


def _training_paths(plan: Plan) -> Iterator[JobPath]:
    """Yield the paths that a training job reads and writes."""
    job, launch = plan.problem.job, plan.problem.launch
    if job.checkpoint_dir:
        yield JobPath("job.checkpoint_dir", job.checkpoint_dir, written=True)
    if launch.tensorboard_dir:
        yield JobPath("launch.logging.tensorboard", launch.tensorboard_dir, written=True)
    for at, text in (("job.load_dir", job.load_dir), ("job.tokenizer_model", job.tokenizer_model)):
        if text:
            yield JobPath(at, text)
    for index, text in enumerate(job.data):
        yield JobPath(f"job.data[{index}]", text)
    config = plan.problem.model.source.strip().partition("#")[0]
    if config.endswith(".json") and "://" not in config and _program_reads(plan, config):
        yield JobPath("model", config)


def _program_reads(plan: Plan, config: str) -> bool:
    """Return True if a file of a framework names the ``config.json`` of the model."""
    names = [one for one in plan.problem.emit if backend_declaration(one).is_framework]
    return any(f'"{config}"' in file.text for name in names for file in backend(name).emit(plan))


def _service_paths(plan: ServingPlan) -> Iterator[JobPath]:
    """Yield the paths that the engines of a service read."""
    service = plan.problem.service
    yield JobPath("job.checkpoint", service.checkpoint)
    draft, lora = service.setup.speculative, service.setup.lora
    if draft is not None and draft.checkpoint:
        yield JobPath("job.speculative.checkpoint", draft.checkpoint)
    for name, path in lora.adapters if lora is not None else ():
        yield JobPath(f"job.lora.adapters.{name}", path)


def _is_inside(path: JobPath, container: Container) -> bool:
    """Return True if the program in the container finds ``path``, or a relative path may exist."""
    if not path.text.startswith("/"):
        found_in_image = not path.written and path.at != "model"
        return container.keeps_working_folder or found_in_image
    return any(_is_below(path.text, folder) for folder in container.folders)


def _is_below(path: str, folder: str) -> bool:
    """Return True if ``path`` is ``folder``, or a path below it."""
    above = posixpath.normpath(folder)
    inner = posixpath.normpath(path)
    return inner == above or inner.startswith(above.rstrip("/") + "/")
