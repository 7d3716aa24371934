"""Targets for which the law of fields is checked, and the check of one target."""

from __future__ import annotations

from dataclasses import dataclass

from parc.backends.registry import backend_declaration, default_targets, fields_without_effect
from parc.compiler.spec.fields_without_effect import LABELS, UNUSED_IN_SERVICES
from tests.laws.field_walk import Answer, silent_fields, walk


@dataclass(frozen=True)
class Target:
    """Targets of a spec, and the fields that are walked for them."""

    emit: tuple[str, ...]
    serving: bool = False
    below: str = ""
    """First part of the fields: ``launch.`` for launchers, whose files depend on nothing else that
    does not reach the files of the framework too."""

    def __str__(self) -> str:
        """Return the name of the test."""
        return "-".join(self.emit)

    @property
    def framework(self) -> str:
        """Framework or engine that binds the layout."""
        found = [one for one in self.emit if backend_declaration(one).binds_layout]
        return next((one for one in found if one != "accelerate"), found[0])


DEFAULT_TARGETS = (
    Target(default_targets("train")),
    Target(default_targets("serve"), serving=True),
)
LAUNCHERS = ("kubernetes", "preflight", "rankmap", "slurm", "torchrun")
FRAMEWORKS = (
    ("accelerate",),
    ("accelerate", "deepspeed"),
    ("deepspeed",),
    ("fsdp",),
    ("megatron-bridge",),
    ("torchtitan",),
)
ALL_TARGETS = (
    *DEFAULT_TARGETS,
    *(Target((*names, "torchrun")) for names in FRAMEWORKS),
    *(Target(names, below="launch.") for names in (("megatron",), *FRAMEWORKS)),
    *(
        Target((*names, one), below="launch.")
        for names in (("megatron",), *FRAMEWORKS)
        for one in LAUNCHERS
    ),
    Target(("vllm",), serving=True, below="launch."),
    *(Target(("vllm", one), True, "launch.") for one in ("kubernetes", "ray", "slurm")),
    Target(("sglang",), serving=True),
    *(Target(("sglang", one), True, "launch.") for one in ("kubernetes", "slurm")),
    Target(("tensorrt-llm",), serving=True),
    *(Target(("tensorrt-llm", one), True, "launch.") for one in ("kubernetes", "slurm")),
)
"""Each framework and engine with all fields, and with each launcher the fields below ``launch``."""


def broken_fields(target: Target) -> tuple[dict[str, Answer], dict[str, Answer]]:
    """Return the answers of all fields, and those that break the law.

    These are silent fields without a reason, and fields with a reason for having no effect that
    have one.
    """
    answers = walk(target.emit, target.serving, target.below)
    unused = fields_without_effect(target.framework)
    unused |= UNUSED_IN_SERVICES if target.serving else {}
    broken = {
        path: answer
        for path, answer in answers.items()
        if answer.kind == "false"
        or (answer.kind == "silent" and path not in (*LABELS, *unused))
        or (answer.kind == "effect" and path in unused)
    }
    return answers, broken


def silent_without_context(target: Target) -> list[str]:
    """Return the fields whose values make no difference without the settings that they need.

    Only settings of the job, of launchers and of the search for experts count: a spec may fix a
    layout, a limit or a fact about the cluster that the plan has anyway. Labels of Kubernetes
    nodes are such facts.
    """
    labels = ("launch.kubernetes.rack_label", "launch.kubernetes.domain_label")
    unused = fields_without_effect(target.framework)
    unused |= UNUSED_IN_SERVICES if target.serving else {}
    sections = ("job.", "launch.", "goals.limits.ep.", "goals.limits.etp.")
    found = silent_fields(target.emit, target.serving, target.below, sections)
    return [path for path in found if path not in (*LABELS, *labels, *unused)]
