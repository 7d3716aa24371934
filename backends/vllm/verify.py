"""Verifier of ``vllm/serve.sh``, which derives the ranks and settings that vLLM starts with.

The ranks of a process follow from its flags (engine/arg_utils.py, create_engine_config;
v1/executor/multiproc_executor.py), and the coordinates of a rank from its number
(distributed/parallel_state.py, initialize_model_parallel). The placement code is not used. The
flags of every process are predicted from the parallel sizes (vLLM 0.33,
docs/serving/data_parallel_deployment.md; entrypoints/cli/serve.py: load balancing, headless hosts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from parc.backends.shared.serving.verify_aliases import long_flags
from parc.backends.shared.serving.verify_engine import (
    ExpectedProcess,
    ServeScriptVerifier,
    fields_not_in_files,
)
from parc.backends.shared.serving.verify_router import RouterFormat
from parc.backends.shared.serving.verify_serve_script import (
    ScriptProcess,
    ScriptWord,
    ServeFormat,
    ServeScript,
)
from parc.backends.shared.verify_environment import network_variables
from parc.backends.verifier import DerivedSetting, FileDependencies
from parc.backends.vllm.verify_settings import (
    PACKAGE,
    PARTITION,
    PlannedCommand,
    read_flag_settings,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import MalformedFileError

SIZES = ("tensor-parallel", "pipeline-parallel", "prefill-context-parallel", "data-parallel")
"""Flags of the parallel sizes, without ``-size``, in the order of ``EngineSizes``."""
SCRIPT = "vllm/serve.sh"
RPC_PORT, SUPERVISOR_PORT = 29550, 9256
"""Default ports of vLLM. Engines that share a host use consecutive ports from these on."""
DEFAULT_PORT, DEFAULT_MASTER_PORT = 8000, 29501
HYBRID, EXTERNAL = "data-parallel-hybrid-lb", "data-parallel-external-lb"
SUPERVISED, RANK = "data-parallel-multi-port-external-lb", "data-parallel-rank"


@frozen
class EngineSizes:
    """Parallel sizes of one engine, which all of its processes receive as flags."""

    tp: int
    pp: int
    pcp: int
    dp: int

    @property
    def replica_ranks(self) -> int:
        """Number of ranks (one per GPU) in one data-parallel rank."""
        return self.tp * self.pp * self.pcp

    @property
    def world(self) -> int:
        """Number of ranks (one per GPU) in one engine."""
        return self.replica_ranks * self.dp


class VllmVerifier(ServeScriptVerifier):
    """Derives the ranks and settings of all engines from the processes that the script starts."""

    file = SCRIPT
    script = ServeFormat(
        SCRIPT,
        "vllm serve",
        "VLLM_HOST_IP",
        package=PACKAGE,
        channel_flag="--kv-transfer-config",
        channel=(
            ("channel_host", "VLLM_NIXL_SIDE_CHANNEL_HOST"),
            ("channel_port", "VLLM_NIXL_SIDE_CHANNEL_PORT"),
            ("channel_first", "5600"),
            ("channel_step", "100"),
        ),
    )
    partition = PARTITION
    router = RouterFormat("vllm-router", "--vllm-pd-disaggregation")
    builder = "vLLM"
    axes = ("replica", "dp", "pp", "cp", "tp")
    shared_axes = MappingProxyType({"ep": ("replica", "pp")})
    ray_entry = ("vllm", "vllm.entrypoints.cli.main", "VLLM_RAY_BUNDLE_INDICES")
    files = FileDependencies(references={SCRIPT: "$PARC_DIR/vllm/serve.sh"})
    not_in_files = fields_not_in_files(
        "vLLM",
        {
            "problem.endpoint.router_port": "only two pools have a router",
            "problem.launch.master_port": "only engines on several hosts use it",
            "problem.launch.program": "vLLM is the program",
        },
    )

    def engine_world(self, script: ServeScript) -> int:
        """Return the number of ranks of one engine."""
        return self._sizes(script).world

    def process_ranks(self, script: ServeScript, process: ScriptProcess) -> range:
        """Return the ranks that ``process`` runs, numbered within its engine."""
        return _process_ranks(process, self._sizes(script))

    def coordinates(self, script: ServeScript, rank: int) -> tuple[int, ...]:
        """Return (dp, pp, pcp, tp) of a rank."""
        return _rank_coordinates(rank, self._sizes(script))

    def command_settings(
        self, script: ServeScript, partition: ScriptWord | None, layers: int | None
    ) -> Iterable[DerivedSetting]:
        """Yield the settings in the flags of all processes."""
        command = PlannedCommand(SCRIPT, script.checkpoint, script.common, partition, executor="mp")
        return read_flag_settings(command, layers)

    def process_settings(self, script: ServeScript) -> Iterable[DerivedSetting]:
        """Yield the settings that follow from the set of processes."""
        sizes = self._sizes(script)
        deployment = read_deployment(script, sizes.replica_ranks, sizes.dp)
        return () if deployment is None else read_process_settings(script, deployment)

    def expected_processes(self, script: ServeScript) -> Iterable[ExpectedProcess] | None:
        """Return the processes that the sizes and the load balancing imply."""
        sizes = self._sizes(script)
        deployment = read_deployment(script, sizes.replica_ranks, sizes.dp)
        return None if deployment is None else expected_processes(deployment)

    def _sizes(self, script: ServeScript) -> EngineSizes:
        return EngineSizes(*self.shared_sizes(script, (f"{name}-size" for name in SIZES)))

    def read_command_settings(
        self,
        file: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        plan: Mapping[str, Any],
    ) -> Iterable[DerivedSetting]:
        """Yield the plan settings in a command that Ray runs.

        The command has the form ``serve CHECKPOINT ARGUMENT...``.
        """
        if len(words) < 2 or words[0] != "serve":
            raise MalformedFileError(file, 1, "the command is not serve CHECKPOINT ARGUMENT...")
        arguments = tuple(ScriptWord(word, 1) for word in long_flags(PACKAGE, words[2:]))
        split = environment.get(PARTITION)
        partition = None if split is None else ScriptWord(split, 1)
        command = PlannedCommand(file, ScriptWord(words[1], 1), arguments, partition, "ray", True)
        yield from read_flag_settings(command, plan["problem"]["model"].get("layers"))

    def required_environment(
        self, plan: Mapping[str, Any], environment: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the variables that the network requires, as name -> value.

        If ``environment`` contains the variable with the layers per stage, the result contains this
        variable unchanged.
        """
        problem, layout = plan["problem"], plan["layout"]
        spanning = layout["engine_gpus"] > plan["placement"]["ranks_per_node"]
        split = {name: value for name, value in environment.items() if name == PARTITION}
        return {**(network_variables(problem) if spanning else {}), **split}


