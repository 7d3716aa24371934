"""Verifier of ``tensorrt-llm/``: it derives the ranks and settings that TensorRT-LLM starts with.

MPI numbers the ranks of an engine host by host (start.sh), and the coordinates of a rank follow
from its number (mapping.py, class Mapping). The placement code is not used. Flags, keys and their
defaults are those of TensorRT-LLM 1.0 to 1.2: commands/serve.py and llmapi/llm_args.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from parc.backends.shared.serving.verify_aliases import accepts_aliases
from parc.backends.shared.serving.verify_engine import (
    ExpectedProcess,
    ServeScriptVerifier,
    fields_not_in_files,
)
from parc.backends.shared.serving.verify_serve_script import (
    ScriptProcess,
    ScriptWord,
    ServeFormat,
    ServeScript,
)
from parc.backends.shared.serving.verify_shared_flags import SharedFlags, read_shared_flags
from parc.backends.shared.verify_known_lines import known_lines
from parc.backends.shared.verify_known_lines import read_script as read_commands
from parc.backends.verifier import DerivedRank, DerivedSetting, FileDependencies
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_program import verify_program
from parc.compiler.verify.verify_settings import (
    PLAN,
    EmittedSettings,
    read_plan,
    translate_name,
    yaml_settings,
)

SIZES = ("tp-size", "pp-size")
DEFAULT_PORT = 8000
MPI_INTERFACE = "OMPI_MCA_btl_tcp_if_include"
SCRIPT, START = "tensorrt-llm/serve.sh", "tensorrt-llm/start.sh"
CONFIG = "tensorrt-llm/config.yaml"
EXTRA = "problem.launch.args"
PACKAGE = "parc.backends.tensorrt_llm"
VALUES = (
    *("tp_size", "pp_size", "ep_size", "max_batch_size", "max_num_tokens", "max_seq_len"),
    *("backend", "host"),
)
ACTIVATIONS = {"bfloat16": "bf16", "float16": "fp16"}
ATTENTION_DP = "enable_attention_dp"
BLACKWELL = 10
"""Major compute capability from which experts with fp8 weights in blocks need DEEPGEMM."""


class TensorrtLlmVerifier(ServeScriptVerifier):
    """Derives the ranks and settings of all engines from the script and config.yaml."""

    file = SCRIPT
    script = ServeFormat(
        SCRIPT,
        'bash "${BASH_SOURCE[0]%serve.sh}start.sh"',
        "",
        exports_hosts=True,
        package=PACKAGE,
    )
    partition = MPI_INTERFACE
    builder = "TensorRT-LLM"
    axes = ("replica", "pp", "dp", "cp", "tp")
    shared_axes = MappingProxyType({"ep": ("replica", "pp")})
    files = FileDependencies(
        references={SCRIPT: "$PARC_DIR/tensorrt-llm/serve.sh"},
        required_by=((START, SCRIPT), (CONFIG, SCRIPT)),
    )
    not_in_files = fields_not_in_files(
        "TensorRT-LLM",
        {
            "limits.block_tokens": "follows from tokens_per_block",
            "problem.endpoint.load_balancer": "always internal",
            "problem.endpoint.router_port": "TensorRT-LLM has no router",
            "problem.launch.master_port": "MPI finds the ranks",
            "problem.launch.program": "trtllm-serve is the program",
            "problem.service.setup.block": "follows from the checkpoint",
            "problem.service.setup.accepted_tokens": "not emitted",
            "problem.service.setup.draft_tokens": "not emitted",
        },
    )

    def __init__(self, attention_dp: bool = False) -> None:
        """Store ``attention_dp``: True if all ranks of a stage are data-parallel ranks."""
        self.attention_dp = attention_dp

    def derive_ranks(
        self, artifacts: Mapping[str, str], sink: Sink
    ) -> dict[tuple[int, int], DerivedRank]:
        """Return the rank on each GPU, by (node rank, index of the GPU on its host)."""
        configured = TensorrtLlmVerifier(uses_attention_dp(artifacts))
        return super(TensorrtLlmVerifier, configured).derive_ranks(artifacts, sink)

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings in serve.sh and config.yaml."""
        if SCRIPT not in artifacts:
            return
        configured = TensorrtLlmVerifier(uses_attention_dp(artifacts))
        yield from super(TensorrtLlmVerifier, configured).derive_settings(artifacts)
        problem = read_plan(artifacts[PLAN])["problem"] if PLAN in artifacts else {}
        shared = read_shared(self.read(artifacts).common)
        yield from read_config_settings(read_config(artifacts), shared, problem)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report lines of serve.sh and start.sh that differ from those expected (A18)."""
        super().check_file_contents(artifacts, sink)
        if START in artifacts:
            needed = known_lines(__package__, "start.sh", set(), {})
            verify_program(START, read_commands(artifacts[START]).lines, needed, sink)

    def interface(self, script: ServeScript) -> ScriptWord | None:
        """Return the network interface of MPI; None if the script selects none."""
        found = script.exports.get(MPI_INTERFACE)
        return None if found is None else ScriptWord(*found)

    def engine_world(self, script: ServeScript) -> int:
        """Return the number of ranks of one engine: tp x pp."""
        tp, pp = self.shared_sizes(script, SIZES)
        return tp * pp

    def process_ranks(self, script: ServeScript, process: ScriptProcess) -> range:
        """Return the ranks of a process; each host of an engine runs equally many, in order."""
        nodes, node = process.number("nnodes", 1), process.number("node-rank", 0)
        if nodes < 1:
            raise MalformedFileError(SCRIPT, process.line, "--nnodes is 0, must be 1 or more")
        local = self.engine_world(script) // nodes
        return range(node * local, (node + 1) * local)

    def coordinates(self, script: ServeScript, rank: int) -> tuple[int, ...]:
        """Return (pp, dp, cp, tp) of a rank; PARC plans no context parallelism."""
        tp, _ = self.shared_sizes(script, SIZES)
        stage, within = divmod(rank, tp)
        return (stage, within, 0, 0) if self.attention_dp else (stage, 0, 0, within)

    def command_settings(
        self, script: ServeScript, partition: ScriptWord | None, layers: int | None
    ) -> Iterable[DerivedSetting]:
        """Yield the settings in the flags of all processes."""
        del partition, layers
        return read_flag_settings(script.checkpoint, read_shared(script.common), self.attention_dp)

    def process_settings(self, script: ServeScript) -> Iterator[DerivedSetting]:
        """Yield the settings that follow from the set of processes: engines, hosts and ports."""
        processes, world = script.processes, self.engine_world(script)
        line, (tp, pp) = processes[0].line, self.shared_sizes(script, SIZES)
        each = _gpus_of_first_host(script)
        settings = {
            "layout.rank_gpus": pp if self.attention_dp else tp * pp,
            "layout.engine_gpus": world,
            "layout.replicas": script.node_count * each // world,
            "layout.gpus": script.node_count * each,
            "placement.ranks_per_node": each,
        }
        for path, value in settings.items():
            yield DerivedSetting(path, value, SCRIPT, line, f"{len(processes)} processes")
        first = next((one for one in processes if "port" in one.own), None)
        if first is not None:
            port = first.number("port", DEFAULT_PORT)
            path = "problem.endpoint.port"
            yield DerivedSetting(path, port, SCRIPT, first.line, f"--port {port}")
        yield DerivedSetting("problem.endpoint.load_balancer", "internal", SCRIPT, line)
        if script.hosts:
            hosts = list(script.hosts)
            text = " ".join(hosts)
            yield DerivedSetting("placement.hosts", hosts, SCRIPT, script.hosts_line, text)

    def expected_processes(self, script: ServeScript) -> Iterable[ExpectedProcess] | None:
        """Return the processes that the sizes imply; None if the first host has no GPU."""
        each = _gpus_of_first_host(script)
        return _expected_processes(script, each, self.engine_world(script)) if each else None


def _gpus_of_first_host(script: ServeScript) -> int:
    """Return the number of GPUs that the processes of the first host use."""
    node = script.processes[0].node
    return sum(len(one.devices) for one in script.processes if one.node == node)


def _expected_processes(script: ServeScript, each: int, world: int) -> Iterator[ExpectedProcess]:
    """Yield the processes of all hosts in the order of the script.

    ``each`` is the number of GPUs per host, ``world`` the number of ranks of an engine.
    """
    hosts, engines = max(1, world // each), max(1, each // world)
    port = next((one for one in script.processes if "port" in one.own), None)
    base = port.number("port", DEFAULT_PORT) if port else DEFAULT_PORT
    for node in range(len({one.node for one in script.processes})):
        for slot in range(engines):
            part = node % hosts
            own = {} if part else {"port": str(base + slot)}
            if hosts > 1:
                own |= {"nnodes": str(hosts), "node-rank": str(part), "head": f"host {node - part}"}
            local = each // engines
            devices = tuple(range(slot * local, (slot + 1) * local))
            yield ExpectedProcess(node, devices, own, () if part else (base + slot,))


VERIFIER = TensorrtLlmVerifier()


def read_config(artifacts: Mapping[str, str]) -> EmittedSettings:
    """Return the settings of config.yaml; without the file, there are none."""
    return yaml_settings(CONFIG, artifacts.get(CONFIG, "{}"))


def uses_attention_dp(artifacts: Mapping[str, str]) -> bool:
    """Return True if every rank of a stage is a data-parallel rank."""
    return read_config(artifacts).values.get(ATTENTION_DP) is True


def read_shared(words: tuple[ScriptWord, ...]) -> SharedFlags:
    """Return the arguments, separated into flags of the plan and other words."""
    return read_shared_flags(SCRIPT, words, VALUES, ())


def read_flag_settings(
    checkpoint: ScriptWord, shared: SharedFlags, attention_dp: bool
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in the shared arguments.

    Args:
        checkpoint: the first word after the program.
        shared: arguments that all processes share.
        attention_dp: True if config.yaml sets enable_attention_dp.
    """
    tp, ep, one = shared["tp_size"], shared["ep_size"], shared["cp_size"]
    ranks = 1 if tp.text is None else tp.number
    yield tp.derive("layout.tp", 1 if attention_dp else ranks)
    yield tp.derive("layout.dp", ranks if attention_dp else 1)
    yield shared["pp_size"].derive("layout.pp", shared["pp_size"].number or 1)
    yield ep.derive("layout.ep", 1 if ep.text is None else ep.number)
    yield from (one.derive(f"layout.{name}", 1) for name in ("dcp", "pcp"))
    yield one.derive("layout.redundant_experts", None)
    yield one.derive("problem.pins.redundant_experts", None)
    yield one.derive("layout.all2all", "auto")
    yield one.derive("problem.service.setup.speculative", None)
    yield one.derive("problem.pins.all2all", None)
    for name, path in (
        ("max_batch_size", "limits.max_num_seqs"),
        ("max_num_tokens", "limits.max_num_batched_tokens"),
        ("max_seq_len", "limits.max_model_len"),
    ):
        yield shared[name].derive(path, shared[name].number)
    path = "problem.service.checkpoint"
    yield DerivedSetting(path, checkpoint.text, SCRIPT, checkpoint.line, checkpoint.text)
    extra = [word.text for word in shared.extra]
    line = shared.extra[0].line if shared.extra else 1
    # These flags have one valid value, which is not a setting of the plan.
    wrong = [
        word
        for name, value in (("host", "0.0.0.0"), ("backend", "pytorch"))
        if shared[name].text != value
        for word in (f"--{name}", shared[name].text or "")
    ]
    words = [*wrong, *extra]
    accepts = accepts_aliases(PACKAGE, words)
    yield DerivedSetting(EXTRA, words, SCRIPT, line, " ".join(extra), accepts)


