"""megatron/args.sh: what a shell reads from it, and what launch.args may add."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from parc.backends.megatron.args_file import args_file
from parc.backends.megatron.environment import environment
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan
from tests.backends.megatron.boundaries import DENSE, ROUTED
from tests.compiled import changed, planned


def plan(base: dict[str, Any], changes: dict[str, Any]) -> tuple[AnyPlan | None, Sink]:
    return planned(changed({**base, "launch": {}}, changes))


def words(text: str) -> list[str]:
    """The array as bash reads it."""
    script = text + 'printf "%s\\0" "${MEGATRON_ARGS[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def emitted(base: dict[str, Any], changes: dict[str, Any]) -> list[str]:
    found, sink = plan(base, changes)
    assert found is not None, sink.diagnostics
    return words(args_file(found).text)


def test_one_flag_stands_on_one_line_under_the_header_of_its_group() -> None:
    found, _ = plan(ROUTED, {})
    assert found is not None
    text = args_file(found).text
    inside = text.split("(\n", 1)[1].rsplit(")", 1)[0].splitlines()
    assert all(re.fullmatch(r"  (# [a-z]+|--[a-z0-9-]+( \S+)*)", line) for line in inside)
    headers = [line.strip("# ") for line in inside if "#" in line]
    assert headers[:4] == ["model", "experts", "parallelism", "pipeline"][: len(headers[:4])] or (
        "pipeline" not in headers
    )
    assert text.endswith(")\n")


@pytest.mark.parametrize("value", ["/data/a b", "$(touch x)", "it's", '"; rm', "a\nb", "`id`", "*"])
def test_a_hostile_value_is_one_inert_word(value: str) -> None:
    argv = emitted(DENSE, {"job.data": [value], "job.checkpoint_dir": "/ckpt"})
    assert argv[argv.index("--data-path") + 1] == value
    assert "--mock-data" not in argv


def test_a_layout_string_survives_the_shell() -> None:
    argv = emitted(DENSE, {"layout.pipeline_layout": "Et*9|t*7L"})
    assert argv[argv.index("--pipeline-model-parallel-layout") + 1] == "Et*9|t*7L"
    assert "--num-virtual-stages-per-pipeline-rank" not in argv


def test_a_dense_model_names_its_expert_tensor_degree_too() -> None:
    argv = emitted(DENSE, {})
    assert argv[argv.index("--expert-tensor-parallel-size") + 1] == "4"
    assert "--sequence-parallel" in argv


def test_extra_arguments_come_last_as_they_are() -> None:
    extra = ["--log-interval-x"]
    found, sink = plan(DENSE, {"launch.args": extra})
    assert found is None
    assert [d.code for d in sink.diagnostics if d.severity == "error"] == ["PARC-F01"]
    argv = emitted(DENSE, {"launch.args": ["--tensorboard-dir", "a b", "--seed", "7"]})
    assert argv[-4:] == ["--tensorboard-dir", "a b", "--seed", "7"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--tensor-parallel-size", "8"], "F01"),
        (["stray"], "F01"),
        (["--hidden-size", "8"], "F02"),
        (["--seed", "1", "--seed", "2"], "F02"),
        (["--seed", "one"], "F03"),
        (["--seed"], "F03"),
        (["--seed", "1", "2"], "F03"),
        (["--optimizer", "adamw"], "F03"),
        (["--manual-gc", "yes"], "F03"),
        (["--recompute-modules"], "F03"),
    ],
)
def test_an_extra_argument_that_the_parser_refuses_is_an_error_at_its_place(
    args: list[str], code: str
) -> None:
    _, sink = plan(DENSE, {"launch.args": args})
    found = [d for d in sink.diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [f"PARC-{code}"]
    assert found[0].path.startswith("launch.args[")


def test_an_unknown_flag_gets_its_nearest_spellings() -> None:
    _, sink = plan(DENSE, {"launch.args": ["--sead", "7"]})
    found = next(d for d in sink.diagnostics if d.code == "PARC-F01")
    assert found.finding.fix == "--seed"


def test_a_flag_of_a_later_version_is_refused_for_an_earlier_one() -> None:
    yarn = {"model.position.kind": "yarn", "model.position.scaling_factor": 4.0}
    argv = emitted(DENSE, yarn)
    assert "--yarn-original-max-position-embeddings" in argv
    found, sink = plan({**DENSE, "versions": {"megatron": "0.18"}}, yarn)
    assert found is None
    assert "PARC-E04" in {d.code for d in sink.diagnostics}


@pytest.mark.parametrize(
    ("node", "changes", "wanted"),
    [
        ("dgx-h100", {"layout.tp": 4}, (("CUDA_DEVICE_MAX_CONNECTIONS", "1"),)),
        ("dgx-h100", {"layout.tp": 1, "layout.cp": 2}, (("CUDA_DEVICE_MAX_CONNECTIONS", "1"),)),
        ("dgx-h100", {"layout.tp": 1}, ()),
        ("dgx-b200", {"layout.tp": 4}, ()),
    ],
)
def test_the_environment_follows_generation_and_strategy(
    node: str, changes: dict[str, Any], wanted: tuple[tuple[str, str], ...]
) -> None:
    found, sink = plan(DENSE, {"cluster.node": node, **changes})
    assert found is not None, sink.diagnostics
    assert environment(found) == wanted
