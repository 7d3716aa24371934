"""Lint and import of SGLang's commands."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.sglang.arguments import PACKAGE
from parc.backends.sglang.launch_files.import_command import read_settings, read_sglang_args
from parc.backends.shared.extra_arguments import removed_flags, rows_of_known_flags
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests import compiled
from tests.lint.scripts import codes
from tests.search.serving_specs import plan_of, spec

START = "python3 -m sglang.launch_server --model-path "
OLD = START + "deepseek-ai/DeepSeek-V3 --tp 16 --dp-size 4 --enable-dp-attention "


def imported(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the spec of a command and the codes of what is said about it."""
    sink = Sink()
    fragment = read_sglang_args(text, "run.sh", sink)
    assert fragment is not None
    return fragment.spec, [one.code.removeprefix("PARC-") for one in sink.diagnostics]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("org/model --tp 8", []),
        ("org/model --tp-size 8 --no-such-flag", ["F01"]),
        ("org/model --pp 2", ["F01"]),
        ("org/model --tp-size eight", ["F03"]),
        ("org/model --tp-size 6 --attn-dp-size 4", ["D01"]),
        ("meta-llama/Llama-3.1-70B --tp 6", ["D01", "D02", "D06"]),
        ("meta-llama/Llama-3.1-8B --tp 8 --attn-dp-size 2", ["V11"]),
        ("Qwen/Qwen3-235B-A22B --tp 8 --ep 4", ["M09"]),
        ("org/model --tp 8 --enable-dp-lm-head", ["V11"]),
    ],
)
def test_lint_reports_invalid_flags_and_layouts(words: str, expected: list[str]) -> None:
    assert codes(START + words + "\n") == expected


def test_the_data_parallel_ranks_of_the_old_flags_are_part_of_the_tensor_parallel_size() -> None:
    assert codes(OLD + "--ep-size 16\n", LintOptions(model="deepseek-v3")) == []
    tree, said = imported(OLD + "--chunked-prefill-size 32k --max-running-requests 256\n")
    assert said == []
    assert (tree["layout"]["tp"], tree["layout"]["dp"], tree["layout"]["ep"]) == (4, 4, "off")
    assert tree["job"]["max_num_batched_tokens"] == 8000
    assert tree["job"]["max_num_seqs"] == 64


def test_dp_size_without_attention_data_parallelism_starts_replicas() -> None:
    tree, _ = imported(START + "meta-llama/Llama-3.1-8B --tp 2 --dp-size 4\n")
    assert (tree["layout"]["tp"], tree["layout"]["dp"], tree["layout"]["replicas"]) == (2, 1, 4)


def test_other_flags_become_launch_arguments_and_bad_ones_are_reported() -> None:
    text = (
        START + "org/m --tp 2 --hierarchical-sparse-attention-extra-config x "
        "--schedule-policy lpm --deepep-mode low_latency\n"
    )
    tree, said = imported(text)
    assert tree["launch"]["args"] == ["--hisparse-config", "x", "--schedule-policy", "lpm"]
    assert said == ["I04"]


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": 8, "pp": 2, "dp": 1, "ep": "off", "replicas": 2, "stage_layers": [31, 30]},
        {"tp": 4, "pp": 1, "dp": 2, "ep": "on", "replicas": 4, "all2all": "nixl_ep"},
    ],
)
def test_an_emitted_script_is_imported_as_the_spec_that_it_was_emitted_for(
    layout: dict[str, Any],
) -> None:
    checkpoint = "deepseek-ai/DeepSeek-V3"
    job = {"precision": "fp8", "max_model_len": 4096, "max_num_seqs": 32, "checkpoint": checkpoint}
    tree = spec("deepseek-v3", "hgx-h200", 4, job=job, layout=layout) | {"emit": ["sglang"]}
    script = compiled.emitted(plan_of(tree))["sglang/serve.sh"]
    found, said = imported(script)
    assert said == []
    wanted = layout | {"ep": 8 if layout["ep"] == "on" else "off"}
    assert {name: found["layout"][name] for name in layout} == wanted | (
        {"ep": "on"} if "all2all" in layout else {}
    )
    assert (found["model"], found["job"]["max_num_seqs"]) == ("deepseek-v3", 32)
    assert found["goals"]["memory_headroom"] == 0.08
    settings = read_settings(script, "serve.sh")
    assert settings["MODEL"] == "deepseek-ai/DeepSeek-V3"
    assert settings["--max-running-requests"] == str(32 * layout["dp"])


def test_the_replacement_of_a_removed_flag_is_a_current_flag() -> None:
    rows = rows_of_known_flags(PACKAGE)
    assert list(removed_flags(PACKAGE)) == sorted(removed_flags(PACKAGE))
    for flag, row in removed_flags(PACKAGE).items():
        assert flag not in rows
        assert "instead" not in row or row["instead"].split()[0] in rows, flag


@pytest.mark.parametrize(
    ("flag", "release", "advice"),
    [
        ("--enable-ep-moe", "0.5.3", "--ep-size"),
        ("--enable-deepep-moe", "0.5.3", "--moe-a2a-backend deepep"),
        ("--cuda-graph-max-bs", "0.5.19", "--cuda-graph-max-bs-decode"),
        ("--nsa-decode-backend", "0.5.19", "--dsa-decode-backend"),
    ],
)
def test_a_removed_flag_is_named_with_its_replacement(flag: str, release: str, advice: str) -> None:
    sink, _ = lint_text(f"{START}org/model {flag} 8\n", "run.sh", LintOptions())
    (finding,) = (one.finding for one in sink.diagnostics if one.code == "PARC-F01")
    assert f"{flag} was removed after release {release}" in finding.label
    assert advice in finding.help + finding.fix
