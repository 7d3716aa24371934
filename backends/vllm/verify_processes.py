"""Flags of every process in ``vllm/serve.sh``, predicted from the parallel sizes.

Sources: vLLM 0.33, docs/serving/data_parallel_deployment.md; entrypoints/cli/serve.py (load
balancing, headless hosts); v1/executor/multiproc_executor.py (node ranks).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parc.backends.shared.serving.verify_engine import ExpectedProcess
from parc.backends.shared.serving.verify_serve_script import ServeScript
from parc.backends.verifier import DerivedSetting

SCRIPT = "vllm/serve.sh"
RPC_PORT, SUPERVISOR_PORT = 29550, 9256
"""Default ports of vLLM. Engines that share a host use consecutive ports from these on."""
DEFAULT_PORT, DEFAULT_MASTER_PORT = 8000, 29501
HYBRID, EXTERNAL = "data-parallel-hybrid-lb", "data-parallel-external-lb"
SUPERVISED, RANK = "data-parallel-multi-port-external-lb", "data-parallel-rank"


@dataclass(frozen=True, slots=True)
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
