"""Tests of reading megatron/args.sh back into the decisions of plan.json."""

from __future__ import annotations

import pytest

from parc.backends.megatron.verify_arguments import ARGUMENTS, read_arguments
from parc.backends.megatron.verify_flags import FLAGS, default_of_flag
from parc.backends.megatron.verify_plan_fields import read_fields
from parc.backends.megatron.verify_settings import derive_settings
from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import emit_plan
from tests.backends.megatron.boundaries import DENSE
from tests.compiled import Files, changed, emitted, example_files, messages_of, plan_of
from tests.verify.edits import (
    NAMED,
    false_alarms,
    findings,
    measure_edits,
    shell_neutral,
)
from tests.verify.megatron_parser import megatron_behavior, megatron_parser

EDITED = ("llama-3-70b", "deepseek-v3", "nemotron-h-56b")
"""Examples with dense layers, with experts and latent attention, and with a layer pattern."""


def edited(old: str, new: str, name: str = "llama-3-70b") -> list[str]:
    """Return the findings after one edit of args.sh of an example."""
    files = example_files(name)
    assert old in files[ARGUMENTS]
    return findings(files | {ARGUMENTS: files[ARGUMENTS].replace(old, new, 1)})


def test_messages_contain_no_nested_values_of_the_plan() -> None:
    # The split of DeepSeek-V3 is a layout string, with one list of chunks per stage.
    for old, new in (("|", ""), ("--micro-batch-size 1", "--micro-batch-size 2")):
        found = edited(old, new, "deepseek-v3")
        assert found
        assert not any("{" in text or ".0)" in text for text in found)


@pytest.mark.parametrize("name", EDITED)
def test_random_edits_of_the_arguments_are_named(name: str) -> None:
    score = measure_edits(example_files(name), ARGUMENTS, megatron_behavior)
    assert score.named >= NAMED, score.missed
    assert score.alarms == []


def test_comments_and_blanks_of_the_arguments_are_free() -> None:
    files = example_files("nemotron-h-56b")
    assert false_alarms(files, ARGUMENTS, shell_neutral(files[ARGUMENTS], 1)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--tensor-model-parallel-size 4", "--tensor-model-parallel-size=4"),
        ("--seq-length 8192", "--seq-length '8192'"),
        ("--lr ", "--lr 1.0 --lr "),
        ("--norm-epsilon 1e-05", "--norm-epsilon 0.00001"),
        ("  --attention-backend auto\n", ""),
        ("  --clip-grad 1.0\n", ""),
    ],
)
def test_another_notation_of_the_same_arguments_is_accepted(old: str, new: str) -> None:
    assert edited(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "--micro-batch-size 1",
            "--micro-batch-size 2",
            "PARC-A14 layout.micro_batch: line 41 has --micro-batch-size 2, the plan has 1",
        ),
        (
            "  --use-distributed-optimizer\n",
            "",
            "PARC-A14 layout.zero_stage: megatron/args.sh does not set it (meaning 0), "
            "the plan has 1",
        ),
        (
            "  --norm-epsilon 1e-05\n",
            "  --norm-epsilon 1e-05\n  --norm-epsilon 1e-06\n",
            "PARC-A14 model.norm_epsilon: line 16 has --norm-epsilon 1e-06, the plan has 1e-05",
        ),
        (
            "--norm-epsilon",
            "--norm-eps",
            "PARC-A14 line 15 has --norm-eps 1e-05, which the plan does not need",
        ),
        (
            "  --hidden-dropout 0.0\n",
            "",
            "PARC-A14 the plan needs --hidden-dropout 0.0, which is not in megatron/args.sh",
        ),
        (
            "--bf16",
            "--bf16 1",
            "PARC-A14 line 54 has --bf16 1, which the plan does not need",
        ),
        (
            "--swiglu",
            "--swiglu --log-params-norm",
            "PARC-A14 line 13 has --log-params-norm, which the plan does not need",
        ),
    ],
)
def test_a_changed_argument_is_named(old: str, new: str, finding: str) -> None:
    assert finding in edited(old, new)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("--exit-signal-handler", "--manual-gc", True),
        ("--log-interval 10", "--log-interval 1", True),
        ("  --exit-signal-handler\n", "", True),
        ("--log-interval 10", "--log-interval=10", False),
    ],
)
def test_extra_arguments_are_compared_with_launch_args(old: str, new: str, named: bool) -> None:
    extra = ["--exit-signal-handler", "--log-interval", "10"]
    files: Files = emitted(plan_of(changed(DENSE, {"launch": {"args": extra}})))
    text = files[ARGUMENTS].replace(old, new, 1)
    assert text != files[ARGUMENTS]
    assert bool(findings(files | {ARGUMENTS: text})) is named


