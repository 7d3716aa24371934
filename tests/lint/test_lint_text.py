from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.megatron.launch_files.import_arguments import TABLE
from parc.compiler.diagnostics.render.text import render_text
from parc.compiler.ir import (
    Attention,
    Cluster,
    Experts,
    Job,
    Layout,
    Model,
    Problem,
    ServingLayout,
    ServingProblem,
)
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions, describe_missing_fact
from tests.lint.scripts import (
    DEEPSPEED,
    EXPERTS,
    HYBRID,
    MEGATRON,
    PP,
    SBATCH,
    TP,
    VLLM,
    Edit,
    codes,
    edited,
)
from tests.property_settings import examples

ROOT = Path(__file__).parent.parent.parent
EMITTED = sorted(
    path
    for pattern in (
        "megatron/args.sh",
        "slurm/job.sbatch",
        "torchrun/launch.sh",
        "slurm/launch.sh",
        "vllm/serve.sh",
        "deepspeed/ds_config.json",
    )
    for path in ROOT.glob(f"examples/*/expected/{pattern}")
)


def test_files_that_parc_emits_have_no_findings() -> None:
    assert len(EMITTED) >= 40
    # Some of them only start others, so that they name no framework.
    options = LintOptions(allow_unknown=True)
    found = {str(path): codes(path.read_text("utf-8"), options) for path in EMITTED}
    assert {name: found[name] for name in found if found[name]} == {}


def test_a_layer_pattern_from_a_shell_variable_counts_as_a_pattern() -> None:
    dynamic = ("    --num-layers 32\n", "    --hybrid-layer-pattern $LETTERS\n")
    assert codes(edited(MEGATRON, (dynamic, HYBRID))) == []


def test_a_layer_pattern_with_letters_that_a_spec_lacks_counts_as_a_pattern() -> None:
    for letters in ("G-G*" * 8, "M-M*" * 8 + "/M-"):
        written = ("    --num-layers 32\n", f"    --hybrid-layer-pattern '{letters}'\n")
        assert codes(edited(MEGATRON, (written, HYBRID))) == []


def test_the_bars_of_a_pattern_define_the_stages_even_with_other_flags() -> None:
    args = next(one for one in EMITTED if "nemotron-h-56b" in str(one) and one.name == "args.sh")
    text = args.read_text("utf-8")
    pp = "--pipeline-model-parallel-size "
    assert codes(re.sub(f"{pp}[0-9]+", f"{pp}97", text)) == ["P19"]
    twice = text.replace(pp, f"--num-virtual-stages-per-pipeline-rank 97 {pp}")
    assert "P05" in codes(twice)


HEADS = ("--num-attention-heads 32", "--num-attention-heads 30")
UNSURE: dict[str, tuple[Edit, ...]] = {
    "a variable from outside": ((f"{TP} 4", f"{TP} $TP"),),
    "a variable that is set twice": (
        ("#!/bin/bash\n", "#!/bin/bash\nTP=7\nTP=4\n"),
        (f"{TP} 4", f"{TP} $TP"),
    ),
    "a variable of a branch": (
        ("#!/bin/bash\n", "#!/bin/bash\nif [ $SMALL ]; then\n  TP=7\nfi\n"),
        (f"{TP} 4", f"{TP} $TP"),
    ),
    "a variable of a branch on one line": (
        ("#!/bin/bash\n", "#!/bin/bash\n[ $SMALL ] && TP=7\n"),
        (f"{TP} 4", f"{TP} $TP"),
    ),
    "a computed value": ((f"{TP} 4", f"{TP} $((GPUS / 2))"),),
    "arguments of the caller": ((f"    {TP} 4 \\\n    {PP} 2 \\\n", '    "$@" \\\n'),),
    "arguments of another file": (
        ("#!/bin/bash\n", "#!/bin/bash\nsource sizes.sh\n"),
        ('"${MODEL_ARGS[@]}"', '"${MODEL_ARGS[@]}" ${SIZES}'),
        ("    --num-attention-heads 32\n", ""),
        (f"    {TP} 4 \\\n", ""),
    ),
}


@pytest.mark.parametrize("name", UNSURE)
def test_values_that_may_differ_between_runs_cause_no_findings(name: str) -> None:
    assert codes(edited(MEGATRON, UNSURE[name])) == []


QUOTED = """\
#!/bin/bash
OPTIMIZER=" \\
    --lr 1e-4 \\
    --min-lr `bc <<< "scale=3; $LR/10"` \\
    "
NOTHING=""
ARGS="\\
    --tokenizer-model "some/model" \\
    --seed 43 \\
    $OPTIMIZER \\
    $NOTHING \\
    "
torchrun --nproc-per-node 8 pretrain_gpt.py $ARGS --tensor-model-parallel-size 1 $NOTHING
"""
"""Commands in strings: quotes inside of quotes, and variables that end up as nothing."""


