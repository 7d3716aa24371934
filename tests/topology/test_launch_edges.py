"""Edges of launch commands as importers read them: programs, host counts, positions, names."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from parc.backends.megatron.launch_files import import_arguments
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.tools.importers.flags import (
    IMPLIED,
    load_import_table,
)
from parc.compiler.tools.importers.hf_config import read_hf_config
from parc.compiler.tools.importers.import_files import _check_characters
from parc.compiler.tools.importers.launch_commands import is_python_program
from parc.compiler.tools.importers.shell_words import Word, shell_words
from tests.compiled import emitted
from tests.search.serving_specs import plan_of, spec
from tests.topology.reading import finding_lines, read

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("train.py", True), ("a/b.py", True), ("--x.py", False), ("x=a.py", False), ("train", False)],
)
def test_a_program_is_a_python_file_that_is_no_flag(text: str, expected: bool) -> None:
    assert is_python_program(Word(text, Span("run.sh", 1, 1), 0)) is expected


def test_flags_that_follow_from_other_fields_are_implied_and_have_no_row() -> None:
    package = import_arguments.__name__.rpartition(".launch_files")[0]
    table = load_import_table(package)
    assert "--sequence-parallel" in table.rows
    assert table.implied
    assert table.implied.isdisjoint(table.rows)
    assert IMPLIED not in {row.path for row in table.rows.values()}


@pytest.mark.parametrize("value", ['"$TP"', "$TP", "${TP}"])
def test_a_variable_that_options_of_the_script_set_is_left_out(value: str) -> None:
    start = 'TP=""\n[ $# -gt 0 ] && shift\nvllm serve org/model --port 8001 --tensor-parallel-size'
    text, sink = read("vllm-args", f"{start} {value}\n")
    assert "port: 8001" in text
    assert "tp:" not in text
    assert not sink.failed()
    assert any("--tensor-parallel-size" in line for line in finding_lines(sink))
    assert read("vllm-args", f"{start}\n")[1].failed()


@pytest.mark.parametrize(
    ("nodes", "kept"), [("1", True), ("16", True), ("0", False), ("1-2", False)]
)
def test_a_number_of_hosts_is_positive(nodes: str, kept: bool) -> None:
    text, sink = read("sbatch", f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH -p gpu\nsrun a\n")
    assert (f"nodes: {nodes}" in text) is kept
    assert any("--nodes" in line for line in finding_lines(sink)) is not kept


@pytest.mark.parametrize(
    ("directive", "column"),
    [("#SBATCH --nodelist=n[1-x]", 22), ("#SBATCH -w n[1-x]", 14), ("#SBATCH  -w  n[1-x]", 16)],
)
def test_an_error_in_a_node_list_is_reported_at_its_column(directive: str, column: int) -> None:
    _, sink = read("sbatch", f"#!/bin/bash\n{directive}\n")
    assert finding_lines(sink)[0].split()[1] == f"2:{column}"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("qwen3-8b/config.json", "qwen3-8b"),
        (r"C:\models\qwen3-8b\config.json", "qwen3-8b"),
        ("a/my model.json", "my-model"),
        ("config.json", "llama"),
        ("../config.json", "llama"),
    ],
)
def test_a_model_is_named_by_its_folder_or_file(file: str, name: str) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, '
        '"intermediate_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 64}'
    )
    sink = Sink()
    fragment = read_hf_config(config, file, sink)
    assert fragment is not None, sink.diagnostics
    assert fragment.spec["model"]["name"] == name


REDUNDANT = '{"num_redundant_experts": 32}'


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--enable-eplb", "redundant_experts: 0"),
        (
            """--enable-eplb --eplb-config '{"num_redundant_experts": 32}'""",
            "redundant_experts: 32",
        ),
        (
            """--eplb-config '{"num_redundant_experts": 32}' --enable-eplb""",
            "redundant_experts: 32",
        ),
        ("""--enable-eplb --eplb-config '{"window_size": 9}'""", "redundant_experts: 0"),
        ("", ""),
    ],
)
def test_redundant_experts_are_read_in_any_order_of_flags(flags: str, expected: str) -> None:
    text, _ = read("vllm-args", f"vllm serve org/model -tp 2 {flags}\n")
    assert expected in text
    assert ("redundant_experts" in text) is bool(expected)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--dtype float16", {"precision": "fp16"}),
        ("--quantization fp8", {"precision": "fp8", "quantize": True}),
        ("--quantization fp8 --dtype bfloat16", {"precision": "fp8", "quantize": True}),
        ("--dtype bfloat16 --quantization fp8", {"precision": "fp8", "quantize": True}),
        ("--kv-cache-dtype fp8", {"kv_precision": "fp8"}),
        ("--quantization awq", {"precision": "int4"}),
        ("--quantization bitsandbytes", {}),
    ],
)
def test_number_formats_of_a_server_are_fields_of_its_job(
    flags: str, expected: dict[str, object]
) -> None:
    text, sink = read("vllm-args", f"vllm serve org/model -tp 2 {flags}\n")
    job = YAML(typ="safe", pure=True).load(text)["job"]
    names = ("precision", "quantize", "kv_precision")
    assert {name: job[name] for name in names if name in job} == expected
    assert any("bitsandbytes" in line for line in finding_lines(sink)) is (not expected)


@pytest.mark.parametrize(
    ("tree", "at"),
    [
        ({"a": {"b": "x\x07"}}, "a.b"),
        ({"a": {"b": ["x", "y\x00"]}}, "a.b"),
        ({"a": [{"c": "\x1b"}]}, "a.c"),
        ({"a": {"b\x07": "x"}}, "a.b\x07"),
        ({"a": {"b": ["x", 1, None]}}, None),
    ],
)
def test_control_characters_are_found_in_every_text_and_key(
    tree: dict[str, object], at: str | None
) -> None:
    sink = Sink()
    _check_characters(tree, "", ({}, Span("f", 1, 1)), sink)
    assert [one.path for one in sink.diagnostics] == ([at] if at else [])


def test_a_closing_bracket_of_a_case_does_not_join_later_lines() -> None:
    words = shell_words("case $x in\n a) run --tp 2 ;;\nesac\nfirst --a\nsecond --b\n", "r")
    statements = {word.text: word.statement for word in words}
    assert statements["first"] == statements["--a"] < statements["second"] == statements["--b"]


def test_a_flag_that_vllm_does_not_have_is_listed_with_its_value() -> None:
    text, sink = read("vllm-args", "vllm serve org/model -tp 2 --seed 7 --no-such-flag 9 8\n")
    assert YAML(typ="safe", pure=True).load(text)["launch"]["args"] == ["--seed", "7"]
    (found,) = [line for line in finding_lines(sink) if "--no-such-flag" in line]
    assert "--no-such-flag 9" in found
    assert "--no-such-flag 9 8" not in found


@pytest.mark.parametrize(
    ("layout", "replicas"), [({"tp": 4, "replicas": 4}, 4), ({"tp": 8, "replicas": 2}, 2)]
)
def test_the_script_of_a_service_is_read_as_a_whole_only_with_the_comment_of_parc(
    layout: dict[str, int], replicas: int
) -> None:
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", 2, layout=layout) | {"emit": ["vllm"]})
    script = emitted(plan)["vllm/serve.sh"]
    text, sink = read("vllm-args", script)
    assert f"replicas: {replicas}\n" in text
    assert finding_lines(sink) == []
    other = "".join(line for line in script.splitlines(True) if not line.startswith("# Serves"))
    text, sink = read("vllm-args", other)
    assert "replicas: 1\n" in text
    assert any("$devices" in line for line in finding_lines(sink))


@pytest.mark.parametrize(("flags", "biased"), [("", True), (" --disable-bias-linear", False)])
def test_experts_have_the_biases_of_all_linear_layers(flags: str, biased: bool) -> None:
    model = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --num-experts 8"
    text, _ = read("megatron-args", f"torchrun pretrain_gpt.py {model}{flags}\n")
    found = YAML(typ="safe", pure=True).load(text)["model"]
    assert found["mlp_bias"] is found["attention_output_bias"] is found["qkv_bias"] is biased
    assert found["experts"].get("bias", False) is biased
    assert found["experts"].get("router_bias") == ("parameter" if biased else None)


def test_options_of_slurm_may_have_their_value_attached() -> None:
    script = "#!/bin/bash\n#SBATCH -N4 -pgpu -t60\nsrun -N4 -n32 torchrun train.py\n"
    text, sink = read("sbatch", script)
    assert "nodes: 4" in text
    assert "partition: gpu" in text
    assert not any(line.endswith(("-N4", "-n32")) for line in finding_lines(sink))