def test_an_omitted_flag_that_the_file_has_is_named() -> None:
    spec = changed(DENSE, {"launch": {"omit": ["--manual-gc"]}, "layout.cuda_graphs": False})
    files: Files = emitted(plan_of(spec))
    assert findings(files) == []
    text = files[ARGUMENTS].replace("--manual-gc-interval 100", "--manual-gc")
    assert "line 67 has --manual-gc, which the plan does not need" in str(
        findings(files | {ARGUMENTS: text})
    )


def test_a_sharding_that_the_arguments_cannot_express_stops_the_compilation() -> None:
    # A plan that no rule has rejected must not be emitted with another ZeRO stage in silence.
    from dataclasses import replace

    plan = plan_of(DENSE)
    sink = Sink()
    emit_plan(replace(plan, layout=replace(plan.layout, zero_stage=4)), sink)
    assert any(
        "layout.zero_stage: line" in one and one.endswith(", the plan has 4")
        for one in messages_of(sink)
    )


def test_a_learning_rate_with_nine_digits_is_planned_as_it_is_emitted() -> None:
    files = emitted(plan_of(changed(DENSE, {"job.learning_rate": 0.000123456789})))
    assert '"learning_rate": 0.000123456789' in files["plan.json"]
    assert "--lr 0.000123456789" in files[ARGUMENTS]


def test_defaults_are_those_of_the_parser_of_megatron() -> None:
    parsed = vars(megatron_parser().parse_args([]))
    for flag in sorted(FLAGS):
        action = megatron_parser()._option_string_actions[f"--{flag}"]
        expected, found = parsed[action.dest], default_of_flag(flag)
        if action.nargs == 0:
            assert expected is (action.const is False), flag
        else:
            assert (list(found) if isinstance(found, tuple) else found) in (expected, [], None)
            if found in ((), None):
                assert expected in (None, [], 1, "1"), flag


def test_each_flag_of_the_tables_is_compared() -> None:
    seen: set[str] = set()
    for name in ("llama-3-70b", "deepseek-v3", "nemotron-h-56b", "qwen3-next-80b-a3b"):
        files = example_files(name)
        fields = read_fields(files)
        assert fields is not None
        arguments = read_arguments(files[ARGUMENTS])
        for flag in FLAGS - seen:
            flags = dict(arguments.flags)
            wrong = {**flags, flag: ("no value of this flag", "at all")}
            found = [one.value for one in derive_settings(type(arguments)(flags), fields)]
            if found != [one.value for one in derive_settings(type(arguments)(wrong), fields)]:
                seen.add(flag)
    assert seen == FLAGS


@pytest.mark.parametrize(
    ("written", "named"),
    [("", False), (" --recompute-modules core_attn", False), (" --recompute-modules mlp", True)],
)
def test_selective_recompute_without_modules_is_that_of_the_core_attention(
    written: str, named: bool
) -> None:
    modules = {"granularity": "selective", "modules": ["core_attn"]}
    files = emitted(plan_of(changed(DENSE, {"layout.recompute": modules})))
    text = files[ARGUMENTS]
    assert text.count("  --recompute-modules core_attn\n") == 1
    text = text.replace("  --recompute-modules core_attn\n", f" {written}\n")
    found = findings(files | {ARGUMENTS: text})
    assert any("layout.recompute.modules" in message for message in found) is named, found