def _process_ranks(process: ScriptProcess, sizes: EngineSizes) -> range:
    """Return the ranks that ``process`` runs, numbered within its engine."""
    size, flags = sizes.replica_ranks, process.flags
    nodes = process.number("nnodes", 1)
    if nodes > 1:
        local, node = sizes.world // nodes, process.number("node-rank", 0)
        return range(node * local, (node + 1) * local)
    if "data-parallel-rank" in flags:
        first, local = process.number("data-parallel-rank", 0), 1
    else:
        first = process.number("data-parallel-start-rank", 0)
        local = process.number("data-parallel-size-local", sizes.dp)
    return range(first * size, (first + local) * size)


def _rank_coordinates(rank: int, sizes: EngineSizes) -> tuple[int, int, int, int]:
    """Return (dp, pp, pcp, tp), the mesh coordinates of a rank; tp varies fastest, dp slowest."""
    rank, tp = divmod(rank, sizes.tp)
    rank, pcp = divmod(rank, sizes.pcp)
    dp, pp = divmod(rank, sizes.pp)
    return dp, pp, pcp, tp


VERIFIER = VllmVerifier()


@frozen
class Deployment:
    """Engines and hosts of a service."""

    rank_gpus: int
    """GPUs per data-parallel rank."""
    dp: int
    hosts: int
    ranks_per_host: int
    balancer: str
    port: int
    master_port: int

    @property
    def engine_hosts(self) -> int:
        """Number of hosts per engine; 1 if several engines share a host."""
        return max(1, self.rank_gpus * self.dp // self.ranks_per_host)

    @property
    def engines_per_host(self) -> int:
        """Number of engines per host; 1 if an engine has several hosts."""
        return max(1, self.ranks_per_host // (self.rank_gpus * self.dp))

    @property
    def replicas(self) -> int:
        """Number of engines on all hosts."""
        return self.hosts // self.engine_hosts * self.engines_per_host

    def servers(self, own: dict[str, str]) -> int:
        """Return the number of API servers that a process starts.

        ``own`` contains the flags of the process.
        """
        if "headless" in own:
            return 0
        return self.dp // self.engine_hosts if SUPERVISED in own else 1


def read_deployment(script: ServeScript, rank_gpus: int, dp: int) -> Deployment | None:
    """Return the engines and hosts that the processes of the script imply.

    Return None if the first host has no GPU. ``rank_gpus`` is the number of GPUs per data-parallel
    rank.
    """
    processes = script.processes
    first = [one for one in processes if one.node == processes[0].node] if processes else []
    gpus = sum(len(one.devices) for one in first)
    if not gpus:
        return None
    balancer = "internal"
    for one in processes:
        if HYBRID in one.own:
            balancer = "hybrid"
        elif {EXTERNAL, SUPERVISED, RANK} & one.own.keys():
            balancer = "external"
    port = next((one for one in processes if "port" in one.own), None)
    master = next((one for one in processes if "master-port" in one.own), None)
    return Deployment(
        rank_gpus,
        dp,
        len({one.node for one in processes}),
        gpus,
        balancer,
        port.number("port", DEFAULT_PORT) if port else DEFAULT_PORT,
        master.number("master-port", DEFAULT_MASTER_PORT) if master else DEFAULT_MASTER_PORT,
    )


def expected_processes(plan: Deployment) -> Iterator[ExpectedProcess]:
    """Yield the processes that ``plan`` implies, in the order of the script."""
    each = plan.ranks_per_host // plan.engines_per_host
    for node in range(plan.hosts):
        for slot in range(plan.engines_per_host):
            own = _expected_flags(plan, node, slot)
            servers = plan.servers(own)
            first = plan.port + slot * servers
            if servers:
                own = {**own, "port": str(first)}
            yield ExpectedProcess(
                node,
                tuple(range(slot * each, (slot + 1) * each)),
                own,
                tuple(range(first, first + servers)),
            )


def _expected_flags(plan: Deployment, node: int, slot: int) -> dict[str, str]:
    """Return the flags of a process, except the port of its API server.

    ``node`` is the node rank of the host. ``slot`` is the index of the engine on the host if
    several engines share the host.
    """
    hosts = plan.engine_hosts
    if hosts == 1:
        rpc = {"data-parallel-rpc-port": str(RPC_PORT + slot)} if plan.dp > 1 else {}
        own = plan.dp > 1 and plan.balancer == "external"
        return {**rpc, **(_supervisor_process_flags(plan.dp, slot) if own else {})}
    part = node % hosts
    head = f"host {node - part}"
    meeting = {"data-parallel-address": head, "data-parallel-rpc-port": str(RPC_PORT)}
    if plan.dp == 1 or plan.rank_gpus > plan.ranks_per_host:
        flags = {"nnodes": str(hosts), "node-rank": str(part), "master-addr": head}
        flags["master-port"] = str(plan.master_port)
        external = plan.dp > 1 and plan.balancer == "external"
        flags |= meeting if plan.dp > 1 else {}
        flags |= {EXTERNAL: ""} if external else {}
        # Only the first host of a data-parallel rank can run its API server.
        serves = part % (hosts // plan.dp) == 0 if external else part == 0
        return flags if serves else {**flags, "headless": ""}
    return {**_flags_of_whole_ranks(plan, part), **meeting}


def _flags_of_whole_ranks(plan: Deployment, part: int) -> dict[str, str]:
    """Return the flags of a process that runs one or more complete data-parallel ranks.

    ``part`` is the index of the host among the hosts of the engine.
    """
    local = plan.dp // plan.engine_hosts
    start = {"data-parallel-start-rank": str(part * local)}
    size = {"data-parallel-size-local": str(local)}
    if plan.balancer == "internal":
        return {**size, **start, "headless": ""} if part else size
    if local == 1:
        return {RANK: str(part)}
    if plan.balancer == "hybrid":
        return {HYBRID: "", **size, **start}
    return {**_supervisor_process_flags(local, 0), **start}


def _supervisor_process_flags(local: int, slot: int) -> dict[str, str]:
    """Return the flags that make a supervisor start one API server per data-parallel rank.

    ``local`` is the number of these ranks on the host; ``slot`` is the index of the engine there.
    """
    return {
        SUPERVISED: "",
        "data-parallel-size-local": str(local),
        "data-parallel-supervisor-port": str(SUPERVISOR_PORT + slot),
    }


def read_process_settings(script: ServeScript, plan: Deployment) -> Iterator[DerivedSetting]:
    """Yield the plan settings that follow from the set of processes.

    The settings are engines, hosts, ports and load balancing.
    """
    line = script.processes[0].line
    engine = plan.rank_gpus * plan.dp
    sizes = {
        "layout.rank_gpus": plan.rank_gpus,
        "layout.engine_gpus": engine,
        "layout.replicas": plan.replicas,
        "layout.gpus": script.node_count * plan.ranks_per_host,
        "placement.ranks_per_node": plan.ranks_per_host,
    }
    for path, value in sizes.items():
        yield DerivedSetting(path, value, SCRIPT, line, f"{len(script.processes)} processes")
    port, master = ("port", "problem.endpoint.port"), ("master-port", "problem.launch.master_port")
    for (flag, path), value in ((port, plan.port), (master, plan.master_port)):
        first = next((one for one in script.processes if flag in one.own), None)
        if first is not None:
            yield DerivedSetting(path, value, SCRIPT, first.line, f"--{flag} {value}")
    path = "problem.endpoint.load_balancer"
    yield DerivedSetting(path, _equivalent_balancers(script, plan), SCRIPT, line)
    if script.hosts:
        hosts = list(script.hosts)
        yield DerivedSetting("placement.hosts", hosts, SCRIPT, script.hosts_line, " ".join(hosts))


def _equivalent_balancers(script: ServeScript, plan: Deployment) -> frozenset[str]:
    """Return the kinds of load balancing for which PARC emits the same flags as in ``script``."""
    if plan.dp == 1:
        return frozenset({"internal", "hybrid", "external"})
    # With one data-parallel rank per host, hybrid and external are the same.
    if any(RANK in one.own for one in script.processes):
        return frozenset({"hybrid", "external"})
    whole = plan.engine_hosts > 1 and plan.rank_gpus <= plan.ranks_per_host
    if plan.balancer == "internal" and not whole:
        return frozenset({"internal", "hybrid"})
    return frozenset({plan.balancer})
