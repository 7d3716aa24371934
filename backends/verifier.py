"""Protocols of verifiers, which check the files that a backend has emitted.

A verifier reads the files as the target would, and derives ranks and process groups from them; PARC
compares the result with the rank map. A verifier must not share code with the backend that emitted
the files, because a mistake in shared code would stay hidden. ``parc compile`` runs verifiers
before it writes the files, ``parc verify`` on a folder. Every method may raise
``compiler.verify.read_emitted.MalformedFileError``, for any text.

A verifier class inherits from one of the protocols, whose members have defaults where possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen


@frozen
class FileDependencies:
    """The files of a target, and which of them need each other."""

    always: tuple[str, ...] = ()
    """Files that the target emits for each training job."""
    always_serving: tuple[str, ...] = ()
    """Files that the target emits for each serving job."""
    scripts: tuple[str, ...] = ()
    """Shell scripts of the target. They are searched for the ``references`` of all targets."""
    references: Mapping[str, str] = field(default_factory=dict)
    """File -> text by which a script refers to it. A text that starts with ``$here/`` refers to
    the folder of the script."""
    required_by: tuple[tuple[str, str], ...] = ()
    """Pairs (file, other file); the other file does not work without the first one."""


NO_FILES = FileDependencies()


@frozen
class LauncherNumber:
    """A number on a launcher's command line or in a job script that the rank map determines."""

    name: str
    """Name in findings: ``--nnodes``."""
    pattern: str
    """Regular expression, matched per line, whose first group is the number."""
    count: Literal["nodes", "ranks_per_node", "world"]
    """The number of the rank map that this number must equal."""


@frozen
class JobShape:
    """Hosts and rank counts of the rank map, which all launch files must contain."""

    hosts: list[str]
    """Host names by node rank."""
    ranks_per_node: int
    document: Mapping[str, Any] | None = None
    """The tree of ``rankmap.json``; None if it was not emitted."""
    launcher: tuple[LauncherNumber, ...] = ()
    """Numbers on the command line of the framework's own launcher; empty if the launch script
    starts torchrun."""

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of nodes, of ranks per node, and of all ranks.

        The keys are the values of ``LauncherNumber.count``.
        """
        nodes, ranks = len(self.hosts), self.ranks_per_node
        return {"nodes": nodes, "ranks_per_node": ranks, "world": nodes * ranks}


@frozen
class FamilyGroups:
    """Process groups of one family.

    Group i contains the ranks ``bases[i] + member`` for each member.
    """

    members: list[int]
    bases: list[int]


@frozen
class DerivedGroups:
    """Parallel sizes and process groups that a framework would build from its emitted files."""

    file: str
    """The file with the sizes."""
    builder: str
    """Name of the framework in findings: ``Megatron``."""
    order: str
    """Rank order: axes from the fastest to the slowest, ``tp-cp-ep-dp-pp``."""
    sizes: dict[str, int]
    """Sizes by the names of the rank map: dp, ep, edp, ..."""
    families: dict[str, FamilyGroups]
    """Groups by the names of the rank map."""
    columns: tuple[str, ...]
    """Families of a single axis, which are the columns of the rank map."""


@frozen
class DerivedRank:
    """A rank that an engine starts on one GPU, with its coordinates along the engine's axes."""

    rank: int
    coordinates: tuple[int, ...]


@frozen
class DerivedSetting:
    """A setting that a target takes from its emitted files, to be compared with ``plan.json``."""

    path: str
    """Path of the same setting in ``plan.json``: ``layout.zero_stage``."""
    value: Any
    """Value that the target will use, as a JSON type; the target's default if the file has no
    value. A frozenset means that the file allows each of these values, because it has no such
    setting."""
    file: str
    line: int = 1
    setting: str = ""
    """Text of the setting in the file, such as ``--micro-batch-size 2``; empty if the file omits
    it."""
    accepts: Callable[[Any], bool] | None = None
    """Function that returns True for each planned value with which the target behaves as with
    ``value``; None if only an equal value does. Required if a target rounds or limits a value."""
    needed: str | None = None
    """Text that the file needs instead of the text ``value``, if that is not the value of ``path``
    itself, such as one of several variables. Either text may be empty: no setting. Such a setting
    is always reported. None: ``value`` is compared with the value of ``path``."""
    stated: bool = False
    """True if the file always contains the value, so that a finding quotes the value instead of a
    line, and never states that the file omits the setting."""


@frozen
class LaunchedProgram:
    """Commands of a launch script that start a framework's program; all texts are shell text.

    ``$here`` is the folder of the launch script, ``$PARC_DIR`` the output folder.
    """

    program: str = ""
    """Script that the launcher starts; empty if ``module`` is set."""
    module: str = ""
    """Python module that the launcher starts instead."""
    arguments: str = ""
    """Arguments of the program."""
    setup: tuple[str, ...] = ()
    """Commands that run first."""
    launcher: tuple[str, ...] = ()
    """Words of the framework's own launcher; empty if torchrun is the launcher."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the framework requires."""
    stop_test: str = ""
    """Shell command that succeeds if the program saves a checkpoint and stops on SIGTERM; empty if
    the program never does so."""


