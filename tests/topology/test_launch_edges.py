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
from tests.topology.reading import finding_lines, read


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
        ("config.json", "config"),
        ("../config.json", "config"),
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
        ("--quantization awq", {}),
    ],
)
def test_number_formats_of_a_server_are_fields_of_its_job(
    flags: str, expected: dict[str, object]
) -> None:
    text, sink = read("vllm-args", f"vllm serve org/model -tp 2 {flags}\n")
    job = YAML(typ="safe", pure=True).load(text)["job"]
    names = ("precision", "quantize", "kv_precision")
    assert {name: job[name] for name in names if name in job} == expected
    assert any("awq" in line for line in finding_lines(sink)) is (not expected)


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
