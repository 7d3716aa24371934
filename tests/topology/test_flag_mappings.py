"""Import and lint of YAML files that map flags to values, such as the test cases of Megatron."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.importers.shell_words import shell_words, statements
from tests.lint.scripts import codes

CASE = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  # the model
  --num-layers: 12
  --hidden-size: 512

  --num-attention-heads: 8  # as in the paper
  --seq-length: 1024
  --max-position-embeddings: 1024
  --bf16: true
  --swiglu: false
  --micro-batch-size: 2
  --global-batch-size: 128
  --tensor-model-parallel-size: 2
  --moe-layer-freq: ([0]*3+[1]*9)
TEST_TYPE: regular
"""


def words(value: str) -> list[str]:
    """Return the words of the flag ``--a`` with a value in YAML."""
    found = shell_words(f"ARGS:\n  --a: {value}\n  --b: 1\n", "case.yaml")
    (command,) = [one for one in statements(found) if one[0].text == "--a"]
    texts = [word.text for word in command]
    assert texts[-2:] == ["--b", "1"]
    return texts[1:-2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("8", ["8"]),
        ("true", []),
        ("${TP}", ["${TP}"]),
        ('"Et*3|(tt|)*29m|L"', ["Et*3|(tt|)*29m|L"]),
        ("([0]*3+[1]*9)", ["([0]*3+[1]*9)"]),
        ('"[2 2]"', ["2", "2"]),
        ("2 2  # two levels", ["2", "2"]),
        ('"0:768 5B:1536"', ["0:768 5B:1536"]),
        ("$(whoami)", ["$(whoami)"]),
    ],
)
def test_the_value_of_a_flag_is_read_as_megatron_s_test_runner_reads_it(
    value: str, expected: list[str]
) -> None:
    assert words(value) == expected


@pytest.mark.parametrize("value", ["false", "null", "~"])
def test_a_flag_that_is_off_is_left_out(value: str) -> None:
    found = shell_words(f"ARGS:\n  --a: 1\n  --b: {value}\n  --c: 2\n", "case.yaml")
    assert [word.text for word in found if word.is_flag] == ["--a", "--c"]


def test_words_keep_their_lines_and_columns() -> None:
    lines = CASE.split("\n")
    flags = [word for word in shell_words(CASE, "case.yaml") if word.is_flag]
    assert len(flags) == 10
    for word in flags:
        assert lines[word.span.line - 1][word.span.column - 1 :].startswith(word.text + ":")
    heads = next(word for word in shell_words(CASE, "case.yaml") if word.text == "8")
    assert lines[heads.span.line - 1][heads.span.column - 1] == "8"


def test_a_mapping_of_flags_is_imported() -> None:
    sink = Sink()
    found = import_files("auto", [(CASE, "case.yaml")], sink)
    assert found is not None
    assert found.kinds == "megatron-args"
    spec = found.fragment.spec
    assert (spec["model"]["layers"], spec["model"]["gated"]) == (12, False)
    assert (spec["layout"]["tp"], spec["job"]["precision"]) == (2, "bf16")


def test_a_mapping_of_flags_is_linted() -> None:
    assert codes(CASE) == []
    assert codes(CASE.replace("--bf16: true", "--tensor-model-paralel-size: 2")) == ["F01"]
    assert "D07" in codes(CASE.replace("heads: 8", "heads: 7"))


@pytest.mark.parametrize(("balancing", "expected"), [("aux_loss", ["M06"]), ("sinkhorn", [])])
def test_a_router_with_one_expert_needs_no_softmax_with_sinkhorn(
    balancing: str, expected: list[str]
) -> None:
    experts = (
        f"--num-experts: 4\n  --moe-router-topk: 1\n  --moe-router-load-balancing-type: {balancing}"
    )
    assert codes(CASE.replace("--bf16: true", experts)) == expected


LATENT = "--multi-latent-attention: true\n  --q-lora-rank: 768\n  --kv-lora-rank: 512"


@pytest.mark.parametrize("flag", ["--add-qkv-bias", "--group-query-attention", "--qk-layernorm"])
def test_a_flag_that_latent_attention_ignores_is_no_contradiction(flag: str) -> None:
    text = CASE.replace("--bf16: true", f"{LATENT}\n  {flag}: true")
    assert codes(text) == codes(text.replace(flag, "--bf16"))
