from pathlib import Path
from unittest.mock import Mock

import pytest

from parc.compiler.diagnostics import Sink, Span
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec import load as load_module
from parc.compiler.spec.job_spec import BatchInTokens
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.model_spec import ModelSpec
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES, SpecSource
from parc.compiler.spec.reading.tree_builder import MAX_DEPTH, MAX_KEY, MAX_VALUES
from parc.compiler.spec.spec import Spec

HEAD = """\
parc: 1
name: run
model: llama-3-70b
cluster: {node: dgx-h100, nodes: 4}
job: {sequence_length: 8192, global_batch: 1024}
"""


def load(text: str, *overrides: str) -> tuple[Spec | None, Sink]:
    sink = Sink()
    return load_spec(SpecSource("spec.yaml", text, Path()), overrides, sink), sink


def loaded(text: str, *overrides: str) -> Spec:
    spec, sink = load(text, *overrides)
    assert spec is not None, sink.diagnostics
    assert not sink.diagnostics
    return spec


def codes(text: str, *overrides: str) -> list[str]:
    return [found.code for found in load(text, *overrides)[1].diagnostics]


def test_a_short_spec_loads_with_documented_defaults():
    spec = loaded(HEAD)
    assert (spec.layout.tp, spec.job.precision, spec.goals.memory_headroom) == (
        "auto",
        "bf16",
        0.02,
    )


def test_units_of_every_kind_load():
    spec = loaded(
        HEAD.replace("global_batch: 1024", "global_batch: {tokens: 16Mi}")
        + "goals: {memory_headroom: 12%}\nlaunch: {slurm: {signal: 5m}}\n"
    )
    assert spec.job.global_batch == BatchInTokens(tokens=16 * 2**20)
    assert (spec.goals.memory_headroom, spec.launch.slurm.signal) == (0.12, 300.0)


def test_keys_and_values_have_positions():
    _, sink = load(HEAD + "launch:\n  env:\n    A.B: x\n")
    assert sink.positions.span_at("job.global_batch") == Span("spec.yaml", 5, 44, 4)
    assert sink.positions.span_at("job.global_batch", key=True) == Span("spec.yaml", 5, 30, 12)
    assert sink.positions.span_at('launch.env."A.B"') == Span("spec.yaml", 8, 10, 1)
    assert sink.positions.lines["spec.yaml"][1] == "name: run"


def test_a_path_that_is_not_written_has_the_position_of_its_parent():
    _, sink = load(HEAD)
    assert sink.positions.span_at("cluster.gpu.memory") == Span("spec.yaml", 4, 10, 26)
    assert sink.positions.span_at("layout.tp") is None


def test_explicit_keys_override_merged_keys():
    text = HEAD + "layout: {<<: [{tp: 2, pp: 4}, {pp: 8, cp: 2}], tp: 8}\n"
    layout = loaded(text).layout
    assert (layout.tp, layout.pp, layout.cp) == (8, 4, 2)


def test_overrides_are_applied_from_left_to_right():
    spec = loaded(HEAD, "layout.tp=4", "layout.tp=8", "layout.recompute={granularity: full}")
    assert spec.layout.tp == 8
    assert spec.layout.recompute.granularity == "full"


def test_an_override_of_a_text_field_needs_no_quotes():
    # A shell removes the quotes of --set versions.vllm="0.10", and YAML would read 0.1.
    overrides = ("versions.vllm=0.10", "launch.env.DEBUG=true", "name=0123")
    spec = loaded(HEAD, *overrides)
    assert spec.versions == {"vllm": "0.10"}
    assert spec.launch.env == {"DEBUG": "true"}
    assert spec.name == "0123"
    assert codes(HEAD + "versions: {vllm: 0.10}\n", *overrides[1:]) == ["PARC-X02"]


def test_an_override_below_a_name_keeps_the_name_as_base():
    spec = loaded(HEAD, "model.layers=4", "cluster.node.nics=4")
    assert spec.model == ModelSpec(base="llama-3-70b", layers=4)
    assert (spec.cluster.node.base, spec.cluster.node.nics) == ("dgx-h100", 4)


def test_an_override_of_a_list_entry_changes_that_entry():
    racks = "racks: [{name: r01, nodes: a}, {name: r02, nodes: b}]"
    spec = loaded(HEAD.replace("nodes: 4", racks), "cluster.racks[1].nodes=c[1-2]")
    assert [rack.nodes for rack in spec.cluster.racks] == ["a", "c[1-2]"]


