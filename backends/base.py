"""Protocols of the backends.

A backend emits the files of one target. A framework is a backend whose rank order and rules bind
the layout of training jobs; an engine is the same for serving jobs. Both protocols combine smaller
ones, so that each can be read, implemented and tested on its own. ``backends/plugins.py`` checks
that a plugin has all members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    GradientExchange,
    GroupFamily,
    Layout,
    Mesh,
    Model,
    Plan,
    Problem,
    ProgramMemory,
    Recompute,
    Split,
    Stack,
    Variant,
)
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import Service, ServingPlan, ServingProblem, ServingRule


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """Command that starts a framework's program on a host; all texts are quoted shell.

    ``$here`` is the folder of the launch script, next to the folders of the other backends.
    """

    program: str
    """Script that the launcher starts, one word; empty if ``module`` is given."""
    args: str
    """Arguments of the program: words, or the expansion of an array that ``setup`` defines."""
    module: str = ""
    """Python module that the launcher starts, in place of a script."""
    setup: tuple[str, ...] = ()
    """Lines that the launch script runs first: sourced files, exports."""
    launcher: tuple[str, ...] = ()
    """Words of the launcher, one per line of the script; empty: torchrun."""
    graceful_stop_test: str = ""
    """Shell command that succeeds if the program saves a checkpoint and stops on SIGTERM;
    ``$PARC_DIR`` is the output folder. Empty: it never does."""


@dataclass(frozen=True, slots=True)
class RayEntry:
    """Way to run an engine in an actor of a Ray cluster, inside a placement group."""

    program: str
    """First word of the engine's command line, ``sys.argv[0]``."""
    module: str
    """Module with the function ``main`` that runs the command line in ``sys.argv``."""
    bundle_variable: str
    """Environment variable with the bundle index of each rank, separated by commas."""


class Backend(Protocol):
    """Target of training jobs."""

    name: str
    """Name in ``emit`` of the spec, and the folder of its files."""
    versions: tuple[str, ...]
    """Supported versions of the target, oldest first; the last one is the default unless the
    backend has a ``default_version``."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report parts of ``plan`` that the target cannot express, or would ignore."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return the files of the target, with paths below its folder, without writing them."""


class LayoutRules(Protocol):
    """Layouts that a framework supports, for the target version of the problem."""

    strategies: Mapping[str, str]
    """Supported strategies: name in ``backends/shared/strategies`` -> the setting in words or
    flags. Other strategies are refused with E08."""

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """Return the choices besides degrees that the pins leave open, the simplest first.

        At least one; the search evaluates each of them with all degrees.
        """

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return the levels of activation recomputation, from none to all layers."""

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the conditions that a valid layout satisfies."""

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Return the layers per model chunk; None if ``pp`` x ``vpp`` chunks are impossible.

        The split satisfies the pins of the problem.
        """

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Return code, spec path and finding of the reason why ``splits`` returns None."""


class ProcessGroups(Protocol):
    """Rank orders and process groups of a framework."""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """Return the rank orders that can be configured, the default first.

        An order lists the axes from the fastest to the slowest: ``tp-cp-ep-dp-pp``.
        """

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return the dense and the expert mesh from which the framework builds its groups."""

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of groups that the framework creates.

        Families that are columns of the rank map come first, in the order of its columns.
        """


class Launch(Protocol):
    """Start of a framework's program."""

    def default_program(self, model: Model, version: str) -> str:
        """Return the program if the spec has no ``launch.program``; empty: ``emit`` writes it."""

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name, value) per environment variable that each rank needs."""

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that starts the program with the files that ``emit`` writes."""


class CostTraits(Protocol):
    """Properties of a framework that the cost model reads."""

    stack: Stack
    """Class of its kernels and overlap, whose efficiency factors apply to its steps. A stack that
    the catalog lacks brings its own factors; without them the job is refused with K08."""
    gradient_exchange: GradientExchange
    """Points in time at which it reduces gradients and gathers weights."""

    def program_memory(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of its program for ``problem``."""

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Return the rows of the embedding after padding."""


class Framework(Backend, LayoutRules, ProcessGroups, Launch, CostTraits, Protocol):
    """Backend whose rank order and rules bind the layout of training jobs."""

    default_version: str
    """Version if the spec names none: the newest released one."""


class ServingBackend(Protocol):
    """Target of serving jobs; a class may be a ``Backend`` as well."""

    name: str
    """Name in ``emit`` of the spec, and the folder of its files."""
    versions: tuple[str, ...]
    """Supported versions of the target, as in ``Backend``."""

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report parts of ``plan`` that the target cannot express, or would ignore."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return the files of the target, with paths below its folder, without writing them."""


class ServingRules(Protocol):
    """Layouts that an engine supports, for the target version of the problem."""

    strategies: Mapping[str, str]
    """Supported strategies, as in ``LayoutRules``."""

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the conditions that a valid layout satisfies."""

    def expert_degrees(self, layout: ServingLayout) -> tuple[int, ...]:
        """Return the expert parallel sizes that are possible with the other axes of ``layout``."""

    def cache_degrees(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Return the decode context parallel sizes that are possible with the other axes."""


class EngineTraits(Protocol):
    """Constants, defaults and number formats of an engine, which no other engine's replace."""

    long_context_setting: str
    """Setting with which the engine accepts requests longer than the model's context, in the form
    ``NAME=1``; empty if there is none."""

    def constants(self) -> EngineConstants:
        """Return the constants with which the cost model estimates the engine.

        ``backends/engine_constants.py`` reads them from ``constants.yaml``.

        Raises:
            UndeclaredConstantsError: the table is incomplete, which is reported as V32.
        """

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return (concurrent requests, tokens per step) if the user sets neither."""

    def context_tokens(self, model: Model) -> int:
        """Return the context length that the engine derives from the model's config, in tokens."""

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report number formats that the engine does not support, before a layout is chosen."""


class ServingGroups(Protocol):
    """Rank order and process groups of an engine."""

    def mesh(self, layout: ServingLayout) -> Mesh:
        """Return the mesh of ``layout`` in the engine's rank order, with replicas slowest.

        It has the axes tp, cp (``layout.pcp``), pp, dp and replica, also those of size 1; V33
        reports any other mesh.
        """

    def families(self, problem: ServingProblem, layout: ServingLayout) -> tuple[GroupFamily, ...]:
        """Return the families of groups, those that are columns of the rank map first."""


class ServingLaunch(Protocol):
    """Start of an engine's processes."""

    ray_entry: RayEntry | None
    """Way to run the engine under Ray; None if it cannot be pinned to hosts there."""
    host_script: str
    """Emitted script that launchers run on each host. They set ``NODE_RANK``, and ``PARC_HOSTS``
    if only they have the host names: by node rank, separated by spaces."""
    health_path: str
    """Path of the API server that answers with status 200 once the engine serves: ``/health``."""

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words that start an engine whose hosts ``executor`` brings together."""

    def environment(self, plan: ServingPlan) -> tuple[tuple[str, str, str], ...]:
        """Return (name, value, reason) per environment variable that each process needs."""


class Engine(ServingBackend, EngineTraits, ServingRules, ServingGroups, ServingLaunch, Protocol):
    """Serving backend whose rank order and rules bind the layout."""

    default_version: str
    """Version if the spec names none: the newest released one."""
