"""Lint and import of TensorRT-LLM's commands and configuration files."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.tensorrt_llm.launch_files.import_command import read_settings, read_trtllm_args
from parc.backends.tensorrt_llm.launch_files.import_config import read_trtllm_yaml
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.lint.options import LintOptions
from tests import compiled
from tests.lint.scripts import codes
from tests.search.serving_specs import plan_of, spec

START = "trtllm-serve "
CONFIG = """\
tensor_parallel_size: 8
pp_partition: [30, 31]
max_num_tokens: 4096
enable_attention_dp: true
enable_chunked_prefill: true
kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.8, tokens_per_block: 64}
stream_interval: 10
"""


def imported(text: str, read: Any = read_trtllm_args) -> tuple[dict[str, Any], list[str]]:
    """Return the spec of a file and the codes of the findings about it."""
    sink = Sink()
    fragment = read(text, "run.sh", sink)
    assert fragment is not None
    return fragment.spec, [one.code.removeprefix("PARC-") for one in sink.diagnostics]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("org/model --tp_size 8", []),
        ("serve org/model --tp_size 8 --no_such_flag", ["F01"]),
        ("org/model --tp-size 8", ["F01"]),
        ("org/model --tp_size eight", ["F03"]),
        ("meta-llama/Llama-3.1-70B --tp_size 6", ["D01", "D02", "D06"]),
        ("meta-llama/Llama-3.1-70B --tensor_parallel_size 6", ["D01", "D02", "D06"]),
        ("--tp_size 8 --trust_remote_code Qwen/Qwen3-235B-A22B --ep_size 4", []),
        ("--tp_size 4 --trust_remote_code Qwen/Qwen3-235B-A22B --ep_size 8", ["M09"]),
        ("meta-llama/Llama-3.1-70B --tp_size 6 --config mine.yaml", []),
    ],
)
def test_lint_reports_invalid_flags_and_layouts(words: str, expected: list[str]) -> None:
    assert codes(START + words + "\n") == expected


def test_lint_knows_the_flags_of_a_version() -> None:
    text = START + "org/model --tensor_parallel_size 8\n"
    assert codes(text, LintOptions(version="1.1.0")) == ["F01"]


def test_a_command_behind_a_launcher_is_imported() -> None:
    tree, found = imported(
        "srun --mpi=pmix trtllm-llmapi-launch trtllm-serve --tp_size 16 deepseek-ai/DeepSeek-V3"
        " --moe_expert_parallel_size 16 --max_batch_size 64 --port 8001 --log_level error"
        " --kv_cache_free_gpu_memory_fraction 0.85 --unknown_flag 3\n"
    )
    assert found == ["I04"]
    assert tree["model"] == "deepseek-v3"
    assert tree["layout"] == {"tp": 16, "pp": 1, "ep": 16, "replicas": 1}
    assert tree["job"]["max_num_seqs"] == 64
    assert tree["launch"] == {"port": 8001, "args": ["--log_level", "error"]}
    assert tree["goals"] == {"memory_headroom": 0.15}
    assert tree["emit"] == ["tensorrt-llm", "rankmap"]


def test_a_configuration_file_is_imported() -> None:
    tree, found = imported(CONFIG, read_trtllm_yaml)
    assert found == ["I04"]
    assert tree["layout"] == {"tp": 1, "dp": 8, "stage_layers": [30, 31]}
    assert tree["goals"] == {"memory_headroom": 0.2}
    job = {"kv_precision": "fp8", "block_tokens": 64, "max_num_batched_tokens": 4096}
    assert tree["job"] == {"kind": "serve", **job}


def test_attention_data_parallelism_of_unknown_size_is_reported() -> None:
    tree, found = imported("enable_attention_dp: true\nmax_num_tokens: 64\n", read_trtllm_yaml)
    assert (found, "layout" in tree) == (["I04"], False)


def test_an_emitted_plan_is_imported_as_it_was() -> None:
    layout = {"tp": 8, "pp": 2, "dp": 1, "ep": "on", "replicas": 2, "stage_layers": [30, 31]}
    job = {"precision": "fp8", "max_num_seqs": 64, "checkpoint": "deepseek-ai/DeepSeek-V3"}
    tree = spec("deepseek-v3", "hgx-h200", 4, job=job, layout=layout) | {"emit": ["tensorrt-llm"]}
    files = compiled.emitted(plan_of(tree))
    script, found = imported(files["tensorrt-llm/serve.sh"])
    config, others = imported(files["tensorrt-llm/config.yaml"], read_trtllm_yaml)
    assert found == []
    assert others == ["I04"]  # the sizes of CUDA graphs follow from job.max_num_seqs
    assert script["layout"] == {"tp": 8, "pp": 2, "ep": 8, "replicas": 2}
    assert script["job"]["checkpoint"] == "deepseek-ai/DeepSeek-V3"
    assert config["layout"] == {"stage_layers": [30, 31]}
    settings = read_settings(files["tensorrt-llm/serve.sh"], "serve.sh")
    assert (settings["--tp_size"], settings["MODEL"]) == ("8", "deepseek-ai/DeepSeek-V3")


def test_the_serve_script_that_parc_writes_is_recognized() -> None:
    files = compiled.emitted(plan_of(spec("llama-3.1-8b", "dgx-h100", emit=["tensorrt-llm"])))
    assert codes(files["tensorrt-llm/serve.sh"]) == []
    wrong = files["tensorrt-llm/serve.sh"].replace("--max_batch_size", "--max_btch_size")
    assert codes(wrong) == ["F01"]