class Verifier(Protocol):
    """Verifier of the files of one target, such as a launcher, a report or a framework."""

    files: FileDependencies = NO_FILES
    not_in_files: Mapping[str, str] = MappingProxyType({})
    """Path in ``plan.json`` that the files of this target cannot show -> reason. A path includes
    everything below it. A test compares these paths, and those of ``derive_settings``, with all
    paths of a plan."""

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the settings that the target reads from its files in ``artifacts``.

        A setting that the target does not recognize, or that the plan never sets, has the path of
        the spec field that would allow it (``problem.launch.args``). An added line is therefore
        always reported.
        """
        return ()

    def embedded_files(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Return path -> text of the files inside the target's files, such as those in a ConfigMap.

        Paths are relative to the output folder. Embedded files are verified like files of the
        folder.
        """
        return {}

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report contradictions in the files of the target, and changed text of programs (A18)."""
        return None

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report host names (A02) and numbers (A07) that differ from those of the rank map."""
        return None

    def server_addresses(self, artifacts: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the addresses at which a router reaches the hosts, sorted by node rank.

        None, the default, means that these are the names of the hosts.
        """
        return None

    def visible_devices(self, artifacts: Mapping[str, str]) -> list[str] | None:
        """Return the exported GPU index of each local rank; None if no script exports any."""
        return None


class FrameworkVerifier(Verifier, Protocol):
    """Verifier that derives a framework's process groups again, from its emitted files."""

    file: str
    """The file that shows that a folder has files of the framework."""
    needs: tuple[str, ...] = ()
    """Files that must accompany ``file``."""
    launcher: tuple[LauncherNumber, ...] = ()
    """Numbers on the command line of the framework's own launcher; empty if torchrun starts it."""

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report contradictions in the files of the framework.

        Contradictions are missing layers (A08), lost samples (A09), and sizes that differ between
        files (A05).
        """

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the sizes and process groups on ``world`` ranks; None if there is a finding."""

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how a launch script must start the program of ``plan``, the tree of ``plan.json``.

        None, the default, means that this is unknown; then the commands of launch scripts are not
        compared.
        """
        return None


class LauncherWrappedVerifier(FrameworkVerifier, Protocol):
    """Verifier of a framework that another backend can wrap (``WrappedFramework``)."""

    def verifier_when_wrapped(
        self, file: str, read_world: Callable[[str], int], launcher: tuple[LauncherNumber, ...]
    ) -> FrameworkVerifier:
        """Return the verifier for jobs in which another backend, the wrapper, starts the program.

        Args:
            file: configuration file of the wrapper.
            read_world: function that returns the number of ranks in the text of that file; it may
                raise ``MalformedFileError``.
            launcher: numbers in the wrapper's launch command.
        """


class EngineVerifier(Verifier, Protocol):
    """Verifier that derives the ranks of a serving engine from the script that starts it."""

    file: str
    """The file that starts the engine's processes."""
    builder: str
    """Name of the engine in findings."""
    axes: tuple[str, ...]
    """Axes of a rank's coordinates, which are columns of the rank map."""
    shared_axes: Mapping[str, tuple[str, ...]]
    """Column of the rank map over several axes -> the axes whose coordinates its members share;
    the column counts the members of each group."""
    health_path: str = "/health"
    """Path of the API server that responds once the engine is ready."""

    ray_entry: tuple[str, str, str] | None = None
    """Program, module of its ``main``, and variable with the indices of Ray's bundles; None if the
    code of the engine's Ray program is not compared."""

    def api_ports(self, artifacts: Mapping[str, str]) -> Iterable[tuple[int, int]] | None:
        """Return (node rank, port) of each API server that ``file`` starts; None if unknown."""
        return None

    def check_router(
        self, text: str, prefill: Mapping[str, str], decode: Mapping[str, str], sink: Sink
    ) -> None:
        """Report lines of ``router.sh`` that differ from those that two pools need (A18).

        ``text`` is the script of the router; ``prefill`` and ``decode`` are the files of the
        pools.
        """
        return None

    def read_command_settings(
        self,
        file: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        plan: Mapping[str, Any],
    ) -> Iterable[DerivedSetting]:
        """Yield the settings in a command by another target that starts the engine.

        Args:
            file: file with the command.
            words: the command without the name of its program.
            environment: environment variables of the command.
            plan: tree of ``plan.json``.
        """
        return ()

    def required_environment(
        self, plan: Mapping[str, Any], environment: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the variables that ``read_command_settings`` reads or the engine requires."""
        return {}

    def derive_ranks(
        self, artifacts: Mapping[str, str], sink: Sink
    ) -> dict[tuple[int, int], DerivedRank]:
        """Return (node rank, GPU index) -> rank, for the ranks that ``file`` starts."""
