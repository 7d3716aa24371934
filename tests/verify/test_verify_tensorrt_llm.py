"""Verification of TensorRT-LLM's files: sound files pass, changes are found."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests import compiled
from tests.compiled import verification_codes
from tests.search.serving_specs import plan_of, spec
from tests.verify.damage import swapped

V3 = {
    **{"precision": "fp8", "max_model_len": 4096, "checkpoint": "deepseek-ai/DeepSeek-V3"},
    **{"max_num_seqs": 64, "kv_precision": "fp8"},
}
HOSTS = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-4]"}]}
SCRIPT, CONFIG = "tensorrt-llm/serve.sh", "tensorrt-llm/config.yaml"
LAYOUTS: dict[str, dict[str, object]] = {
    "wide": {"dp": 32, "tp": 1, "ep": "on", "replicas": 1},
    "deep": {"tp": 8, "pp": 2, "dp": 1, "ep": "off", "replicas": 2, "stage_layers": [30, 31]},
    "many": {"tp": 4, "dp": 1, "ep": "on", "pp": 1, "replicas": 8},
}


@cache
def emitted(name: str) -> dict[str, str]:
    """Return the files of DeepSeek-V3 on four hosts with one of the layouts."""
    node = {"cluster": HOSTS, "emit": ["rankmap", "slurm", "tensorrt-llm"]}
    launch = {"args": ["--trust_remote_code"], "env": {"A": "1"}, "network_interface": "eth0"}
    model = {"base": "deepseek-v3", "layers": 31} if name == "many" else "deepseek-v3"
    layout = LAYOUTS[name]
    return compiled.emitted(
        plan_of(spec(model, "hgx-h200", job=V3, layout=layout, launch=launch) | node)
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_emitted_files_pass(name: str) -> None:
    assert verification_codes(emitted(name)) == set()


DEFAULTS = ("--pp_size 1", "enable_block_reuse: true")
"""Lines with the default of TensorRT-LLM, whose absence changes nothing."""


@pytest.mark.parametrize("name", ["deep", "wide"])
def test_every_missing_line_and_every_changed_number_is_found(name: str) -> None:
    files = emitted(name)
    missed = []
    for path, number, line in _settings(files):
        lines = files[path].split("\n")
        edits = ["\n".join([*lines[:number], *lines[number + 1 :]])]
        if re.search(r"[0-9]$", line):
            edits.append("\n".join([*lines[:number], lines[number] + "1", *lines[number + 1 :]]))
        missed += [
            (line, at)
            for at, text in enumerate(edits)
            if not verification_codes(files | {path: text}) and (at or line not in DEFAULTS)
        ]
    assert missed == []


def _settings(files: dict[str, str]) -> list[tuple[str, int, str]]:
    """Return (file, index of the line, text) of each flag and each key with a value."""
    script = files[SCRIPT].split("\n")
    first, last = script.index("common=("), script.index(")")
    flags = [(SCRIPT, at, script[at].strip()) for at in range(first + 1, last)]
    keys = [(CONFIG, at, line.strip()) for at, line in enumerate(files[CONFIG].split("\n"))]
    wanted = [one for one in (*flags, *keys) if one[2] and not one[2].startswith("#")]
    return [one for one in wanted if not one[2].endswith(":")]


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "code"),
    [
        ("deep", SCRIPT, "--node_rank 1", "--node_rank 0", "A05"),
        ("deep", SCRIPT, "--nnodes 2", "--nnodes 1", "A07"),
        ("deep", SCRIPT, "--tp_size 8", "--tp_size 4", "A05"),
        ("deep", SCRIPT, "--pp_size 2", "--pp_size x", "A04"),
        ("deep", SCRIPT, '--head "${hosts[2]}"', '--head "${hosts[1]}"', "A18"),
        ("deep", SCRIPT, "hosts=(h1 h2", "hosts=(h2 h1", "A02"),
        ("deep", SCRIPT, 'PARC_HOSTS="${hosts[*]}"', "PARC_HOSTS=h1", "A18"),
        ("deep", SCRIPT, "if_include=eth0", "if_include=eth1", "A14"),
        ("deep", CONFIG, "pp_partition: [30, 31]", "pp_partition: [31, 30]", "A14"),
        ("wide", CONFIG, "enable_attention_dp: true", "enable_attention_dp: false", "A01"),
        ("wide", SCRIPT, "start 0,1,2,3,4,5,6,7", "start 0,1,2,3,4,5,6", "A05"),
        ("many", CONFIG, "dtype: fp8", "dtype: auto", "A14"),
        ("many", CONFIG, "dtype: bfloat16", "dtype: float16", "A14"),
        ("many", CONFIG, "enable_padding: true", "enable_padding: false", "A14"),
        ("many", CONFIG, "enable_chunked_prefill: true", "unknown_key: 1", "A14"),
        ("many", CONFIG, "kv_cache_config:", "kv_cache_config: [", "A04"),
        ("many", SCRIPT, "--port 8000", "--port 8010", "A14"),
        ("many", SCRIPT, "--trust_remote_code", "--log_level", "A14"),
        ("many", SCRIPT, "start.sh", "other.sh", "A04"),
        ("many", "tensorrt-llm/start.sh", "--map-by slot", "--map-by node", "A18"),
    ],
)
def test_a_change_is_found(name: str, file: str, old: str, new: str, code: str) -> None:
    assert code in verification_codes(swapped(file, old, new)(emitted(name)))


@pytest.mark.parametrize("file", [CONFIG, "tensorrt-llm/start.sh"])
def test_a_missing_file_is_found(file: str) -> None:
    files = {path: text for path, text in emitted("many").items() if path != file}
    assert verification_codes(files)


@pytest.mark.parametrize("size", ["0", "999999999"])
@pytest.mark.parametrize("flag", ["--tp_size", "--pp_size"])
def test_a_damaged_size_is_reported(flag: str, size: str) -> None:
    files = emitted("deep")
    text = re.sub(rf"{flag} \d+", f"{flag} {size}", files[SCRIPT])
    assert verification_codes(files | {SCRIPT: text}) & {"A01", "A04", "A07"}