def test_commands_in_strings_are_read_as_the_shell_joins_them() -> None:
    assert codes(QUOTED) == []
    assert codes(QUOTED.replace("--seed 43", "--seed 43 44")) == ["F03"]


def test_stand_in_values_cause_no_findings() -> None:
    unsized = edited(MEGATRON, (("    --num-layers 32\n", "    --num-layers $LAYERS\n"),))
    assert codes(unsized.replace(f"{PP} 2", f"{PP} 8")) == []
    assert "P02" in codes(MEGATRON.replace(f"{PP} 2", f"{PP} 64"), LintOptions(gpus=256))
    quarter = "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8"
    assert codes(MEGATRON.replace("--bf16", quarter)) == []


def test_stages_of_megatron_deepspeed_are_not_checked_against_megatrons_split() -> None:
    odd = edited(MEGATRON, (("--num-layers 32", "--num-layers 31"),))
    assert codes(odd) == ["P01"]
    assert codes(odd.replace("--bf16", "--bf16 --deepspeed --checkpoint-activations")) == []


def test_a_name_that_extends_a_known_flag_belongs_to_the_program() -> None:
    own = MEGATRON.replace("pretrain_gpt.py", "my_training.py")
    assert codes(own.replace("--bf16", "--bf16 --data-path2 here")) == []


@pytest.mark.parametrize(
    "branch",
    ['[ "$X" ] && MORE="$MORE --seed 3"', 'if [ $X ]; then\n  MORE="$MORE --seed 3"\nfi'],
)
def test_flags_that_a_branch_appends_leave_the_others_certain(branch: str) -> None:
    edits = (("torchrun", f'MORE="--lr 1e-4"\n{branch}\ntorchrun'), ("--bf16", "--bf16 $MORE"))
    assert codes(edited(MEGATRON, edits)) == []
    assert "D07" in codes(edited(MEGATRON, (*edits, HEADS)))
    sizes = (("    --num-attention-heads 32\n", ""), edits[1])
    first = ("torchrun", f'MORE="--num-attention-heads 30"\n{branch}\ntorchrun')
    assert "D07" in codes(edited(MEGATRON, (sizes[0], first, sizes[1])))


def test_a_flag_in_a_branch_meets_the_need_of_another_flag() -> None:
    script = edited(
        MEGATRON,
        (
            ("    --sequence-parallel \\\n", "    $SP \\\n"),
            EXPERTS,
            (
                "torchrun",
                'if [ $TP -gt 1 ]; then\n  SP="--sequence-parallel"\nelse\n  SP=""\nfi\ntorchrun',
            ),
        ),
    )
    assert codes(script) == []


def test_rules_that_need_an_unknown_fact_are_listed_and_checked_once_it_is_given() -> None:
    unsized = edited(MEGATRON, (("--nproc-per-node 8 --nnodes 4 ", ""),))
    broken = edited(unsized, (("--global-batch-size 128", "--global-batch-size 130"),))
    sink, skipped = lint_text(broken, "run.sh", LintOptions())
    assert not sink.diagnostics
    assert {"B01", "D09"} <= {one.code for one in skipped}
    assert "B01" in codes(broken, LintOptions(gpus=32))
    assert "D09" in codes(unsized, LintOptions(gpus=36))


@pytest.mark.parametrize(
    "ir_type",
    [Problem, ServingProblem, Layout, ServingLayout, Cluster, Job, Model, Attention, Experts],
)
def test_unknown_facts_are_described_without_names_of_the_ir(ir_type: type) -> None:
    flags = TABLE.flag_by_spec_field()
    for field in fields(ir_type):
        fact, option = describe_missing_fact(f"{ir_type.__name__}.{field.name}", flags)
        assert re.fullmatch(r"the value of --[a-z0-9-]+|(the|a) [a-zA-Z, ]+", fact), fact
        assert option in ("", "--model", "--cluster", "--gpus")
        assert ir_type.__name__ not in fact


def test_a_model_given_by_an_option_is_checked() -> None:
    bare = MEGATRON.replace('"${MODEL_ARGS[@]}"', "")
    script = bare[bare.index("torchrun") :].replace(f"{TP} 4", f"{TP} 16")
    assert codes(script) == []
    assert "D02" in codes(script.replace(f"{TP} 16", f"{TP} 6"), LintOptions(model="llama-3-70b"))


def test_the_precision_is_checked_if_the_gpu_is_known() -> None:
    script = MEGATRON.replace("--bf16", "--bf16 --fp8-format hybrid")
    assert "R03" not in codes(script)
    assert "R03" in codes(script, LintOptions(cluster="dgx-a100"))


