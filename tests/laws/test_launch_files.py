"""The law of import: each part of a launch file is in the fragment, or listed with its line."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.importers.format_fragment import fragment_json
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.launch_diff import LaunchDiff, diff_launch
from tests.lint import scripts
from tests.topology.test_readers import CASES

GROUPS: list[dict[str, Any]] = parse_table(
    (Path(__file__).parent / "cases/launch_lines.yaml").read_text("utf-8")
)
LINES = [
    pytest.param(
        group["script"], group["into"], line, id=f"{group['script']} {group['into']} {line}"
    )
    for group in GROUPS
    for line in group["lines"]
]
START = (
    "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 8 "
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
    "--max-position-embeddings 2048 --global-batch-size 64 --micro-batch-size 1 --bf16 "
    "--lr 1e-4 --train-iters 100\n"
)
SCRIPTS = {
    "batch": "#!/bin/bash\n#SBATCH --nodes=2\n{}\nsrun " + START,
    "plain": "#!/bin/bash\n\n{}\n" + START,
    "container": "#!/bin/bash\n#SBATCH --nodes=2\n{}\nsrun --container-image image:1 " + START,
}
AT = 3
"""Line of a script that the tests replace."""


@cache
def imported(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return (fragment, notes) of a launch file."""
    sink = Sink()
    found = import_files("auto", [(text, "run.sh")], sink)
    assert found is not None, [one.finding.message for one in sink.diagnostics]
    document = fragment_json(found.fragment, sink)
    return document["spec"], document["notes"]


def differences(text: str, spec: dict[str, Any]) -> LaunchDiff:
    """Compile ``spec``, completed by what no launch file contains, and compare it with ``text``."""
    spec = {**spec, "parc": 1, "cluster": {"node": "dgx-h100", "nodes": 2}}
    spec.setdefault("name", "law")
    spec["emit"] = ["megatron", "torchrun", *(["slurm"] if "#SBATCH" in text else [])]
    spec["model"] = {**spec["model"], "vocab": 50304}
    sink = Sink()
    plan = plan_spec(SpecSource("spec.yaml", json.dumps(spec), Path()), (), sink)
    assert plan is not None, [one.finding.message for one in sink.diagnostics]
    files = {one.path: one.text for one in emit_plan(plan, sink)}
    return diff_launch("run.sh", text, "out", files)


def listed(notes: list[str], line: int) -> list[str]:
    """Return the parts of a line that the fragment lists as not carried over."""
    start = f"not carried over, line {line}: "
    return [note.removeprefix(start) for note in notes if note.startswith(start)]


def test_there_are_more_than_a_hundred_lines() -> None:
    assert len(LINES) > 100
    assert len({param.id for param in LINES}) == len(LINES)


@pytest.mark.parametrize(("script", "into", "line"), LINES)
def test_a_line_is_carried_over_or_listed(script: str, into: str, line: str) -> None:
    text = SCRIPTS[script].format(line)
    spec, notes = imported(text)
    before, _ = imported(SCRIPTS[script].format(""))
    launch = spec["launch"]
    assert bool(listed(notes, AT)) == (into == "listed"), notes
    if into == "setup":
        assert launch["setup"] == [line]
    elif into == "env":
        assert len(launch["env"]) == 1
        assert next(iter(launch["env"])) in line
    else:
        assert ("setup" in launch, "env" in launch) == (False, False)
    changes = {key for key in {**spec, **before} if spec.get(key) != before.get(key)}
    if into == "silent":
        assert changes == set()
    if into == "slurm":
        assert changes


@pytest.mark.parametrize(
    ("script", "into", "line"), [one for one in LINES if one.values[1] in ("setup", "env", "slurm")]
)
def test_a_line_that_was_carried_over_makes_no_difference_to_the_launch(
    script: str, into: str, line: str
) -> None:
    text = SCRIPTS[script].format(line)
    spec, _ = imported(text)
    found = differences(text, spec)
    assert found.commands == ()
    assert [one for one in found.environment if one.old is not None] == []
    assert [one for one in found.directives if one.old not in (None, one.new)] == []


def test_flags_of_an_unknown_program_are_listed_with_their_lines() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\nARGS=(\n  --max-steps 10\n  --name=run\n)\n"
        "srun torchrun --nnodes 2 train.py config.yaml \\\n  --batch 8 \\\n  --fast ${ARGS[@]}\n"
    )
    _, notes = imported(text)
    found = {line: listed(notes, line) for line in range(1, 10)}
    assert found[4] == ["--max-steps 10"]
    assert found[5] == ["--name run"]
    assert found[7] == ["srun torchrun --nnodes 2 train.py config.yaml"]
    assert found[8] == ["--batch 8"]
    assert found[9] == ["--fast ${ARGS[@]}"]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("deepspeed main.py --zero_stage 3\n", "deepspeed main.py --zero_stage 3"),
        ("python3 -m verl.trainer.main_ppo a.b=c\n", "python3 -m verl.trainer.main_ppo a.b=c"),
        ("pip install x\naccelerate launch sft.py\n", "accelerate launch sft.py"),
    ],
)
def test_a_program_that_cannot_be_imported_is_named(text: str, command: str) -> None:
    sink = Sink()
    assert import_files("auto", [(text, "run.sh")], sink) is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-I05"
    assert command in found.finding.message
    assert "config of DeepSpeed" in found.finding.help


def test_usage_texts_and_labels_of_options_are_no_flags() -> None:
    options = (
        'usage() {\n  echo "  --hidden-size N  size"\n  cat <<EOF\n  --num-layers N\nEOF\n}\n'
        'while [[ $# -gt 0 ]]; do\n  case $1 in\n    -h|--hidden-size) H="$2"; shift 2 ;;\n'
        '    --num-layers)\n      L="$2"\n      shift 2 ;;\n  esac\ndone'
    )
    spec, _ = imported(SCRIPTS["batch"].format(options))
    assert (spec["model"]["hidden"], spec["model"]["layers"]) == (4096, 32)


