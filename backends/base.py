"""Protocols that backends implement.

A backend emits the files of one target. A framework is a backend whose rank order and rules
determine the layout of training jobs; an engine is the counterpart for serving jobs. The protocols
of both combine smaller protocols, so that each can be read, implemented and tested separately.
``backends/plugins.py`` checks that a plugin has all members.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol, runtime_checkable

from parc.compiler.diagnostics import CodedFinding, Sink
from parc.compiler.ir import (
    Artifact,
    CapturedGraphs,
    Gpu,
    GradientExchange,
    GroupFamily,
    KernelStack,
    Layout,
    LayoutVariant,
    Mesh,
    Model,
    PipelineSplit,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
    Recompute,
)
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import Service, ServingPlan, ServingProblem, ServingRule


@frozen
class LaunchCommand:
    """Command that starts the training program on one host; all texts are quoted for the shell.

    ``$here`` is the folder of the launch script. The folders of the other backends are next to it.
    """

    program: str
    """Script that the launcher starts, as one shell word; empty if ``module`` is set."""
    args: str
    """Arguments of the program: words, or the expansion of an array that ``setup`` defines."""
    module: str = ""
    """Python module that the launcher starts instead of a script."""
    setup: tuple[str, ...] = ()
    """Lines that the launch script runs first: sourced files, exports."""
    launcher: tuple[str, ...] = ()
    """Words of the launcher, one per line of the script; empty if torchrun is the launcher."""
    graceful_stop_test: str = ""
    """Shell command that succeeds if the program saves a checkpoint and stops on SIGTERM;
    ``$PARC_DIR`` is the output folder. Empty if the program never does."""

    @property
    def relative_program(self) -> str:
        """``program`` if it is a relative path, which needs the job to start in its folder."""
        return "" if self.program.startswith(("/", '"$')) else self.program


@frozen
class RayEntry:
    """Way to run an engine in an actor of a Ray cluster, inside a placement group."""

    program: str
    """First word of the engine's command line, ``sys.argv[0]``."""
    module: str
    """Module with the function ``main`` that runs the command line in ``sys.argv``."""
    bundle_variable: str
    """Environment variable with the bundle index of each rank, separated by commas."""


