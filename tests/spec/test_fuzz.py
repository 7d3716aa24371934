"""For any text, the loader returns a spec or diagnostics with positions, and raises nothing."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.property_settings import examples

SPEC = """\
parc: 1
name: llama3-405b   # a comment
model: {base: llama-3.1-405b, experts: {count: 8, top_k: 2, size: 4096}}
cluster: &c
  gpu: {base: h100-sxm-80gb, memory: 80 GB}
  node: dgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-16]"}
    - {<<: {name: r02}, nodes: ['r02n[01-16]', "r02n17"]}
  spare: [r02n16]
job:
  sequence_length: 8192
  global_batch: {tokens: 16Mi}
  precision: bf16
goals: {memory_headroom: 8%}
layout: {tp: 8, pp: auto, recompute: {granularity: full, method: uniform, layers: 1}}
launch:
  args: ["--foo", "a b"]
  env: {NCCL_DEBUG: "INFO"}
  slurm: {signal: 300s, requeue: true}
versions: {megatron: "0.19"}
emit: [megatron, slurm, rankmap]
"""
PIECES = [
    *":,[]{}&*!|>'\"%@`#?-\n\t ~<",
    "\r",
    "\x00",
    "\ufeff",
    "\ud800",
    "\u2028",
    "é",
    "\U0001f600",
]
PIECES += ["*c", "&c ", "<<: ", "!!int ", "---\n", "...\n", "%YAML 1.1\n", "null", "true", ".nan"]
PIECES += ["0x1F", "0o7", "1e999", "-1", "9" * 500, "\\U00110000", "  ", "- ", "? ", ": ", "|2-\n"]


def check_load(text: str, *overrides: str) -> None:
    sink = Sink()
    spec = load_spec(SpecSource("spec.yaml", text, Path()), overrides, sink)
    assert (spec is None) == bool(sink.diagnostics)
    for found in sink.diagnostics:
        assert found.span is not None
        assert found.span.line >= 1
        assert found.span.column >= 1
        assert found.span.length >= 1


def mutated(text: str, dice: random.Random) -> str:
    """Return the text after one to three edits: insertion, deletion or duplication."""
    for _ in range(dice.randint(1, 3)):
        start = dice.randrange(len(text) + 1)
        end = min(len(text), start + dice.choice((0, 0, 1, 5, 40)))
        put = dice.choice((dice.choice(PIECES), "", text[start:end] * 2))
        text = text[:start] + put + text[end:]
    return text


def test_the_spec_that_is_mutated_is_valid():
    sink = Sink()
    assert load_spec(SpecSource("spec.yaml", SPEC, Path()), (), sink), sink.diagnostics


@pytest.mark.parametrize("seed", range(4))
def test_mutated_specs_get_an_check_load(seed):
    dice = random.Random(seed)
    for _ in range(75):
        check_load(mutated(SPEC, dice))


@examples(100)
@given(st.binary(max_size=200))
def test_any_bytes_get_an_check_load(noise):
    check_load(noise.decode("utf-8", errors="replace"))


@examples(100)
@given(st.lists(st.sampled_from([*PIECES, "a", "b: ", "tp"]), max_size=25).map("".join))
def test_any_heap_of_yaml_pieces_gets_an_check_load(text):
    check_load(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@examples(75)
@given(
    path=st.sampled_from(["model", "cluster", "job", "layout.tp", "layout", "emit", "versions"]),
    value=VALUES,
)
def test_any_value_in_the_place_of_another_gets_an_check_load(path, value):
    import json

    check_load(SPEC, f"{path}={json.dumps(value)}")


@examples(75)
@given(st.text(alphabet='modelrackscluster.[]0"= ', max_size=30))
def test_any_override_gets_an_check_load(override):
    check_load(SPEC, override)