def test_a_here_document_that_becomes_a_file_is_listed() -> None:
    _, notes = imported(SCRIPTS["batch"].format('cat <<EOF > ds.json\n{"a --x": 1}\nEOF'))
    assert listed(notes, AT) == ["cat <<EOF > ds.json"]
    _, notes = imported(SCRIPTS["batch"].format("cat > run.sh <<EOF\npip install x\nEOF"))
    assert "pip install x" in listed(notes, AT + 1)


def test_flags_in_branches_are_noted_and_other_values_are_listed() -> None:
    lines = (
        'if [ "$1" = 70B ]; then\n  KV=8\n  MORE="--swiglu"\n  MORE_ARGS="--lr 1e-5 --swiglu"\n'
        'else\n  KV=4\n  MORE_ARGS="--lr 2e-5"\nfi'
    )
    text = SCRIPTS["batch"].format(lines).replace("--bf16", "--num-query-groups $KV $MORE_ARGS")
    spec, notes = imported(text)
    assert spec["model"]["gated"] is False
    # The runs have different values, so none of them is the value of the field.
    assert "kv_heads" not in spec["model"]
    assert (listed(notes, AT + 1), listed(notes, AT + 5)) == (["KV=8"], ["KV=4"])
    assert listed(notes, AT + 2) == ['MORE="--swiglu"']
    assert listed(notes, AT + 3) == ['MORE_ARGS="--lr 1e-5 --swiglu"']
    lines = 'if [ "$F" ]; then\n  MORE="--save-interval 7 --swiglu"\nfi'
    spec, notes = imported(SCRIPTS["batch"].format(lines).replace("--bf16", "--bf16 $MORE"))
    assert spec["model"]["gated"]
    assert f"in a branch of the script, line {AT + 1}: --swiglu" in notes


@pytest.mark.parametrize("line", ['[ "$F" ] && {}', 'if [ "$F" ]; then {}; fi', "[ $F ] || {}"])
def test_flags_and_variables_in_branches_on_one_line_are_noted(line: str) -> None:
    text = SCRIPTS["batch"].format(line.replace("{}", 'MORE="--swiglu --seed 3"'))
    notes = imported(text.replace("--bf16", "--bf16 $MORE"))[1]
    assert f"in a branch of the script, line {AT}: --swiglu" in notes
    text = SCRIPTS["batch"].format(line.replace("{}", "KV=4"))
    spec, notes = imported(text.replace("--bf16", "--num-query-groups $KV"))
    assert spec["model"]["kv_heads"] == 4
    assert f"in a branch of the script, line {AT}: KV=4" in notes


def test_a_value_that_only_the_shell_has_stays_unknown() -> None:
    text = SCRIPTS["batch"].format("LAYERS=$(cat layers)").replace("layers 32", "layers $LAYERS")
    spec, notes = imported(text)
    assert "layers" not in spec["model"]
    assert "--num-layers $LAYERS" in listed(notes, AT + 1)


def test_the_program_of_the_launch_is_not_that_of_an_earlier_command() -> None:
    spec, _ = imported(SCRIPTS["batch"].format("python prepare.py --workers 8"))
    assert spec["launch"]["program"] == "pretrain_gpt.py"


def test_a_flag_that_many_programs_have_does_not_decide_the_framework() -> None:
    command = "vllm serve org/model --seed 7 --port 9001 --tensor-parallel-size 2\n"
    spec, _ = imported("#!/bin/bash\n#SBATCH --nodes=1\nsrun " + command)
    assert (spec["job"]["kind"], spec["launch"]["port"]) == ("serve", 9001)
    assert diff_launch("run.sh", command, "out", {}).framework == "vllm"


_SETTING = re.compile(
    r"(?:(?<=[ \t\n(])--[a-z][\w-]*|(?<=^export )[A-Z]\w*|(?<= -)[NpwtJ](?= ))", re.M
)
_COMMENT = re.compile(r"(?m)(?<!\S)#(?!SBATCH).*")
FILES = [
    pytest.param(case["given"], id=case["title"])
    for case in CASES
    if case["kind"] in ("sbatch", "megatron-args", "vllm-args") and "prints" in case
] + [
    pytest.param(text, id=name.lower())
    for name, text in sorted(vars(scripts).items())
    if name.isupper() and name[0] != "_" and isinstance(text, str) and "\n" in text
]


@pytest.mark.parametrize("text", FILES)
def test_no_setting_of_a_launch_can_change_without_a_change_of_the_fragment(text: str) -> None:
    before = imported(text)
    unseen = []
    plain = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    for match in _SETTING.finditer(plain):
        end = "_ZZ" if match[0].isupper() else "-zz"
        renamed = f"{text[: match.end()]}{end}{text[match.end() :]}"
        if imported(renamed) == before:
            unseen.append(match[0])
    assert unseen == []


def test_a_manifest_is_no_list_of_nodes() -> None:
    text = "apiVersion: v1\nkind: Pod\nspec:\n  resources: {limits: {'nvidia.com/gpu': 8}}\n"
    sink = Sink()
    assert import_files("auto", [(text, "pod.yaml")], sink) is None
    assert "command of a container" in sink.diagnostics[0].finding.help
    spec, notes = imported(text + "  args:\n    - vllm serve org/model --tensor-parallel-size 8\n")
    assert spec["layout"]["tp"] == 8
    assert "kind: Pod" in listed(notes, 2)