class Backend(Protocol):
    """A target that emits files for training jobs."""

    name: str
    """Name in ``emit`` of the spec, and the folder of its files."""
    versions: tuple[str, ...]
    """Supported versions of the target, oldest first; the last one is the default unless the
    backend has a ``default_version``."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report the parts of ``plan`` that the target cannot express or would ignore."""

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return the files of the target without writing them; their paths include its folder."""


class LayoutRules(Protocol):
    """Layouts that a framework supports, in the version that the spec selects."""

    strategies: Mapping[str, str]
    """Supported strategies: name in ``backends/shared/strategies`` -> the setting in words or
    flags. PARC rejects layouts that use any other strategy (E08)."""
    recomputes_first_layers: bool
    """True if the framework can recompute only the first n layers of each model chunk. The search
    then also tries the smallest n that makes a layout fit into memory."""

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return the combinations of layout settings that the search tries, without parallel sizes.

        There is at least one combination, and the simplest is first. Values that the spec fixes are
        the same in all combinations. The search tries every combination with every choice of
        parallel sizes.
        """

    def recompute_settings(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return the activation recomputation settings that the search tries, from none to full."""

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules that every layout of ``problem`` must satisfy."""

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return the split of the decoder layers into model chunks; None if no split is valid.

        There are ``pp`` pipeline stages, each with ``vpp`` chunks. If the spec sets the layers of a
        stage, the split contains them.
        """

    def split_with_counts(
        self, problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
    ) -> PipelineSplit | None:
        """Return ``split`` with ``counts[c]`` decoder layers in the c-th model chunk.

        ``split`` is a result of ``find_split``. All other contents of its chunks remain where they
        are. The result is None if the spec determines the split, or if the framework cannot run the
        new one.
        """

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why the layers cannot be split.

        PARC calls this method only if ``find_split`` returns None for ``pp`` stages of ``vpp``
        chunks.
        """


class ProcessGroups(Protocol):
    """Rank orders and process groups of a framework."""

    def rank_orders(self, problem: Problem) -> tuple[str, ...]:
        """Return the rank orders that the framework supports; the default order is first.

        An order lists the axes from the fastest-varying to the slowest, such as ``tp-cp-ep-dp-pp``.
        """

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return (dense mesh, expert mesh): the framework builds its process groups from these."""

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return the families of process groups that the framework creates.

        A family contains all groups along the same axes. Families that are columns of the rank map
        come first, in the order of the columns.
        """


class Launch(Protocol):
    """Program, environment and command that start a framework."""

    def default_program(self, model: Model, version: str) -> str:
        """Return the program to run if the spec names none; empty if ``emit`` writes a program."""

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of every environment variable that the ranks need."""

    def launch_command(self, plan: Plan) -> LaunchCommand:
        """Return the command that starts the program. The program reads the emitted files."""


@runtime_checkable
class RefusedEnvironment(Protocol):
    """Optional part of a framework; without it, the framework starts with any variables."""

    def refused_environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of every environment variable with which ranks would not start."""


@runtime_checkable
class ConfigPrograms(Protocol):
    """Optional part of a framework; without it, no program builds a model from its config.json."""

    def builds_model_from_config(self, problem: Problem) -> bool:
        """Return True if the emitted program builds the model from the config.json of the model.

        Such a program has all computations of the model, also those that no field of a spec can
        express (K06).
        """


@runtime_checkable
class PackageRequirements(Protocol):
    """Optional part of a framework; without it, PARC checks no versions of Python packages."""

    def required_packages(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return (name of a Python distribution, lowest version) of each package.

        The preflight program checks them on every rank.
        """


class CostTraits(Protocol):
    """Properties of a framework that the cost model reads."""

    stack: KernelStack
    """Software stack, which determines the efficiency factors of kernels and overlap. A stack that
    is not in the catalog must define its own factors; otherwise PARC rejects the job (K08)."""
    gradient_exchange: GradientExchange
    """Points in a step when the framework reduces gradients and gathers weights."""

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return the memory model of the program that trains the model of ``problem``."""

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of the kernels of the program that trains the model."""

    def padded_vocab(self, problem: Problem, tp: int) -> int:
        """Return the number of embedding rows after the framework has padded the vocabulary."""


@runtime_checkable
class GraphCapture(Protocol):
    """Optional part of a framework; without it, the framework captures no CUDA graphs."""

    def captured_graphs(self, problem: Problem, layout: Layout) -> CapturedGraphs:
        """Return the CUDA graphs that a rank captures if ``layout.cuda_graphs`` is not false.

        The parts must not depend on the recompute setting.
        """


class Framework(Backend, LayoutRules, ProcessGroups, Launch, CostTraits, Hashable, Protocol):
    """A backend whose rank order and rules determine the layout of training jobs."""

    default_version: str
    """Version that is used if the spec sets none: the newest released one."""


class ServingBackend(Protocol):
    """A target that emits files for serving jobs; its class may also be a ``Backend``."""

    name: str
    """Name in ``emit`` of the spec, and the folder of its files."""
    versions: tuple[str, ...]
    """Supported versions of the target, as in ``Backend``."""

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report the parts of ``plan`` that the target cannot express or would ignore."""

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return the files of the target without writing them; their paths include its folder."""


@runtime_checkable
class LauncherRules(Protocol):
    """Optional part of a serving launcher: the layouts that it can start."""

    def launcher_rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rules that every layout of ``problem`` must satisfy for this launcher."""


class ServingRules(Protocol):
    """Layouts that an engine supports, in the version that the spec selects."""

    strategies: Mapping[str, str]
    """Supported strategies, as in ``LayoutRules``."""

    def rules(self, problem: ServingProblem) -> tuple[ServingRule, ...]:
        """Return the rules that every layout of ``problem`` must satisfy."""

    def expert_parallel_sizes(self, layout: ServingLayout) -> tuple[int, ...]:
        """Return the valid expert parallel sizes, given the other parallel sizes in ``layout``."""

    def decode_context_sizes(self, model: Model, layout: ServingLayout) -> tuple[int, ...]:
        """Return the valid decode context parallel sizes, given the other sizes in ``layout``."""


class EngineTraits(Protocol):
    """Constants, defaults and number formats that are specific to one engine."""

    long_context_setting: str
    """Setting that makes the engine accept requests longer than the model's context, in the form
    ``NAME=1``; empty if there is none."""

    def constants(self) -> EngineConstants:
        """Return the constants of the engine's cost model.

        Backends usually read the constants from ``constants.yaml`` with
        ``backends/engine_constants.py``.

        Raises:
            UndeclaredConstantsError: the table of constants is incomplete (reported as V32).
        """

    def default_batch(self, gpu: Gpu) -> tuple[int, int]:
        """Return the engine's default limits on ``gpu``: (concurrent requests, tokens per step)."""

    def context_tokens(self, model: Model) -> int:
        """Return the context length, in tokens, that the engine reads from the model's config."""

    def check_formats(self, service: Service, gpu: Gpu, sink: Sink) -> None:
        """Report number formats that the engine does not support; called before the search."""


@runtime_checkable
class OptionalFeatures(Protocol):
    """Optional part of an engine; without it, the engine has none of these features."""

    def service_features(self, model: Model) -> frozenset[str]:
        """Return the optional features that the emitted commands can express for ``model``.

        Names: ``lora``, ``kv_offload``, ``speculative:METHOD`` with a method of
        ``job.speculative``, and ``pool:prefill`` and ``pool:decode`` for the values of
        ``job.pool``. A spec with another feature is refused (V40).
        """


@runtime_checkable
class StepTokenSearch(Protocol):
    """Optional part of an engine; without it, the tokens per step are not searched.

    The engine must process a part of the waiting prompts in the steps of running requests, as the
    simulation does, so that the number of tokens per step trades TTFT for TPOT.
    """

    def step_tokens_to_try(self, problem: ServingProblem) -> tuple[int, ...]:
        """Return the largest numbers of tokens per step to try, in ascending order."""


@runtime_checkable
class PoolRouting(Protocol):
    """Optional part of an engine with pools; without it, users need a router of their own."""

    def emit_router(self, prefill: ServingPlan, decode: ServingPlan) -> Artifact:
        """Return the script that starts a router over the engines of both pools."""


@runtime_checkable
class ServerNaming(Protocol):
    """Optional part of a serving launcher; without it, servers have the names of their hosts."""

    def server_addresses(self, plan: ServingPlan) -> tuple[str, ...]:
        """Return an address for each node rank; hosts with the same ports may be exchanged."""


class ServingGroups(Protocol):
    """Rank order and process groups of an engine."""

    def mesh(self, layout: ServingLayout) -> Mesh:
        """Return the device mesh of ``layout`` in the engine's rank order; replicas vary slowest.

        The mesh must have the axes tp, cp (with the size ``layout.pcp``), pp, dp and replica, even
        those of size 1. tp varies fastest, then cp. PARC reports any other mesh as V33.
        """

    def group_families(
        self, problem: ServingProblem, layout: ServingLayout
    ) -> tuple[GroupFamily, ...]:
        """Return the families of process groups; those with a column in the rank map come first."""


class ServingLaunch(Protocol):
    """Script, environment and commands that start the processes of an engine."""

    ray_entry: RayEntry | None
    """Way to run the engine under Ray; None if Ray cannot start each rank on its planned host."""
    host_script: str
    """Emitted script that launchers run on each host. The launchers set ``NODE_RANK``. If the
    script does not contain the host names, they also set ``PARC_HOSTS``: the names by node rank,
    separated by spaces."""
    health_path: str
    """URL path that responds with status 200 once the engine is ready, such as ``/health``."""

    def image(self, version: str, vendor: str) -> str:
        """Return the official container image for GPUs of ``vendor``; empty if there is none."""

    def command(self, plan: ServingPlan, executor: str) -> tuple[str, ...]:
        """Return the words of the command that starts one engine on all hosts of the engine.

        ``executor`` is the engine's name for the way to start its workers: ``mp`` or ``ray``.
        """

    def environment(self, plan: ServingPlan) -> tuple[tuple[str, str, str], ...]:
        """Return (name, value, reason) of every environment variable that the processes need."""

    def api_ports(self, plan: ServingPlan) -> tuple[tuple[int, int], ...]:
        """Return (node rank, port) of each API server that ``host_script`` starts."""


class Engine(ServingBackend, EngineTraits, ServingRules, ServingGroups, ServingLaunch, Protocol):
    """A serving backend whose rank order and rules determine the layout of serving jobs."""

    default_version: str
    """Version that is used if the spec sets none: the newest released one."""
