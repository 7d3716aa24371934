"""Command line and configuration of trtllm-serve, transcribed from TensorRT-LLM's sources.

PyPI has only stubs of the wheels, so that the classes themselves cannot be imported. The options
are those of ``tensorrt_llm/commands/serve.py`` (function serve), parsed by click as there; the keys
are those of ``tensorrt_llm/llmapi/llm_args.py`` (class TorchLlmArgs and the classes of its fields),
which forbid other keys. ``Mapping`` follows ``tensorrt_llm/mapping.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

LAST = "1.2.1"
LOG_LEVELS = ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")
OPTIONS: tuple[tuple[str, tuple[str, ...], Any, Any], ...] = (
    ("1.0.0", ("--tokenizer",), str, None),
    ("1.0.0", ("--host",), str, "localhost"),
    ("1.0.0", ("--port",), int, 8000),
    (
        "1.0.0",
        ("--backend",),
        click.Choice(["pytorch", "tensorrt", "trt", "_autodeploy"]),
        "pytorch",
    ),
    ("1.0.0", ("--log_level",), click.Choice(LOG_LEVELS), "info"),
    ("1.0.0", ("--max_beam_width",), int, 1),
    ("1.0.0", ("--max_batch_size",), int, 2048),
    ("1.0.0", ("--max_num_tokens",), int, 8192),
    ("1.0.0", ("--max_seq_len",), int, None),
    ("1.0.0", ("--tp_size",), int, 1),
    ("1.0.0", ("--pp_size",), int, 1),
    ("1.0.0", ("--ep_size",), int, None),
    ("1.0.0", ("--cluster_size",), int, None),
    ("1.0.0", ("--gpus_per_node",), int, None),
    ("1.0.0", ("--kv_cache_free_gpu_memory_fraction",), float, 0.9),
    ("1.0.0", ("--num_postprocess_workers",), int, 0),
    ("1.0.0", ("--trust_remote_code",), bool, False),
    ("1.0.0", ("--extra_llm_api_options",), str, None),
    ("1.0.0", ("--reasoning_parser",), str, None),
    ("1.0.0", ("--metadata_server_config_file",), str, None),
    ("1.0.0", ("--server_role",), str, None),
    ("1.0.0", ("--fail_fast_on_attention_window_too_large",), bool, False),
    ("1.1.0", ("--disagg_cluster_uri",), str, None),
    ("1.1.0", ("--enable_chunked_prefill",), bool, False),
    ("1.1.0", ("--media_io_kwargs",), str, None),
    ("1.2.0", ("--tensor_parallel_size", "--tp_size"), int, 1),
    ("1.2.0", ("--pipeline_parallel_size", "--pp_size"), int, 1),
    ("1.2.0", ("--context_parallel_size", "--cp_size"), int, 1),
    ("1.2.0", ("--moe_expert_parallel_size", "--ep_size"), int, None),
    ("1.2.0", ("--moe_cluster_parallel_size", "--cluster_size"), int, None),
    ("1.2.0", ("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"), float, 0.9),
    ("1.2.0", ("--config", "--extra_llm_api_options"), str, None),
    ("1.2.0", ("--custom_tokenizer",), str, None),
    ("1.2.0", ("--custom_module_dirs",), str, None),
    ("1.2.0", ("--revision",), str, None),
    ("1.2.0", ("--tool_parser",), str, None),
    ("1.2.0", ("--otlp_traces_endpoint",), str, None),
    ("1.2.0", ("--chat_template",), str, None),
)
"""(First version, names, type, default) of each option; a later row replaces an earlier one."""


def options_of(version: str) -> dict[str, tuple[tuple[str, ...], Any, Any]]:
    """Return last name -> (names, type, default) of the options of ``version``."""
    return {
        names[-1]: (names, kind, default)
        for since, names, kind, default in OPTIONS
        if since <= version
    }


def command_of(version: str) -> click.Command:
    """Return the command ``trtllm-serve serve`` of a version; its callback is not used."""
    params: list[click.Parameter] = [click.Argument(["model"], type=str)]
    for names, kind, default in options_of(version).values():
        flag = {"is_flag": True} if kind is bool else {"type": kind}
        name = names[-1].removeprefix("--")
        params.append(click.Option([*names, name], default=default, **flag))
    return click.Command("serve", params=params)


class Strict(BaseModel):
    """Class with a fixed set of keys (class StrictBaseModel)."""

    model_config = ConfigDict(extra="forbid", strict=True)


class CudaGraphConfig(Strict):
    """Sizes of batches for which CUDA graphs are captured."""

    batch_sizes: list[int] | None = None
    max_batch_size: Annotated[int, Field(ge=0)] = 0
    enable_padding: bool = False


MOE_BACKENDS = Literal["CUTLASS", "CUTEDSL", "WIDEEP", "TRTLLM", "DEEPGEMM", "VANILLA"]


class MoeConfig(Strict):
    """Kernels of experts; TRITON and AUTO exist only in later versions, and no plan uses them."""

    backend: MOE_BACKENDS = "CUTLASS"
    max_num_tokens: int | None = None
    load_balancer: Any = None


CACHE_KEYS: dict[str, Any] = {
    "enable_block_reuse": (bool, True),
    "max_tokens": (int | None, None),
    "max_attention_window": (list[int] | None, None),
    "sink_token_length": (int | None, None),
    "free_gpu_memory_fraction": (Annotated[float, Field(ge=0, le=1)] | None, None),
    "host_cache_size": (int | None, None),
    "dtype": (str, "auto"),
}
KEYS: dict[str, Any] = {
    "tensor_parallel_size": (int, 1),
    "pipeline_parallel_size": (int, 1),
    "moe_expert_parallel_size": (int | None, None),
    "enable_attention_dp": (bool, False),
    "dtype": (str, "auto"),
    "enable_chunked_prefill": (bool, False),
    "max_batch_size": (int | None, None),
    "max_num_tokens": (int | None, None),
    "max_seq_len": (int | None, None),
    "cuda_graph_config": (CudaGraphConfig | None, None),
    "moe_config": (MoeConfig, MoeConfig()),
    "disable_overlap_scheduler": (bool, False),
    "stream_interval": (int, 1),
    "print_iter_log": (bool, False),
}


def config_class(version: str) -> type[BaseModel]:
    """Return the class of the configuration file of ``version``."""
    cache = CACHE_KEYS | ({"tokens_per_block": (int, 32)} if version >= "1.1.0" else {})
    keys = KEYS | ({"pp_partition": (list[int] | None, None)} if version >= "1.2.0" else {})
    cache_class = create_model("KvCacheConfig", __base__=Strict, **cache)
    return create_model(
        "TorchLlmArgs", __base__=Strict, kv_cache_config=(cache_class, None), **keys
    )


@dataclass(frozen=True)
class Mapping:
    """Sizes and groups of an engine, as class Mapping derives them."""

    world: int
    tp: int
    pp: int
    ep: int

    def __post_init__(self) -> None:
        """Raise ValueError for sizes that class Mapping rejects."""
        if self.tp * self.pp != self.world:
            raise ValueError(f"world_size {self.world} != {self.tp} * {self.pp}")
        if self.tp // self.ep * self.ep != self.tp:
            raise ValueError(f"tp_size {self.tp} != moe_tp_size * moe_ep_size {self.ep}")

    def groups(self, name: str) -> list[list[int]]:
        """Return the groups tp, pp or moe_ep."""
        if name == "pp":
            return [list(range(one, self.world, self.tp)) for one in range(self.tp)]
        each = self.tp if name == "tp" else self.ep
        return [list(range(one, one + each)) for one in range(0, self.world, each)]

    def pp_layers(self, layers: int) -> list[int]:
        """Return the number of layers per stage, as torch.tensor_split splits them."""
        return [math.ceil((layers - stage) / self.pp) for stage in range(self.pp)]


def parse(version: str, words: list[str], config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with which the server of ``version`` starts.

    The file replaces the values of flags, section by section (update_llm_args_with_extra_dict).

    Raises:
        ValueError: an option, a key or a value is invalid.
    """
    command = command_of(version)
    try:
        found = command.make_context("serve", list(words)).params
    except click.ClickException as error:
        raise ValueError(error.format_message()) from None
    try:
        keys = config_class(version).model_validate(config).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ValueError(str(error)) from None
    cache = {"free_gpu_memory_fraction": found["kv_cache_free_gpu_memory_fraction"]}
    return {"kv_cache_config": cache, **found, **keys}
