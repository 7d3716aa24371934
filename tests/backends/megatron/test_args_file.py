"""Tests of megatron/args.sh: the words that a shell reads, and additions by launch.args."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from parc.backends.megatron.arguments.args_file import args_file
from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.environment import megatron_environment
from parc.backends.megatron.arguments.extra_arguments import spec_fields_of_flag
from parc.backends.shared.field_table import flag_table
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.spec.schema import all_fields
from tests.backends.megatron.boundaries import DENSE, ROUTED
from tests.compiled import changed, planned


def plan(base: dict[str, Any], changes: dict[str, Any]) -> tuple[AnyPlan | None, Sink]:
    return planned(changed({**base, "launch": {}}, changes))


def words(text: str) -> list[str]:
    """Return the array as bash reads it."""
    script = text + 'printf "%s\\0" "${MEGATRON_ARGS[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def emitted(base: dict[str, Any], changes: dict[str, Any]) -> list[str]:
    found, sink = plan(base, changes)
    assert found is not None, sink.diagnostics
    return words(args_file(found).text)


def test_each_flag_is_on_a_line_under_the_header_of_its_group() -> None:
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


def test_a_value_with_a_dash_stays_joined_to_its_flag() -> None:
    argv = emitted(DENSE, {"launch.args": ["--wandb-project=--a b"]})
    assert argv[-1] == "--wandb-project=--a b"


def test_a_layout_string_survives_the_shell() -> None:
    argv = emitted(DENSE, {"layout.pipeline_layout": "Et*9|t*7L"})
    assert argv[argv.index("--pipeline-model-parallel-layout") + 1] == "Et*9|t*7L"
    assert "--num-virtual-stages-per-pipeline-rank" not in argv


def test_dense_models_have_the_flag_for_the_expert_tensor_parallel_size() -> None:
    argv = emitted(DENSE, {})
    assert argv[argv.index("--expert-tensor-parallel-size") + 1] == "4"
    assert "--sequence-parallel" in argv


def test_extra_arguments_are_last_and_unchanged() -> None:
    extra = ["--log-interval-x"]
    found, sink = plan(DENSE, {"launch.args": extra})
    assert found is None
    assert [d.code for d in sink.diagnostics if d.severity == "error"] == ["PARC-F01"]
    argv = emitted(
        DENSE, {"launch.args": ["--tensorboard-dir", "a b", "--manual-gc-interval", "7"]}
    )
    assert argv[-4:] == ["--tensorboard-dir", "a b", "--manual-gc-interval", "7"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--tensor-parallel-size", "8"], "F01"),
        (["stray"], "F01"),
        (["--hidden-size", "8"], "F02"),
        (["--manual-gc", "--manual-gc"], "F02"),
        (["--seed", "7"], "F02"),
        (["--recompute-modules"], "F02"),
        (["--manual-gc-interval", "one"], "F03"),
        (["--manual-gc-interval"], "F03"),
        (["--log-interval", "often"], "F03"),
        (["--manual-gc-interval", "1", "2"], "F03"),
        (["--optimizer", "adamw"], "F03"),
        (["--manual-gc", "yes"], "F03"),
        (["--cuda-graph-scope"], "F03"),
    ],
)
def test_an_extra_argument_that_the_parser_rejects_is_an_error_at_its_position(
    args: list[str], code: str
) -> None:
    _, sink = plan(DENSE, {"launch.args": args})
    found = [d for d in sink.diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [f"PARC-{code}"]
    assert found[0].path.startswith("launch.args[")


HYPERPARAMETERS = {
    "job.learning_rate": 3e-4,
    "job.min_learning_rate": 0.0,
    "job.warmup_steps": 20,
    "job.lr_decay": "wsd",
    "job.lr_decay_steps": 900,
    "job.wsd_decay_steps": 90,
    "job.weight_decay": 0.05,
    "job.adam_beta1": 0.8,
    "job.adam_beta2": 0.99,
    "job.adam_epsilon": 1e-6,
    "job.gradient_clipping": 0.0,
    "job.seed": 7,
}
SAID = (
    "--lr 0.0003 --min-lr 0.0 --lr-decay-style WSD --lr-decay-iters 900 "
    "--lr-wsd-decay-style linear --lr-wsd-decay-iters 90 --lr-warmup-iters 20 "
    "--weight-decay 0.05 --adam-beta1 0.8 --adam-beta2 0.99 --adam-eps 1e-06 "
    "--clip-grad 0.0 --seed 7"
)


def test_every_hyperparameter_of_the_job_has_one_flag() -> None:
    argv = emitted(DENSE, HYPERPARAMETERS)
    first = argv.index("--lr")
    assert " ".join(argv[first:]).startswith(SAID)
    assert "--lr-warmup-fraction" not in argv


def test_a_free_flag_is_emitted_once_with_the_value_of_the_user() -> None:
    extra = ["--log-interval", "10", "--eval-iters", "32", "--split", "99,1,0"]
    argv = emitted(DENSE, {"launch.args": extra, "job.data": ["/data/a"]})
    assert argv[-6:] == extra
    assert [argv.count(flag) for flag in extra[::2]] == [1, 1, 1]


def test_a_field_of_a_free_flag_has_a_fixed_flag_too_or_concerns_only_the_launch() -> None:
    rows = flag_table(PACKAGE).rows
    fixed = {field for row in rows if not row.free for field in row.fields}
    alone = {field for row in rows if row.free for field in row.fields} - fixed
    assert {one for one in alone if not one.startswith("launch.")} == {"job.moe_imbalance"}


@pytest.mark.parametrize(
    ("flag", "code", "problem"),
    [
        ("--hidden-size", "F02", "--hidden-size cannot be omitted, because layout or memory"),
        ("--async-save", "F01", "the plan does not set --async-save"),
        ("--manual-gcc", "F01", "the plan does not set --manual-gcc"),
    ],
)
def test_only_free_flags_of_the_plan_can_be_omitted(flag: str, code: str, problem: str) -> None:
    _, sink = plan(DENSE, {"launch.omit": ["--manual-gc", flag]})
    (found,) = [d for d in sink.diagnostics if d.severity == "error"]
    assert (found.code, found.path) == (f"PARC-{code}", "launch.omit[1]")
    assert found.finding.message.startswith(problem)
    assert "--manual-gc" in found.finding.help


def test_a_flag_of_the_plan_is_rejected_with_the_spec_field_that_determines_it() -> None:
    named = {name for row in flag_table(PACKAGE).rows for name in spec_fields_of_flag(row)}
    assert named <= {"model", *all_fields()}
    _, sink = plan(DENSE, {"launch.args": ["--clip-grad", "0.5"]})
    found = next(d for d in sink.diagnostics if d.code == "PARC-F02")
    assert (
        found.finding.fix
        == "remove --clip-grad from launch.args, and set job.gradient_clipping: 0.5"
    )


def test_an_unknown_flag_gets_its_nearest_spellings() -> None:
    _, sink = plan(DENSE, {"launch.args": ["--sead", "7"]})
    found = next(d for d in sink.diagnostics if d.code == "PARC-F01")
    assert found.finding.fix == "--seed"


@pytest.mark.parametrize(("positions", "valid"), [(8192, True), (4096, False)])
@pytest.mark.parametrize("target", ["megatron", "megatron-bridge"])
def test_llama_scaling_from_another_context_length_has_no_flag(
    target: str, positions: int, valid: bool
) -> None:
    scaling = {"scaling": "llama3", "scaling_factor": 8, "original_max_positions": positions}
    changes = {f"model.position.{name}": value for name, value in scaling.items()}
    found, sink = plan({**DENSE, "emit": [target], "layout": {}}, changes)
    codes = {one.code for one in sink.diagnostics if one.severity == "error"}
    assert (found is not None, codes) == (valid, set() if valid else {"PARC-E04"})


def test_a_flag_of_a_later_version_is_rejected_for_an_earlier_one() -> None:
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
        ("dgx-b200", {"layout.cuda_graphs": True}, (("NCCL_GRAPH_REGISTER", "0"),)),
    ],
)
def test_the_environment_follows_generation_and_strategy(
    node: str, changes: dict[str, Any], wanted: tuple[tuple[str, str], ...]
) -> None:
    found, sink = plan(DENSE, {"cluster.node": node, "layout.cuda_graphs": False, **changes})
    assert found is not None, sink.diagnostics
    assert megatron_environment(found) == wanted


SCALINGS = {
    "none": {},
    "linear": {"--rotary-seq-len-interpolation-factor": "4"},
    "llama3": {"--use-rope-scaling": None, "--rope-scaling-factor": "4.0"},
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_scaling_of_positions_is_set_by_its_own_flags(scaling: str) -> None:
    factor = {} if scaling == "none" else {"model.position.scaling_factor": 4.0}
    factor |= {"model.position.original_max_positions": 8192} if scaling == "llama3" else {}
    argv = emitted(DENSE, {"model.position.scaling": scaling, **factor})
    for one, flags in SCALINGS.items():
        for flag, value in flags.items():
            assert (flag in argv) is (one == scaling)
            assert one != scaling or value is None or argv[argv.index(flag) + 1] == value