def test_an_override_of_one_alias_does_not_change_the_other():
    text = HEAD.replace("nodes: 4", "racks: [&r {name: r01, nodes: a}, *r]")
    spec = loaded(text, "cluster.racks[1].name=r02")
    assert [rack.name for rack in spec.cluster.racks] == ["r01", "r02"]


def test_an_overridden_value_has_the_position_of_the_override():
    _, sink = load(HEAD + "layout: {tp: 8}\n", "name=other", "layout.tp=4")
    assert sink.positions.span_at("layout.tp") == Span("--set", 2, 11, 1)
    assert sink.positions.lines["--set"] == ("name=other", "layout.tp=4")


def test_mappings_created_by_an_override_have_its_position():
    _, sink = load(HEAD, "launch.slurm.requeu=true")
    assert sink.positions.span_at("launch.slurm", key=True) == Span("--set", 1, 1, 19)
    assert [found.path for found in sink.diagnostics] == ["launch.slurm.requeu"]


def test_an_override_repairs_the_value_that_it_replaces():
    assert loaded(HEAD + "layout: {tp: oops}\n", "layout.tp=4").layout.tp == 4


def test_json_is_a_spec_too():
    text = '{"parc": 1, "name": "x", "model": "m\\ud83d\\ude00", "cluster": "c", '
    spec = loaded(text + '"job": {"sequence_length": 4, "global_batch": 2}}')
    assert spec.model == "m\N{GRINNING FACE}"


def test_windows_line_ends_do_not_change_positions():
    _, sink = load(HEAD.replace("\n", "\r\n"))
    assert sink.positions.span_at("name") == Span("spec.yaml", 2, 7, 3)
    assert sink.positions.lines["spec.yaml"][1] == "name: run"


def test_nested_aliases_are_rejected_before_expansion():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert codes("l0: &l0 [x]\n" + "\n".join(levels)) == ["PARC-X14"]


def test_aliases_of_a_long_text_are_rejected_before_expansion():
    copies = ", ".join(["*long"] * 2000)
    assert codes(f"a: &long {'x' * 100_000}\nb: [{copies}]") == ["PARC-X14"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * (MAX_DEPTH + 1),
        "{a: " * 100_000,
        "- " * 100_000,
        "\n".join(" " * n + "a:" for n in range(900)),
        "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 500)),
        "[" + "1," * MAX_VALUES + "1]",
        "x" * (MAX_TEXT_BYTES + 1),
        f"? {'x' * (MAX_KEY + 1)}\n: 1",
    ],
    ids=["brackets", "braces", "dashes", "block", "aliases", "values", "bytes", "key"],
)
def test_a_text_larger_than_any_spec_is_rejected(text):
    assert codes(text) == ["PARC-X14"]


SERVE = "job: {kind: serve, traffic: {input_tokens: 9, output_tokens: 9}"


def test_a_key_of_the_other_kind_of_job_is_reported_as_such():
    spec = SERVE + ", sequence_length: 8}\nlayout: {vpp: 2}\n"
    _, sink = load(HEAD.partition("job:")[0] + spec)
    assert [found.path for found in sink.diagnostics] == ["job.sequence_length", "layout.vpp"]
    assert {found.code for found in sink.diagnostics} == {"PARC-X01"}


def test_a_pattern_that_is_too_long_is_reported_with_its_length() -> None:
    model = f"{{base: nemotron-h-8b, pattern: {'M' * 5000}}}"
    _, sink = load(HEAD.replace("llama-3-70b", model))
    (found,) = sink.diagnostics
    assert (found.code, found.finding.label) == (
        "PARC-X11",
        "the text must have at most 4096 characters",
    )
    assert found.finding.message == "model.pattern has 5000 characters"


def test_an_invalid_spec_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_tree = Mock(wraps=load_module.read_tree)
    monkeypatch.setattr(load_module, "read_tree", read_tree)
    # Each fix that is tried parses the spec again.
    monkeypatch.setattr("parc.compiler.pipeline.MAX_TRIED_TEXT", 0)
    sink = Sink()
    text = HEAD + "extra: 1\n"
    assert resolve_spec(SpecSource("spec.yaml", text, Path()), (), sink) is None
    assert [found.code for found in sink.diagnostics] == ["PARC-X01"]
    assert [call.args[0] for call in read_tree.call_args_list] == [text]
