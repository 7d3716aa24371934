"""Verifier of ``sglang/serve.sh``: it derives the ranks and settings that SGLang starts with.

The ranks of a process follow from its flags (entrypoints/engine.py,
_calculate_rank_ranges), and the coordinates of a rank from its number
(distributed/parallel_state.py, initialize_model_parallel). The placement code is not used.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from parc.backends.sglang.verify_settings import (
    PACKAGE,
    PARTITION,
    SCRIPT,
    read_flag_settings,
    read_shared,
)
from parc.backends.shared.serving.verify_engine import (
    ExpectedProcess,
    ServeScriptVerifier,
    fields_not_in_files,
)
from parc.backends.shared.serving.verify_router import RouterFormat, launcher_addresses
from parc.backends.shared.serving.verify_serve_script import (
    ScriptProcess,
    ScriptWord,
    ServeFormat,
    ServeScript,
)
from parc.backends.shared.verify_known_lines import read_script as read_commands
from parc.backends.shared.verify_known_lines import without_redundant_quotes
from parc.backends.verifier import DerivedSetting, FileDependencies
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_program import verify_program

ROUTER = "sglang/router.sh"
BOOTSTRAP, BOOTSTRAP_PORT = "disaggregation-bootstrap-port", 8998
SIZES = ("tp-size", "pp-size")
DEFAULT_PORT, DEFAULT_MASTER_PORT = 30000, 29501
RENDEZVOUS = "dist-init-addr"
RENDEZVOUS_PORTS = 8
"""Distance between the rendezvous ports of engines that share a host."""


@frozen
class Deployment:
    """Engines and hosts that the processes of a script imply."""

    dp: int
    world: int
    """Number of ranks of an engine."""
    hosts: int
    ranks_per_host: int
    port: int
    master_port: int
    is_prefill: bool
    """True if the engines are the prefill pool of a disaggregated service."""

    @property
    def engine_hosts(self) -> int:
        """Number of hosts per engine; 1 if several engines share a host."""
        return max(1, self.world // self.ranks_per_host)

    @property
    def engines_per_host(self) -> int:
        """Number of engines per host; 1 if an engine has several hosts."""
        return max(1, self.ranks_per_host // self.world)

    @property
    def replicas(self) -> int:
        """Number of engines on all hosts."""
        return self.hosts // self.engine_hosts * self.engines_per_host


class SglangVerifier(ServeScriptVerifier):
    """Derives the ranks and settings of all engines from the processes that the script starts."""

    file = SCRIPT
    script = ServeFormat(
        SCRIPT,
        "python3 -m sglang.launch_server --model-path",
        "SGLANG_HOST_IP",
        package=PACKAGE,
    )
    partition = PARTITION
    router = RouterFormat(
        "python3 -m sglang_router.launch_router", "--pd-disaggregation", BOOTSTRAP
    )
    builder = "SGLang"
    axes = ("replica", "pp", "dp", "cp", "tp")
    shared_axes = MappingProxyType({"ep": ("replica", "pp")})
    files = FileDependencies(references={SCRIPT: "$PARC_DIR/sglang/serve.sh"})
    not_in_files = fields_not_in_files(
        "SGLang",
        {
            "limits.block_tokens": "follows from the size of a page",
            "problem.endpoint.load_balancer": "always internal",
            "problem.endpoint.router_port": "only several engines have a router",
            "problem.launch.master_port": "only engines with several hosts or dp ranks use it",
            "problem.launch.program": "SGLang is the program",
        },
    )

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report lines of ``serve.sh`` and of the router that differ from those expected (A18)."""
        super().check_file_contents(artifacts, sink)
        if ROUTER not in artifacts or SCRIPT not in artifacts:
            return
        script = self.read(artifacts)
        port = _router_port(artifacts)[0]
        local = ("localhost",) if script.node_count == 1 else ()
        hosts = launcher_addresses(artifacts) or script.hosts or local
        needed = [
            without_redundant_quotes(line) for line in self._router_lines(script, hosts, port)
        ]
        verify_program(ROUTER, read_commands(artifacts[ROUTER]).lines, needed, sink)

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the plan settings in ``serve.sh`` and the router."""
        yield from super().derive_settings(artifacts)
        if ROUTER in artifacts:
            port, line = _router_port(artifacts)
            path = "problem.endpoint.router_port"
            yield DerivedSetting(path, port, ROUTER, line, f"--port {port}")

    def _router_lines(
        self, script: ServeScript, hosts: tuple[str, ...], port: int
    ) -> Iterator[str]:
        """Yield the commands of a router over all API servers that ``serve.sh`` starts.

        ``hosts`` are their addresses by node rank, empty if these are unknown, and ``port`` is the
        port of the router itself.
        """
        count, lists = script.node_count, 'read -ra hosts <<< "$PARC_HOSTS"'
        yield from ("#!/bin/bash", "set -euo pipefail")
        if hosts:
            yield f"hosts=({shlex.join(hosts)})"
            yield f"[[ -z ${{PARC_HOSTS:-}} ]] || {lists}"
        else:
            yield 'read -ra hosts <<< "${PARC_HOSTS:?set PARC_HOSTS to the hosts by node rank}"'
        yield f"[[ ${{#hosts[@]}} -eq {count} ]] || {{"
        word = "host" if count == 1 else "hosts"
        yield f"printf 'router.sh: PARC_HOSTS must have {count} {word}\\n' >&2"
        yield from ("exit 2", "}")
        servers = [
            (one.node, api) for one in self.expected_processes(script) or () for api in one.ports
        ]
        urls = " ".join(f'"http://${{hosts[{node}]}}:{api}"' for node, api in servers)
        yield (
            f"exec python3 -m sglang_router.launch_router --host 0.0.0.0 --port {port} "
            f'--worker-urls {urls} "$@"'
        )

    def engine_world(self, script: ServeScript) -> int:
        """Return the number of ranks of one engine: tp x pp."""
        tp, pp = self.shared_sizes(script, SIZES)
        return tp * pp

    def process_ranks(self, script: ServeScript, process: ScriptProcess) -> range:
        """Return the ranks of a process: whole stages per host, or hosts per stage."""
        tp, pp = self.shared_sizes(script, SIZES)
        nodes, node = process.number("nnodes", 1), process.number("node-rank", 0)
        if nodes < 1:
            raise MalformedFileError(SCRIPT, process.line, "--nnodes is 0, must be 1 or more")
        stages, hosts_per_stage = max(pp // nodes, 1), max(nodes // pp, 1)
        local = tp // hosts_per_stage
        first = stages * (node // hosts_per_stage) * tp + local * (node % hosts_per_stage)
        return range(first, first + (stages * tp if hosts_per_stage == 1 else local))

    def coordinates(self, script: ServeScript, rank: int) -> tuple[int, ...]:
        """Return (pp, dp, cp, tp) of a rank; SGLang has no context parallelism in PARC's plans."""
        tp, _ = self.shared_sizes(script, SIZES)
        (dp,) = self.shared_sizes(script, ("attn-dp-size",))
        stage, within = divmod(rank, tp)
        group, place = divmod(within, max(tp // dp, 1))
        return stage, group, 0, place

    def command_settings(
        self, script: ServeScript, partition: ScriptWord | None, layers: int | None
    ) -> Iterable[DerivedSetting]:
        """Yield the settings in the flags of all processes."""
        return read_flag_settings(script.checkpoint, read_shared(script.common), partition, layers)

    def process_settings(self, script: ServeScript) -> Iterator[DerivedSetting]:
        """Yield the settings that follow from the set of processes: engines, hosts and ports."""
        plan, line = self._deployment(script), script.processes[0].line
        if plan is None:
            return
        tp, pp = self.shared_sizes(script, SIZES)
        settings = {
            "layout.rank_gpus": tp // plan.dp * pp,
            "layout.engine_gpus": plan.world,
            "layout.replicas": plan.replicas,
            "layout.gpus": script.node_count * plan.ranks_per_host,
            "placement.ranks_per_node": plan.ranks_per_host,
        }
        for path, value in settings.items():
            yield DerivedSetting(path, value, SCRIPT, line, f"{len(script.processes)} processes")
        first = next((one for one in script.processes if "port" in one.own), None)
        if first is not None:
            path = "problem.endpoint.port"
            yield DerivedSetting(path, plan.port, SCRIPT, first.line, f"--port {plan.port}")
        rendezvous = next((one for one in script.processes if RENDEZVOUS in one.own), None)
        if rendezvous is not None:
            path, setting = (
                "problem.launch.master_port",
                f"--{RENDEZVOUS} {rendezvous.own[RENDEZVOUS]}",
            )
            yield DerivedSetting(path, plan.master_port, SCRIPT, rendezvous.line, setting)
        yield DerivedSetting("problem.endpoint.load_balancer", "internal", SCRIPT, line)
        if script.hosts:
            hosts = list(script.hosts)
            yield DerivedSetting(
                "placement.hosts", hosts, SCRIPT, script.hosts_line, " ".join(hosts)
            )

    def expected_processes(self, script: ServeScript) -> Iterable[ExpectedProcess] | None:
        """Return the processes that the sizes imply."""
        plan = self._deployment(script)
        return None if plan is None else _expected_processes(plan)

    def _deployment(self, script: ServeScript) -> Deployment | None:
        """Return the engines and hosts of the script; None if the first host has no GPU."""
        processes = script.processes
        (dp,) = self.shared_sizes(script, ("attn-dp-size",))
        world = self.engine_world(script)
        gpus = sum(len(one.devices) for one in processes if one.node == processes[0].node)
        if not gpus:
            return None
        port = next((one for one in processes if "port" in one.own), None)
        rendezvous = next((one.own[RENDEZVOUS] for one in processes if RENDEZVOUS in one.own), "")
        master = rendezvous.rpartition(":")[2]
        return Deployment(
            dp,
            world,
            len({one.node for one in processes}),
            gpus,
            port.number("port", DEFAULT_PORT) if port else DEFAULT_PORT,
            int(master) if master.isdecimal() and len(master) < 6 else DEFAULT_MASTER_PORT,
            read_shared(script.common)["disaggregation-mode"].text == "prefill",
        )


def _router_port(artifacts: Mapping[str, str]) -> tuple[int, int]:
    """Return (port of the router, line of the script); the default port if there is none."""
    for line, text in enumerate(artifacts[ROUTER].splitlines(), start=1):
        found = re.search(r"launch_router .*--port ([0-9]{1,5})(?= )", text)
        if found:
            return int(found[1]), line
    return DEFAULT_PORT, 1


def _expected_processes(plan: Deployment) -> Iterator[ExpectedProcess]:
    """Yield the processes that ``plan`` implies, in the order of the script."""
    each, hosts = plan.ranks_per_host // plan.engines_per_host, plan.engine_hosts
    for node in range(plan.hosts):
        for slot in range(plan.engines_per_host):
            part, port = node % hosts, plan.port + slot
            master = plan.master_port + slot * RENDEZVOUS_PORTS
            own = {} if part else {"port": str(port)}
            own |= {BOOTSTRAP: str(BOOTSTRAP_PORT + slot)} if plan.is_prefill else {}
            if hosts > 1:
                own |= {"nnodes": str(hosts), "node-rank": str(part)}
                own[RENDEZVOUS] = f"host {node - part}:{master}"
            elif plan.dp > 1:
                own[RENDEZVOUS] = f"127.0.0.1:{master}"
            devices = tuple(range(slot * each, (slot + 1) * each))
            yield ExpectedProcess(node, devices, own, () if part else (port,))


VERIFIER = SglangVerifier()
