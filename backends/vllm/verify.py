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
from parc.backends.vllm.verify_processes import (
    SCRIPT,
    expected_processes,
    read_deployment,
    read_process_settings,
)
from parc.backends.vllm.verify_settings import PARTITION, PlannedCommand, read_flag_settings
from parc.compiler.verify.read_emitted import MalformedFileError

SIZES = ("tensor-parallel", "pipeline-parallel", "prefill-context-parallel", "data-parallel")
"""Flags of the parallel sizes, without ``-size``, in the order of ``EngineSizes``."""


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


class VllmVerifier(ServeScriptVerifier):
    """Derives the ranks and settings of all engines from the processes that the script starts."""

    file = SCRIPT
    script = ServeFormat(
        SCRIPT,
        "vllm serve",
        "VLLM_HOST_IP",
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
