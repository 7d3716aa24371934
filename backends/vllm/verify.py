"""Verifier of ``vllm/serve.sh``, which derives the ranks and settings that vLLM starts with.

The ranks of a process follow from its flags (engine/arg_utils.py, create_engine_config;
v1/executor/multiproc_executor.py), and the coordinates of a rank from its number
(distributed/parallel_state.py, initialize_model_parallel). The placement code is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from parc.backends.shared.verify_environment import (
    ExportedVariable,
    network_variables,
    read_environment_settings,
    verify_required_variables,
)
from parc.backends.shared.verify_launch_environment import inherited_names, read_setup_settings
from parc.backends.verifier import (
    DerivedRank,
    DerivedSetting,
    EngineVerifier,
    FileDependencies,
    JobShape,
)
from parc.backends.vllm.verify_processes import (
    DEFAULT_PORT,
    read_deployment,
    read_process_settings,
    verify_processes,
)
from parc.backends.vllm.verify_script import (
    SCRIPT,
    ScriptProcess,
    ScriptWord,
    ServeScript,
    compare_program,
    read_script,
)
from parc.backends.vllm.verify_settings import PARTITION, PlannedCommand, read_flag_settings
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError
from parc.compiler.verify.verify_program import report_program_change, verify_program
from parc.compiler.verify.verify_settings import PLAN, read_plan

SIZES = ("tensor-parallel", "pipeline-parallel", "prefill-context-parallel", "data-parallel")
"""Flags of the parallel sizes, without ``-size``, in the order of ``EngineSizes``."""
VENDORS = {"nvidia": "CUDA", "amd": "HIP"}
TRAFFIC = "expected traffic, used only to estimate the plan"
COMPUTED = "vLLM computes it at start-up"
MODEL = "vLLM reads the model from its checkpoint"


@dataclass(frozen=True, slots=True)
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


class VllmVerifier(EngineVerifier):
    """Derives the ranks and settings of all engines from the processes that the script starts."""

    file = SCRIPT
    builder = "vLLM"
    axes = ("replica", "dp", "pp", "cp", "tp")
    shared_axes = MappingProxyType({"ep": ("replica", "pp")})
    ray_entry = ("vllm", "vllm.entrypoints.cli.main", "VLLM_RAY_BUNDLE_INDICES")
    files = FileDependencies(references={SCRIPT: "$PARC_DIR/vllm/serve.sh"})
    not_in_files = MappingProxyType(
        {
            "limits.block_tokens": COMPUTED,
            "limits.blocks": COMPUTED,
            "limits.cache_tokens": COMPUTED,
            "limits.full_requests": COMPUTED,
            "limits.longest_blocks": COMPUTED,
            "limits.shards": "follows from layout.dcp",
            "problem.goals": "objectives of the search",
            "problem.launch.master_port": "only engines on several hosts use it",
            "problem.launch.program": "vLLM is the program",
            "problem.model": MODEL,
            "problem.pins": "the values are those of the layout",
            "problem.service.context": MODEL,
            "problem.service.traffic": TRAFFIC,
            "problem.service.max_model_len": "emitted as limits.max_model_len",
            "problem.service.setup.engine": "name of the cost model",
            "problem.service.setup.memory_share": "emitted as limits.gpu_memory_utilization",
            "problem.service.setup.max_running": "emitted as limits.max_num_seqs",
            "problem.service.setup.max_batched_tokens": "emitted as limits.max_num_batched_tokens",
            "problem.service.setup.overhead_bytes": "vLLM measures it at start-up",
            "problem.service.setup.block": "follows from the checkpoint and --quantization",
            "problem.service.setup.prefill_apart": "not emitted",
            "problem.service.setup.accepted_tokens": "not emitted",
            "problem.service.setup.draft_tokens": "not emitted",
        }
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the settings of the plan that ``vllm/serve.sh`` expresses."""
        if SCRIPT not in artifacts:
            return
        script, problem = read_script(artifacts[SCRIPT]), _planned_problem(artifacts)
        sizes = _read_sizes(script)
        partition = ScriptWord(*script.exports[PARTITION]) if PARTITION in script.exports else None
        command = PlannedCommand(SCRIPT, script.checkpoint, script.common, partition, executor="mp")
        yield from read_flag_settings(command, problem.get("model", {}).get("layers"))
        deployment = read_deployment(script, sizes.replica_ranks, sizes.dp)
        if deployment is not None:
            yield from read_process_settings(script, deployment)
        interface = script.interface
        yield DerivedSetting(
            "problem.launch.network_interface",
            interface.text if interface else None,
            SCRIPT,
            interface.line if interface else 1,
        )
        yield from read_setup_settings(SCRIPT, artifacts[SCRIPT])
        vendors = {variable: vendor for vendor, variable in VENDORS.items()}
        vendor = script.vendor
        yield DerivedSetting(
            "problem.cluster.gpu.vendor", vendors[vendor.text], SCRIPT, vendor.line
        )
        if problem:
            required, user = _expected_variables(problem, _has_spanning_engine(script))
            yield from read_environment_settings(
                SCRIPT, _checked_exports(script, user), required, user
            )

    def read_command_settings(
        self,
        file: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        plan: Mapping[str, Any],
    ) -> Iterable[DerivedSetting]:
        """Yield the settings of the plan that a command started by Ray expresses.

        The command has the form ``serve CHECKPOINT ARGUMENT...``.
        """
        if len(words) < 2 or words[0] != "serve":
            raise MalformedFileError(file, 1, "the command is not serve CHECKPOINT ARGUMENT...")
        arguments = tuple(ScriptWord(word, 1) for word in words[2:])
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

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report lines, processes and variables that differ from those that vLLM needs (A18)."""
        if SCRIPT not in artifacts:
            return
        script, problem = read_script(artifacts[SCRIPT]), _planned_problem(artifacts)
        inherited = inherited_names(artifacts[SCRIPT])
        result = compare_program(script, bool(problem and problem["launch"]["setup"]), inherited)
        verify_program(SCRIPT, result.found, result.expected, sink)
        sizes = _read_sizes(script)
        deployment = read_deployment(script, sizes.replica_ranks, sizes.dp)
        if deployment is not None:
            verify_processes(script, deployment, sink)
            if deployment.hosts != script.node_count:
                message = f"nodes is {script.node_count}, but {deployment.hosts} hosts start ranks"
                report_program_change(SCRIPT, script.nodes.line, message, sink)
        if problem:
            required, user = _expected_variables(problem, _has_spanning_engine(script))
            verify_required_variables(SCRIPT, _checked_exports(script, user), required, user, sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report a number of hosts (A07) or host names (A02) that differ from the rank map."""
        if SCRIPT not in artifacts:
            return
        script, hosts, span = read_script(artifacts[SCRIPT]), job.hosts, Span(SCRIPT, 1, 1)
        if script.node_count != len(hosts):
            message = f"nodes is {script.node_count} in {SCRIPT}, the rank map has {len(hosts)}"
            sink.report("A07", f"{message} hosts", span=span)
        if script.hosts and list(script.hosts) != hosts:
            pairs = enumerate(zip(script.hosts, hosts, strict=False))
            wrong = next((n for n, (mine, theirs) in pairs if mine != theirs), min(len(hosts), 1))
            message = f"the hosts of {SCRIPT} differ from those of the rank map"
            sink.report("A02", f"{message}, starting at node rank {wrong}", span=span)

    def api_ports(self, artifacts: Mapping[str, str]) -> Iterable[tuple[int, int]] | None:
        """Return (node rank, port) of each API server; None if the ports cannot be determined."""
        if SCRIPT not in artifacts:
            return None
        script = read_script(artifacts[SCRIPT])
        sizes = _read_sizes(script)
        deployment = read_deployment(script, sizes.replica_ranks, sizes.dp)
        if deployment is None:
            return None
        return [
            (process.node, process.number("port", DEFAULT_PORT) + number)
            for process in script.processes
            for number in range(deployment.servers(process.own))
        ]

    def derive_ranks(
        self, artifacts: Mapping[str, str], sink: Sink
    ) -> dict[tuple[int, int], DerivedRank]:
        """Return the rank on each GPU, by (node rank, index of the GPU on its host).

        Missing or repeated ranks are reported (A07).
        """
        script = read_script(artifacts[SCRIPT])
        sizes = _read_sizes(script)
        found: dict[tuple[int, int], DerivedRank] = {}
        engines: dict[int, list[int]] = {}
        for replica, process in zip(_engine_per_process(script), script.processes, strict=True):
            ranks, gpus = _process_ranks(process, sizes), len(process.devices)
            if len(ranks) != gpus:
                message = f"host {process.node} starts {len(ranks)} ranks on {gpus} GPUs"
                sink.report("A07", message, span=Span(SCRIPT, process.line, 1))
            # a damaged script may have any number of ranks, so that only those on GPUs are listed
            engines.setdefault(replica, []).extend(ranks[:gpus])
            for device, rank in zip(process.devices, ranks, strict=False):
                place = (replica, *_rank_coordinates(rank, sizes))
                found[process.node, device] = DerivedRank(replica * sizes.world + rank, place)
        _verify_engines(engines, sizes, sink)
        return found


