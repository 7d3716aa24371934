"""Base class of the verifiers of ``serve.sh``, the script that starts engines on every host.

A subclass derives the ranks, the settings and the expected processes from the flags of its engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

from parc.backends.shared.serving.verify_router import (
    PoolServers,
    RouterFormat,
    launcher_addresses,
    verify_router,
)
from parc.backends.shared.serving.verify_serve_script import (
    ScriptProcess,
    ScriptWord,
    ServeFormat,
    ServeScript,
    compare_program,
    read_script,
)
from parc.backends.shared.verify_environment import (
    ExportedVariable,
    network_variables,
    read_environment_settings,
    verify_required_variables,
)
from parc.backends.shared.verify_launch_script import inherited_names, read_setup_settings
from parc.backends.verifier import DerivedRank, DerivedSetting, EngineVerifier, JobShape
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError
from parc.compiler.verify.verify_program import report_program_change, verify_program
from parc.compiler.verify.verify_settings import PLAN, read_plan

VENDORS = {"nvidia": "CUDA", "amd": "HIP"}
"""Vendor of the GPUs -> start of the name of the variable that selects the visible ones."""


def fields_not_in_files(engine: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """Return plan path -> reason why no file contains it, for the engine called ``engine``.

    ``own`` contains further paths, and paths for which the engine has another reason.
    """
    computed, model = f"{engine} computes it at start-up", f"{engine} reads it from the checkpoint"
    limits = ("block_tokens", "blocks", "cache_tokens", "full_requests", "longest_blocks")
    setup = {
        "engine": "name of the cost model",
        "memory_share": "emitted as limits.gpu_memory_utilization",
        "max_running": "emitted as limits.max_num_seqs",
        "max_batched_tokens": "emitted as limits.max_num_batched_tokens",
        "overhead_bytes": f"{engine} measures it at start-up",
        "block": "follows from the checkpoint and --quantization",
        "prefill_apart": "not emitted",
        "accepted_tokens": "expected acceptance",
        "draft_tokens": "the number is in setup.speculative",
    }
    found = {
        **{f"limits.{name}": computed for name in limits},
        "limits.shards": "follows from layout.dcp",
        "problem.goals": "objectives of the search",
        "problem.model": model,
        "problem.pins": "the values are those of the layout",
        "problem.service.context": model,
        "problem.service.traffic": "expected traffic, used only to estimate the plan",
        "problem.service.max_model_len": "emitted as limits.max_model_len",
        **{f"problem.service.setup.{name}": reason for name, reason in setup.items()},
    }
    return MappingProxyType(found | dict(own))


@frozen
class ExpectedProcess:
    """A process that the parallel sizes imply."""

    node: int
    devices: tuple[int, ...]
    own: dict[str, str]
    """Flags of this process only, without dashes."""
    ports: tuple[int, ...]
    """Ports of its API servers."""


class ServeScriptVerifier(EngineVerifier):
    """Derives ranks and settings of all engines from the processes that ``serve.sh`` starts."""

    script: ServeFormat
    partition: str
    """Variable with the number of layers per pipeline stage."""
    router: RouterFormat | None = None
    """Router between two pools; None if the engine has none."""

    @abstractmethod
    def engine_world(self, script: ServeScript) -> int:
        """Return the number of ranks of one engine, the product of its parallel sizes.

        Raises:
            MalformedFileError: the sizes of two processes differ.
        """

    @abstractmethod
    def process_ranks(self, script: ServeScript, process: ScriptProcess) -> range:
        """Return the ranks that ``process`` runs, numbered within its engine."""

    @abstractmethod
    def coordinates(self, script: ServeScript, rank: int) -> tuple[int, ...]:
        """Return the coordinates of a rank of an engine along ``axes`` after the first axis."""

    @abstractmethod
    def command_settings(
        self, script: ServeScript, partition: ScriptWord | None, layers: int | None
    ) -> Iterable[DerivedSetting]:
        """Yield the settings in the flags of all processes.

        Args:
            script: the script.
            partition: value of the variable ``partition``; None if it is not set.
            layers: number of decoder layers of the model; None if unknown.
        """

    @abstractmethod
    def process_settings(self, script: ServeScript) -> Iterable[DerivedSetting]:
        """Yield settings that follow from the processes: engines, hosts, ports, load balancing."""

    @abstractmethod
    def expected_processes(self, script: ServeScript) -> Iterable[ExpectedProcess] | None:
        """Return the processes that the sizes imply, in the script's order; None if unknown."""

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the plan settings in ``serve.sh``."""
        if self.file not in artifacts:
            return
        script, problem = self.read(artifacts), _planned_problem(artifacts)
        found = script.exports.get(self.partition)
        partition = None if found is None else ScriptWord(*found)
        yield from self.command_settings(script, partition, problem.get("model", {}).get("layers"))
        yield from self.process_settings(script)
        interface = self.interface(script)
        yield DerivedSetting(
            "problem.launch.network_interface",
            interface.text if interface else None,
            self.file,
            interface.line if interface else 1,
        )
        yield from read_setup_settings(self.file, artifacts[self.file])
        vendors = {variable: vendor for vendor, variable in VENDORS.items()}
        vendor = script.vendor
        yield DerivedSetting(
            "problem.cluster.gpu.vendor", vendors[vendor.text], self.file, vendor.line
        )
        if problem:
            required, user = _expected_variables(problem, _has_spanning_engine(script))
            yield from read_environment_settings(
                self.file, self._checked_exports(script, user), required, user
            )

    def interface(self, script: ServeScript) -> ScriptWord | None:
        """Return the network interface that the script selects; None if it selects none."""
        return script.interface

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report lines, processes and variables that differ from those the engine needs (A18)."""
        if self.file not in artifacts:
            return
        script, problem = self.read(artifacts), _planned_problem(artifacts)
        inherited = inherited_names(artifacts[self.file])
        result = compare_program(script, bool(problem and problem["launch"]["setup"]), inherited)
        verify_program(self.file, result.found, result.expected, sink)
        expected = self.expected_processes(script)
        if expected is not None:
            self._verify_processes(script, list(expected), sink)
        if problem:
            required, user = _expected_variables(problem, _has_spanning_engine(script))
            exports = self._checked_exports(script, user)
            verify_required_variables(self.file, exports, required, user, sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report a number of hosts (A07) or host names (A02) that differ from the rank map."""
        if self.file not in artifacts:
            return
        script, hosts, span = self.read(artifacts), job.hosts, Span(self.file, 1, 1)
        if script.node_count != len(hosts):
            message = f"nodes is {script.node_count} in {self.file}, the rank map has {len(hosts)}"
            sink.report("A07", f"{message} hosts", span=span)
        if script.hosts and list(script.hosts) != hosts:
            pairs = enumerate(zip(script.hosts, hosts, strict=False))
            wrong = next((n for n, (mine, theirs) in pairs if mine != theirs), min(len(hosts), 1))
            message = f"the hosts of {self.file} differ from those of the rank map"
            sink.report("A02", f"{message}, starting at node rank {wrong}", span=span)

    def api_ports(self, artifacts: Mapping[str, str]) -> Iterable[tuple[int, int]] | None:
        """Return (node rank, port) of each API server; None if the ports cannot be determined."""
        if self.file not in artifacts:
            return None
        expected = self.expected_processes(self.read(artifacts))
        if expected is None:
            return None
        return [(one.node, port) for one in expected for port in one.ports]

    def check_router(
        self, text: str, prefill: Mapping[str, str], decode: Mapping[str, str], sink: Sink
    ) -> None:
        """Report lines of ``router.sh`` that differ from those that the scripts need (A18)."""
        if self.router is None or self.file not in prefill or self.file not in decode:
            return
        pools = [self._pool("prefill", prefill), self._pool("decode", decode)]
        endpoint = _planned_problem(prefill).get("endpoint", {})
        verify_router(text, self.router, endpoint.get("router_port"), pools, sink)

    def _pool(self, name: str, files: Mapping[str, str]) -> PoolServers:
        """Return the API servers that the script of a pool starts."""
        script, hosts = self.read(files), self.read(files).hosts
        # The script of a single host contains no name.
        if not hosts and PLAN in files:
            plan = read_plan(files[PLAN])
            hosts = tuple(plan["placement"]["hosts"]) if plan["problem"]["cluster"]["named"] else ()
        hosts = launcher_addresses(files) or hosts
        flag = self.router.bootstrap_flag if self.router is not None else ""
        servers = tuple(
            (one.node, port, one.own.get(flag, ""))
            for one in self.expected_processes(script) or ()
            for port in one.ports
        )
        return PoolServers(name, script.node_count, hosts, servers)

    def derive_ranks(
        self, artifacts: Mapping[str, str], sink: Sink
    ) -> dict[tuple[int, int], DerivedRank]:
        """Return the rank on each GPU, by (node rank, index of the GPU on its host).

        Missing or repeated ranks are reported (A07).
        """
        script = self.read(artifacts)
        world = self.engine_world(script)
        found: dict[tuple[int, int], DerivedRank] = {}
        engines: dict[int, list[int]] = {}
        for replica, process in zip(_engine_per_process(script), script.processes, strict=True):
            ranks, gpus = self.process_ranks(script, process), len(process.devices)
            if len(ranks) != gpus:
                message = f"host {process.node} starts {len(ranks)} ranks on {gpus} GPUs"
                sink.report("A07", message, span=Span(self.file, process.line, 1))
            # a damaged script may have any number of ranks, so that only those on GPUs are listed
            engines.setdefault(replica, []).extend(ranks[:gpus])
            for device, rank in zip(process.devices, ranks, strict=False):
                place = (replica, *self.coordinates(script, rank))
                found[process.node, device] = DerivedRank(replica * world + rank, place)
        for replica, all_ranks in engines.items():
            if len(all_ranks) != world or sorted(all_ranks) != list(range(world)):
                message = f"engine {replica} of {self.file} has {len(all_ranks)} ranks"
                text = f"{message}, must have each of the ranks 0 to {world - 1} once"
                sink.report("A07", text, span=Span(self.file, 1, 1))
        return found

    def read(self, artifacts: Mapping[str, str]) -> ServeScript:
        """Return the content of the script in ``artifacts``."""
        return read_script(artifacts[self.file], self.script)

    def shared_sizes(self, script: ServeScript, flags: Iterable[str]) -> tuple[int, ...]:
        """Return the values of ``flags``, 1 by default, which all processes must share.

        Raises:
            MalformedFileError: two processes differ, or the product of the sizes is out of range.
        """
        return _shared_sizes(script, tuple(flags))

    def _checked_exports(
        self, script: ServeScript, user: Mapping[str, str]
    ) -> list[ExportedVariable]:
        """Return the exported variables that are compared with ``launch.env`` and the network.

        The variable with the layers per stage is left out unless the user sets it, because it is
        compared with ``layout.stages``.
        """
        exports = script.exports.items()
        return [
            ExportedVariable(name, *one)
            for name, one in exports
            if name != self.partition or name in user
        ]

    def _verify_processes(
        self, script: ServeScript, expected: list[ExpectedProcess], sink: Sink
    ) -> None:
        """Report hosts, processes, GPUs and flags that differ from those expected (A18).

        Only the first difference between processes is reported.
        """
        hosts = len({one.node for one in script.processes})
        if hosts != script.node_count:
            message = f"nodes is {script.node_count}, but {hosts} hosts start ranks"
            report_program_change(self.file, script.nodes.line, message, sink)
        for process, one in zip(script.processes, expected, strict=False):
            message = _process_difference(process, one)
            if message:
                report_program_change(self.file, process.line, message, sink)
                return
        if len(script.processes) != len(expected):
            message = f"{len(script.processes)} processes are started, must be {len(expected)}"
            report_program_change(self.file, 1, message, sink)


# Each process needs the sizes, so that without a cache the time would be quadratic in processes.
@lru_cache(maxsize=8)
def _shared_sizes(script: ServeScript, flags: tuple[str, ...]) -> tuple[int, ...]:
    """Return the values of ``flags``, 1 by default, which all processes must share."""
    file = script.format.file
    if not script.processes:
        raise MalformedFileError(file, 1, "the script starts no process")
    found = {tuple(one.number(name, 1) for name in flags) for one in script.processes}
    if len(found) > 1:
        raise MalformedFileError(file, 1, "the processes have different parallel sizes")
    sizes = found.pop()
    if not 0 < prod(sizes) <= LARGEST:
        raise MalformedFileError(
            file, 1, f"the parallel sizes multiply to {prod(sizes)} ranks per engine"
        )
    return sizes


def _process_difference(process: ScriptProcess, expected: ExpectedProcess) -> str:
    """Return the first difference between a process and the expected one; "" if there is none."""
    node, own = expected.node, expected.own
    if (process.node, process.devices) != (node, expected.devices):
        wanted = ",".join(map(str, expected.devices))
        return f"the process must be on node rank {node} with the GPUs {wanted}"
    for flag in sorted({*own, *process.own}):
        must, found = own.get(flag), process.own.get(flag)
        if must != found:
            text = "is missing" if found is None else f"is {found!r:.40}"
            wanted = "must be absent" if must is None else f"must be {must!r:.40}"
            return f"--{flag} {text} on node rank {node}, {wanted}"
    return ""


def _planned_problem(artifacts: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the section ``problem`` of plan.json; empty if plan.json was not emitted."""
    return dict(read_plan(artifacts[PLAN])["problem"]) if PLAN in artifacts else {}


def _has_spanning_engine(script: ServeScript) -> bool:
    """Return True if at least one engine has processes on several hosts."""
    return any(one.head is not None for one in script.processes)


def _expected_variables(
    problem: Mapping[str, Any], spanning: bool
) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return (variables that the network requires, variables of ``launch.env``).

    If ``spanning`` is False, no engine spans several hosts, and the network requires none.
    """
    user = dict(problem["launch"]["env"])
    required = network_variables(problem) if spanning else {}
    # The environment of the calling shell determines the values of inherited variables.
    inherited = problem["launch"]["env_inherited"]
    return {name: value for name, value in required.items() if name not in inherited}, user


def _engine_per_process(script: ServeScript) -> list[int]:
    """Return the index of the engine that each process belongs to.

    Processes with the same rendezvous host belong to the same engine.
    """
    engines: dict[tuple[int, int], int] = {}
    indexes = []
    for number, process in enumerate(script.processes):
        # Without a rendezvous host, a process is an engine of its own.
        key = (process.head, -1) if process.head is not None else (process.node, number)
        indexes.append(engines.setdefault(key, len(engines)))
    return indexes
