"""The backends: literal lists, by what a job does."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from parc.backends.base import Backend, Engine, Framework, ServingBackend
from parc.compiler.ir import Problem

TRAINING: dict[str, str] = {
    "accelerate": "parc.backends.accelerate.backend",
    "deepspeed": "parc.backends.deepspeed.backend",
    "fsdp": "parc.backends.fsdp.backend",
    "kubernetes": "parc.backends.kubernetes.backend",
    "megatron": "parc.backends.megatron.backend",
    "preflight": "parc.backends.preflight.backend",
    "rankmap": "parc.backends.rankmap.backend",
    "slurm": "parc.backends.slurm.backend",
    "torchrun": "parc.backends.torchrun.backend",
    "torchtitan": "parc.backends.torchtitan.backend",
}
"""Targets of a training job: name -> module that holds ``BACKEND``; loaded on first use, so that
start-up stays cheap."""

SERVING: dict[str, str] = {
    "kubernetes": "parc.backends.kubernetes.backend",
    "rankmap": "parc.backends.rankmap.backend",
    "ray": "parc.backends.ray.backend",
    "slurm": "parc.backends.slurm.backend",
    "vllm": "parc.backends.vllm.backend",
}
"""Targets of a serving job; one that does both kinds stands in both lists."""

BUILT_IN: dict[str, str] = {**TRAINING, **SERVING}
"""All of them."""

FRAMEWORKS: tuple[str, ...] = ("megatron", "deepspeed", "fsdp", "torchtitan", "accelerate")
"""Backends whose rank order and rules bind the layout of a training job; the first is meant where
a spec emits none of them."""

FRONTS: dict[tuple[str, str], str] = {
    ("accelerate", "deepspeed"): "parc.backends.accelerate.plugin",
}
"""(front, framework) that are emitted together: the framework binds the layout, the front starts
it. The module holds ``BACKEND``: the framework, as far as the front can use it."""

ENGINES: tuple[str, ...] = ("vllm",)
"""The same for a serving job."""


def backend(name: str) -> Backend:
    """The backend called ``name``; KeyError where there is none."""
    return cast(Backend, import_module(BUILT_IN[name]).BACKEND)


def framework(name: str) -> Framework:
    """The framework called ``name``; KeyError where there is none."""
    if name not in FRAMEWORKS:
        raise KeyError(name)
    return cast(Framework, backend(name))


def framework_of(problem: Problem) -> Framework:
    """What binds the layout of ``problem``: its framework, alone or behind a front."""
    name, front = problem.framework, front_of(problem)
    return behind_front(front, name) if front else framework(name)


def front_of(problem: Problem) -> str:
    """What starts the framework of ``problem`` in its place; empty: nothing does."""
    pairs = ((front, name) for front, name in FRONTS if name == problem.framework)
    return next((front for front, _ in pairs if front in problem.emit), "")


def behind_front(front: str, name: str) -> Framework:
    """The framework called ``name``, as far as ``front`` can use it; KeyError for another pair."""
    return cast(Framework, import_module(FRONTS[front, name]).BACKEND)


def serving_backend(name: str) -> ServingBackend:
    """The serving target called ``name``; KeyError where there is none."""
    return cast(ServingBackend, import_module(SERVING[name]).BACKEND)


def engine(name: str) -> Engine:
    """The engine called ``name``; KeyError where there is none."""
    if name not in ENGINES:
        raise KeyError(name)
    return cast(Engine, serving_backend(name))