def read_config_settings(
    config: EmittedSettings, shared: SharedFlags, problem: Mapping[str, Any]
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in config.yaml.

    Args:
        config: settings of config.yaml.
        shared: arguments that all processes share.
        problem: section ``problem`` of plan.json; empty if plan.json was not emitted.
    """
    config.get(ATTENTION_DP)  # the flags were read with it
    activations = translate_name(ACTIVATIONS, config.get("dtype", "auto"))
    weights: Any = activations
    if activations == "bf16":
        weights = frozenset({"bf16", "fp8", "int4", "nvfp4", "mxfp4"})
    yield config.derive("problem.service.setup.weights", weights, "dtype")
    cache = config.get("kv_cache_config.dtype", "auto")
    kv = activations if cache == "auto" else cache
    yield config.derive("problem.service.setup.kv", kv, "kv_cache_config.dtype")
    yield config.derive("problem.service.quantize", False)
    yield config.derive_from(
        "limits.gpu_memory_utilization", "kv_cache_config.free_gpu_memory_fraction", 0.9
    )
    reuse = "kv_cache_config.enable_block_reuse"
    yield config.derive_from("problem.service.prefix_caching", reuse, True)
    yield config.derive_from("problem.service.block_tokens", "kv_cache_config.tokens_per_block", 32)
    yield from config.require("enable_chunked_prefill", True, False)
    yield from config.require("cuda_graph_config.enable_padding", True, False)
    graphs = shared["max_batch_size"].number
    yield from config.require("cuda_graph_config.max_batch_size", graphs)
    layers = problem.get("model", {}).get("layers")
    yield from _read_stages(config, shared.size("pp_size"), layers)
    if problem:
        yield from config.require("moe_config.backend", _needed_moe_backend(problem))
    yield from config.unread_settings()


def _read_stages(
    config: EmittedSettings, stages: int, layers: int | None
) -> Iterator[DerivedSetting]:
    """Yield the number of layers of each pipeline stage.

    Without pp_partition, the first stages get the layers that remain after an even split
    (mapping.py, pp_layers).
    """
    path, partition = "layout.stages", config.get("pp_partition")
    if partition is not None:
        yield config.derive(path, partition, "pp_partition")
    elif stages == 1:
        yield DerivedSetting(path, [], CONFIG, accepts=lambda planned: len(planned) < 2)
    elif layers is not None and stages <= layers:
        split = [layers // stages + (stage < layers % stages) for stage in range(stages)]
        yield config.derive(path, split)


def _needed_moe_backend(problem: Mapping[str, Any]) -> str | None:
    """Return the kernels that the experts of the planned model need; None for the default.

    CUTLASS has no kernels for fp8 weights in blocks on Blackwell (documentation of DeepSeek-R1).
    """
    setup = problem["service"]["setup"]
    # Blocks of 128 weights are the usual ones of fp8.
    in_blocks = setup["weights"] == "fp8" and setup["block"] != 1
    blackwell = problem["cluster"]["gpu"]["compute_capability"][0] >= BLACKWELL
    has_experts = problem["model"]["experts"] is not None
    return "DEEPGEMM" if in_blocks and blackwell and has_experts else None
