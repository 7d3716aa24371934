"""An import sets Megatron's defaults only where nothing in the command can set the field."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.topology.reading import read

SIZES = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --lr 1e-4"
DEFAULTS = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "ep": 1, "zero_stage": 0, "recompute": "none"}


def imported(arguments: str, before: str = "") -> tuple[dict[str, Any], str]:
    """Return (fragment, its text) of a script with ``arguments`` after the program."""
    script = f"{before}torchrun --nproc_per_node 8 pretrain_gpt.py {arguments}\n"
    text, sink = read("megatron-args", script)
    assert not sink.failed(), [one.finding.message for one in sink.diagnostics]
    return dict(parse_table(text)), text


def test_absent_flags_mean_the_defaults() -> None:
    assert DEFAULTS.items() <= imported(SIZES)[0]["layout"].items()


@pytest.mark.parametrize(
    ("flag", "section", "field"),
    [
        ("--zero-stage 3", "layout", "zero_stage"),
        ("--deepspeed", "layout", "zero_stage"),
        ("--use-torch-fsdp2", "layout", "zero_stage"),
        ("--ds-sequence-parallel-size 4", "layout", "cp"),
        ("--expert-parallel-size 4", "layout", "ep"),
        ("--deepspeed-activation-checkpointing", "layout", "recompute"),
        ("--lr-warmup-tokens 300000000", "job", "warmup_steps"),
        ("--constant-lr", "job", "lr_decay"),
    ],
)
def test_a_flag_of_a_copy_leaves_its_field_open(flag: str, section: str, field: str) -> None:
    spec, text = imported(f"{SIZES} {flag}")
    assert field not in spec[section]
    assert flag.split()[0] in text


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        ("--activations-checkpoint-method uniform", "layout.recompute.granularity", "full"),
        (
            "--activations-checkpoint-method block --activations-checkpoint-num-layers 3",
            "layout.recompute.layers",
            3,
        ),
        ("--checkpoint-activations", "layout.recompute.layers", 1),
        ("--recompute-granularity full --recompute-method uniform", "layout.recompute.layers", 1),
        ("--model-parallel-size 4", "layout.tp", 4),
        ("--num-experts 8 --moe-expert-parallel-size 4", "layout.ep", 4),
        ("--num-key-value-heads 2", "model.kv_heads", 2),
        ("--attention-head-type multiquery", "model.kv_heads", 1),
        ("--num-experts 8 --deepspeed", "model.experts.every", 2),
        ("--num-experts 8 --deepspeed --expert-interval 4", "model.experts.every", 4),
        ("--swiglu", "model.ffn", 2688),
    ],
)
def test_an_older_flag_of_certain_meaning_is_read(flags: str, path: str, value: object) -> None:
    found: Any = imported(f"{SIZES} {flags}")[0]
    for key in path.split("."):
        found = found[key]
    assert found == value


@pytest.mark.parametrize("passed", ['"$@"', "$EXTRA_ARGS", "${MORE[@]}", "--bf16 $4", "$(flags)"])
def test_unknown_arguments_leave_all_defaults_open(passed: str) -> None:
    spec, text = imported(f"{SIZES} --tensor-model-parallel-size 2 {passed}")
    assert spec["layout"] == {"tp": 2}
    assert spec["job"].keys() <= {"learning_rate", "precision"}
    assert spec["model"].keys() == {"layers", "hidden", "heads"}
    assert "args" not in spec["launch"]
    assert "not carried over, line 1: unknown arguments " in text


def test_values_and_arrays_of_the_script_are_no_unknown_arguments() -> None:
    spec, text = imported(
        "${ARGS[@]} --save $OUT --data-path 0.5 $A 0.5 $B > $LOG", f"ARGS=({SIZES})\n"
    )
    assert DEFAULTS.items() <= spec["layout"].items()
    assert "unknown arguments" not in text
