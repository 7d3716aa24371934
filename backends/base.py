"""What a target is: a folder of data with a thin face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    Artifact,
    Gpu,
    GroupFamily,
    Layout,
    Mesh,
    Model,
    Plan,
    Problem,
    Recompute,
    Split,
    Variant,
)
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingPlan, ServingProblem
from parc.compiler.ir.serving_rule import ServingRule


@dataclass(frozen=True, slots=True)
class Start:
    """How a framework's program starts on every host; texts are shell, already quoted.

    ``$here`` is the folder of the launch script, beside those of the other backends.
    """

    program: str
    """The script that torchrun starts, one word; empty where ``module`` says what starts."""
    args: str
    """Its arguments: words, or expansions of an array that ``before`` sets."""
    module: str = ""
    """A Python module to run in place of a script."""
    before: tuple[str, ...] = ()
    """Lines that run first: sources, exports."""
    launcher: tuple[str, ...] = ()
    """Words of a launcher in place of torchrun's, a line each; empty: torchrun."""
    listens: str = ""
    """A test that succeeds where the program saves and stops on TERM, with ``$PARC_DIR`` as the
    output folder; empty: it never does."""


class Backend(Protocol):
    """Emits files for one target."""

    name: str
    versions: tuple[str, ...]
    """Target versions that the flag table knows, oldest first; the last is the default, unless
    the backend has a ``default_version``."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report what this target cannot express, or would ignore, in ``plan``."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """The files, with paths under the backend's own folder; nothing is written here."""


class Framework(Backend, Protocol):
    """A backend whose rank order and rules bind the layout."""

    default_version: str
    """The version that is meant where the spec names none: the newest that is released."""
    strategies: Mapping[str, str]
    """What it can express: name in ``backends/strategies`` -> how that is said."""
    runtime: str
    """The memory model of its program in ``cost/programs``: megatron, fsdp2, torchtitan,
    accelerate or deepspeed."""
    stack: str
    """Its class of kernels and overlap in ``cost/efficiency``: megatron or fsdp."""
    copies_wait: bool
    """Whether copies of a hybrid shard add their gradients up once a step, not with every
    micro-batch; asked where micro-batches scatter gradients (ZeRO 2 and 3)."""

    def default_program(self, model: Model, version: str) -> str:
        """What ``launch.program`` means where the spec names none; empty: what ``emit`` writes."""

    def orders(self, problem: Problem) -> tuple[str, ...]:
        """Rank orders that exist, the default first."""

    def variants(self, problem: Problem) -> tuple[Variant, ...]:
        """What the pins leave open beside degrees, the simplest first; at least one."""

    def recomputes(self, problem: Problem) -> tuple[Recompute, ...]:
        """Levels of activation recompute, from nothing to everything; the first is none."""

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """What a legal layout keeps, for the target version of ``problem``."""

    def meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Dense and expert mesh of ``layout``, as the framework builds its process groups."""

    def families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """The groups that the framework creates, the columns of the rank map first."""

    def splits(self, problem: Problem, pp: int, vpp: int) -> Split | None:
        """Which chunk holds which layers, as the pins ask; None where ``vpp`` cannot be had."""

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> tuple[str, str, Finding]:
        """Code, spec path and finding that say why ``splits`` gives None."""

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Environment variables that the framework asks for on every rank."""

    def start(self, plan: Plan) -> Start:
        """How the program starts, with the files that this backend emits."""

    def padded_vocab(self, model: Model, tp: int) -> int:
        """Rows of the embedding after padding."""


class ServingBackend(Protocol):
    """Emits files for one target of a job that serves; it may be a ``Backend`` as well."""

    name: str
    versions: tuple[str, ...]

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report what this target cannot express, or would ignore, in ``plan``."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """The files, with paths under the backend's own folder; nothing is written here."""


class Engine(ServingBackend, Protocol):
    """A serving backend whose rank order and rules bind the layout."""

    default_version: str
    strategies: Mapping[str, str]
    """What it can express: name in ``backends/strategies`` -> how that is said."""

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Requests that run together and tokens of a step, where the user says nothing."""

    def expert_degrees(self, layout: ServingLayout) -> tuple[int, ...]:
        """Degrees of expert parallelism that the engine can be given with these other axes."""

    def cache_degrees(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Degrees of decode context parallelism that it can be given with these other axes."""

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """What a legal layout keeps, for the target version of ``problem``."""

    def mesh(self, layout: ServingLayout) -> Mesh:
        """The mesh of ``layout``, replicas last, as the engine numbers its ranks."""

    def families(self, problem: ServingProblem, layout: ServingLayout) -> tuple[GroupFamily, ...]:
        """The groups that the engine creates, the columns of the rank map first."""

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Words that start an engine whose hosts somebody else brings together."""

    def environment(self, plan: ServingPlan) -> tuple[tuple[str, str, str], ...]:
        """Name, value and reason of every variable that each process needs."""