def _planned_problem(artifacts: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the section ``problem`` of plan.json; empty if plan.json was not emitted."""
    return dict(read_plan(artifacts[PLAN])["problem"]) if PLAN in artifacts else {}


def _checked_exports(script: ServeScript, user: Mapping[str, str]) -> list[ExportedVariable]:
    """Return the exported variables that are compared with ``launch.env`` and the network.

    The variable with the layers per stage is left out unless the user sets it, because it is
    compared with ``layout.stages``.
    """
    exports = script.exports.items()
    return [
        ExportedVariable(name, *one) for name, one in exports if name != PARTITION or name in user
    ]


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
    # The environment of the launch determines the values of these.
    inherited = problem["launch"]["env_inherited"]
    return {name: value for name, value in required.items() if name not in inherited}, user


def _verify_engines(engines: Mapping[int, list[int]], sizes: EngineSizes, sink: Sink) -> None:
    """Report engines that lack a rank or have a rank twice (A07).

    ``engines`` maps the index of an engine to the ranks that its processes start.
    """
    for replica, ranks in engines.items():
        if len(ranks) != sizes.world or sorted(ranks) != list(range(sizes.world)):
            message = f"engine {replica} of {SCRIPT} has {len(ranks)} ranks"
            text = f"{message}, must have each of the ranks 0 to {sizes.world - 1} once"
            sink.report("A07", text, span=Span(SCRIPT, 1, 1))


def _engine_per_process(script: ServeScript) -> list[int]:
    """Return the index of the engine to which each process belongs.

    Processes with the same rendezvous host belong to the same engine.
    """
    engines: dict[tuple[int, int], int] = {}
    found, single = [], 0
    for process in script.processes:
        key = (process.head, -1) if process.head is not None else (process.node, single)
        single += process.head is None
        found.append(engines.setdefault(key, len(engines)))
    return found


def _read_sizes(script: ServeScript) -> EngineSizes:
    """Return the parallel sizes of the engines, which all processes must share.

    Raises:
        MalformedFileError: the sizes of two processes differ, or their product is out of range.
    """
    if not script.processes:
        raise MalformedFileError(SCRIPT, 1, "the script starts no process")
    found = {tuple(one.number(f"{name}-size", 1) for name in SIZES) for one in script.processes}
    if len(found) > 1:
        raise MalformedFileError(SCRIPT, 1, "the processes have different parallel sizes")
    sizes = EngineSizes(*found.pop())
    if not 0 < sizes.world <= LARGEST:
        raise MalformedFileError(
            SCRIPT, 1, f"the parallel sizes multiply to {sizes.world} ranks per engine"
        )
    return sizes


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