@pytest.mark.parametrize(
    ("line", "cluster", "code"),
    [
        ("export NCCL_IB_DISABLE=1", "dgx-h100", "N04"),
        ("export NCCL_NET=Socket", "dgx-h100", "N04"),
        ("export CUDA_DEVICE_MAX_CONNECTIONS=8", "dgx-h100", "N08"),
        ("export CUDA_DEVICE_MAX_CONNECTIONS=1", "dgx-b200", "N09"),
    ],
)
def test_environment_variables_are_checked_if_the_cluster_is_known(
    line: str, cluster: str, code: str
) -> None:
    script = MEGATRON.replace("#!/bin/bash\n", f"#!/bin/bash\n{line}\n")
    assert codes(script) == []
    assert codes(script, LintOptions(cluster=cluster)) == [code]


def test_flags_are_checked_against_the_given_version() -> None:
    script = MEGATRON.replace("--bf16", "--bf16 --tokenizer-hf-include-special-tokens")
    assert codes(script) == ["F01"]
    assert codes(script, LintOptions(version="0.17")) == []


def test_unknown_flags_of_a_user_program_are_accepted() -> None:
    script = MEGATRON.replace("pretrain_gpt.py", "my_training.py")
    own = script.replace("--bf16", "--bf16 --my-loss-scale 3 --optimizer mine")
    assert codes(own) == []
    assert codes(script.replace("--sequence-parallel", "--sequence-paralel")) == ["F01"]


def test_fixes_are_edits_of_the_script() -> None:
    script = edited(MEGATRON, (("--global-batch-size 128", "--global-batch-size 130"),))
    sink, _ = lint_text(script, "run.sh", LintOptions())
    found = sink.diagnostics[0]
    assert found.finding.fix == "--global-batch-size 132"
    assert found.path == "--global-batch-size"


def test_one_wrong_degree_has_one_fix() -> None:
    script = edited(MEGATRON, ((f"{TP} 4", f"{TP} 3"),))
    sink, _ = lint_text(script, "run.sh", LintOptions())
    assert {one.code for one in sink.diagnostics} >= {"PARC-D01", "PARC-S02"}
    assert {one.finding.fix for one in sink.diagnostics} == {f"{TP} 4"}
    text = render_text(sink.diagnostics, sink.positions)
    assert text.count("= fix:") == 1
    assert text.count("= also: PARC-") == len(sink.diagnostics) - 1


def test_causes_without_a_place_are_named_in_words() -> None:
    script = edited(MEGATRON, (("--global-batch-size 128", "--global-batch-size 130"),))
    sink, _ = lint_text(script, "run.sh", LintOptions(gpus=32))
    assert "dp" in [one.path for one in sink.diagnostics[0].finding.causes]
    sink, _ = lint_text(edited(MEGATRON, ((f"{PP} 2", f"{PP} 3"),)), "run.sh", LintOptions())
    assert "the cluster" in [one.path for one in sink.diagnostics[0].finding.causes]


def test_a_batch_is_compared_with_the_number_of_gpus() -> None:
    assert codes(DEEPSPEED, LintOptions(gpus=8)) == []
    assert codes(DEEPSPEED, LintOptions(gpus=4)) == ["B02"]


def test_a_removed_key_is_checked_for_versions_that_have_it() -> None:
    text = DEEPSPEED.replace('"fp16": {"enabled": false}', '"amp": {"enabled": true}')
    assert codes(text) == ["X01"]
    assert codes(text, LintOptions(version="0.19.7")) == ["R16"]


def test_a_boolean_zero_section_of_the_first_releases_is_accepted() -> None:
    assert codes('{"train_batch_size": 8, "zero_optimization": true}') == []


def test_every_number_of_a_config_can_be_auto() -> None:
    text = DEEPSPEED.replace("256", '"auto"').replace(" 8,", ' "auto",').replace(" 4,", ' "auto",')
    assert codes(text) == []


def test_a_text_that_starts_no_program_is_reported() -> None:
    assert codes("just words\n") == ["I05"]
    assert codes("just words\n", LintOptions(framework="none")) == []


def test_a_text_of_megabytes_is_refused() -> None:
    assert codes("x" * (1024 * 1024 + 1)) == ["I06"]


PIECES = (
    *MEGATRON.split(),
    *SBATCH.split(),
    *VLLM.split(),
    *DEEPSPEED.split(),
    *("'", '"', "$(", ")", "\n", "\\\n", "#", "<<EOF\n", "if", "fi", "=", "--", "\0", "\u2028"),
)


@examples(13)
@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from((" ", "\n", "")))
def test_any_text_ends_in_findings(words: list[str], between: str) -> None:
    for framework in ("auto", "megatron", "vllm", "deepspeed"):
        lint_text(between.join(words), "run.sh", LintOptions(framework=framework))


@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_layer_pattern_with_an_impossible_pipeline_size_is_reported(size: str) -> None:
    script = (
        'pretrain_hybrid.py --hybrid-layer-pattern "M-M*|M-M-" --hidden-size 1024 '
        f"--num-attention-heads 16 --ffn-hidden-size 4096 {PP} {size}\n"
    )
    assert "F03" in codes(script)
