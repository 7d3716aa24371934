from dataclasses import fields, replace
from functools import cache

import pytest

from parc.backends.registry import backend, framework
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import (
    NO_RECOMPUTE,
    Cluster,
    Generation,
    Model,
    Pins,
    Problem,
    Recompute,
)
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.resolve.resolve_problem import resolve_problem
from parc.compiler.spec.layout_spec import LayoutSpec
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.generations import generation

HEAD = """\
parc: 1
name: run
model: llama-3-8b
cluster: {node: dgx-h100, nodes: 4}
"""
JOB = "job: {sequence_length: 8192, global_batch: 1024}\n"


@cache
def model_and_cluster() -> tuple[Model, Cluster]:
    sink = Sink()
    spec = load_spec(SpecSource("spec.yaml", HEAD + JOB, None), (), sink)
    assert spec is not None
    model = resolve_model(spec.model, Library(None), sink)
    cluster = resolve_cluster(spec.cluster, Library(None), sink)
    assert model is not None
    assert cluster is not None
    return model, cluster


def resolve(
    rest: str, *, model: Model | None = None, facts: Generation | None = None
) -> tuple[Problem | None, Sink]:
    sink = Sink()
    spec = load_spec(SpecSource("spec.yaml", HEAD + rest, None), (), sink)
    assert spec is not None, sink.diagnostics
    usual, cluster = model_and_cluster()
    if facts is not None:
        rates = tuple((name, 1e3) for name in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4"))
        gpu = replace(cluster.gpu, generation=facts.name, peak_tflops=rates)
        cluster = replace(cluster, gpu=gpu, generation=facts)
    return resolve_problem(spec, model or usual, cluster, sink), sink


def resolved(rest: str) -> Problem:
    problem, sink = resolve(rest)
    assert problem is not None, sink.diagnostics
    assert not sink.diagnostics
    return problem


def reported(rest: str, **given: Model | Generation) -> list[tuple[str, str]]:
    _, sink = resolve(rest, **given)
    return [(found.code, found.path) for found in sink.diagnostics]


def test_a_spec_that_pins_nothing_leaves_all_pins_open():
    assert resolved(JOB).pins == Pins()


def test_every_pin_of_the_spec_is_a_pin_of_the_problem():
    assert {field.name for field in fields(Pins)} == set(LayoutSpec.model_fields)


def test_pins_are_numbers_and_auto_is_none():
    pins = resolved(JOB + "layout: {tp: 8, pp: auto, zero_stage: 0, count_loss: false}\n").pins
    assert (pins.tp, pins.pp, pins.zero_stage, pins.count_loss) == (8, None, 0, False)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("none", NO_RECOMPUTE),
        ("selective", Recompute.selective(("core_attn",))),
        ("full", Recompute("full", (), "uniform", 1)),
        ("auto", None),
        ("{granularity: full, method: block, layers: 3}", Recompute("full", (), "block", 3)),
        ("{granularity: selective, modules: [mlp]}", Recompute.selective(("mlp",))),
    ],
)
def test_short_values_of_recompute_are_expanded(written, meant):
    assert resolved(f"{JOB}layout: {{recompute: {written}}}\n").pins.recompute == meant


def test_a_batch_in_tokens_becomes_sequences():
    job = resolved("job: {sequence_length: 8192, global_batch: {tokens: 16Mi}}\n").job
    assert job.global_batch == 2048


def test_a_batch_that_splits_a_sequence_names_its_neighbors_and_the_binary_reading():
    _, sink = resolve("job: {sequence_length: 8192, global_batch: {tokens: 16M}}\n")
    (found,) = sink.diagnostics
    assert (found.code, found.path) == ("PARC-X20", "job.global_batch.tokens")
    assert found.finding.label == "16000000 % 8192 = 1024, must be 0"
    assert (
        found.finding.help
        == "nearest valid values: 15998976 (1953 sequences), 16007168 (1954 sequences)"
    )
    assert found.finding.fix == "job.global_batch.tokens: 16Mi   (2048 sequences)"
    assert [cause.path for cause in found.finding.causes] == ["job.sequence_length"]


def test_a_batch_of_less_than_one_sequence_goes_up_to_one():
    _, sink = resolve("job: {sequence_length: 8192, global_batch: {tokens: 100}}\n")
    assert sink.diagnostics[0].finding.fix == "job.global_batch: 1"


def test_finetune_needs_a_checkpoint():
    job = "job: {kind: finetune, sequence_length: 4096, global_batch: 64"
    assert reported(job + "}\n") == [("PARC-X19", "job.kind")]
    assert resolved(job + ", load_dir: /ckpt}\n").job.load_dir == "/ckpt"


def test_targets_are_sorted_and_have_their_default_version():
    problem = resolved(JOB)
    assert problem.emit == ("megatron", "preflight", "rankmap", "slurm", "torchrun")
    assert [name for name, _ in problem.versions] == list(problem.emit)
    assert problem.version("megatron") == framework("megatron").default_version
    assert problem.version("slurm") == backend("slurm").versions[-1]
    assert problem.launch.slurm.version == problem.version("slurm")


def test_without_a_framework_the_rank_order_is_that_of_megatron():
    problem = resolved(JOB + "emit: [rankmap]\n")
    assert (problem.emit, problem.framework) == (("rankmap",), "megatron")
    assert [name for name, _ in problem.versions] == ["megatron", "rankmap"]
    assert problem.launch.slurm.version == ""


def test_a_version_may_be_longer_than_the_known_one():
    assert resolved(JOB + 'versions: {megatron: "0.19.2"}\n').version("megatron") == "0.19"
    assert resolved(JOB + 'versions: {torchrun: "2.10"}\n').version("torchrun") == "2.10"


@pytest.mark.parametrize(
    ("rest", "expect"),
    [
        ("emit: [megatron, slrum]", [("PARC-X16", "emit[1]")]),
        ("emit: [megatron, slurm, megatron]", [("PARC-X17", "emit[2]")]),
        ('versions: {vlm: "0.9"}', [("PARC-X16", "versions.vlm")]),
        ('versions: {megatron: "0.1"}', [("PARC-X18", "versions.megatron")]),
        ('versions: {megatron: "0.191"}', [("PARC-X18", "versions.megatron")]),
        ('versions: {megatron: ""}', [("PARC-X18", "versions.megatron")]),
        ("emit: ['']", [("PARC-X16", "emit[0]")]),
    ],
)
def test_targets_that_do_not_exist_are_refused(rest, expect):
    assert reported(f"{JOB}{rest}\n") == expect


def test_a_misspelled_target_gets_the_near_one():
    _, sink = resolve(JOB + "emit: [megatron-lm]\n")
    assert sink.diagnostics[0].finding.label == "did you mean megatron or megatron-bridge?"


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("volta", ("fp16",)),
        ("ampere", ("fp16", "bf16")),
        ("ada", ("fp16", "bf16", "fp8")),
        ("hopper", ("fp16", "bf16", "fp8")),
        ("blackwell", ("fp16", "bf16", "fp8", "mxfp8", "nvfp4")),
        ("cdna2", ("bf16", "fp16")),
        ("cdna3", ("bf16", "fp16", "fp8")),
        ("cdna4", ("bf16", "fp16", "fp8", "mxfp8")),
    ],
)
def test_every_generation_accepts_exactly_its_formats(name: str, valid: tuple[str, ...]) -> None:
    for precision in ("fp16", "bf16", "fp8", "mxfp8", "nvfp4"):
        job = JOB.replace("1024}", f"1024, precision: {precision}}}")
        expected = [] if precision in valid else [("PARC-R03", "job.precision")]
        assert reported(job, facts=generation(name)) == expected


def test_a_format_that_the_gpu_lacks_names_those_it_has():
    job = JOB.replace("1024}", "1024, precision: fp8}")
    _, sink = resolve(job, facts=generation("ampere"))
    finding = sink.diagnostics[0].finding
    assert finding.label == "GPU generation ampere has no matrix units for fp8"
    assert finding.help == "valid values on this GPU: fp16, bf16"
    assert finding.fix == "job.precision: bf16"


def test_a_gpu_that_lacks_a_format_of_its_generation_is_refused():
    # Transformer Engine has no mxfp8 on compute capability 12.0, although Blackwell has it.
    for gpu, valid in (("rtx-pro-6000-96gb", False), ("b200-180gb", True)):
        spec = JOB.replace("1024}", "1024, precision: mxfp8}")
        sink = Sink()
        overrides = [f"cluster={{node: {{base: dgx-h100, gpu: {gpu}}}, nodes: 4}}"]
        resolve_spec(SpecSource("x", HEAD + spec, None), overrides, sink)
        assert [found.code for found in sink.diagnostics] == ([] if valid else ["PARC-R03"])
        if not valid:
            assert sink.diagnostics[0].finding.fix == "job.precision: fp8"


def placed(**changes: object) -> Model:
    model = model_and_cluster()[0]
    return replace(model, position=replace(model.position, **changes))


def test_a_learned_table_ends_at_its_last_row():
    learned = placed(kind="learned", max_positions=8191)
    assert reported(JOB, model=learned) == [("PARC-S12", "job.sequence_length")]
    assert reported(JOB, model=placed(kind="learned", max_positions=8192)) == []


def test_rotary_positions_beyond_the_context_are_a_warning():
    problem, sink = resolve(JOB, model=placed(max_positions=4096))
    assert [(found.code, found.severity) for found in sink.diagnostics] == [("PARC-S16", "warning")]
    assert problem is not None


def test_declared_scaling_extends_the_context():
    changes = {"max_positions": 4096, "original_max_positions": 4096, "scaling": "linear"}
    assert reported(JOB, model=placed(**changes, scaling_factor=2.0)) == []
    assert reported(JOB, model=placed(**changes, scaling_factor=1.5)) == [
        ("PARC-S16", "job.sequence_length")
    ]


def test_the_context_of_a_scaled_model_is_its_number_of_positions():
    # Llama 3.2 1B has 131072 positions, although 8192 x 32 is twice as many.
    scaled = {"original_max_positions": 1024, "scaling": "llama3", "scaling_factor": 32.0}
    assert reported(JOB, model=placed(max_positions=8192, **scaled)) == []
    assert reported(JOB, model=placed(max_positions=8191, **scaled)) == [
        ("PARC-S16", "job.sequence_length")
    ]


def test_the_digest_is_of_the_content_and_not_of_its_order():
    swapped = "job: {global_batch: 1024, sequence_length: 8192}\n"
    assert resolved(JOB).digest == resolved(swapped).digest
    assert resolved(JOB).digest != resolved(JOB + "layout: {tp: 2}\n").digest
    other, _ = resolve(JOB, model=replace(model_and_cluster()[0], layers=4))
    assert other is not None
    assert resolved(JOB).digest != other.digest


def test_all_mistakes_are_reported_in_one_run():
    rest = (
        "job: {kind: finetune, sequence_length: 7, global_batch: {tokens: 8}, precision: nvfp4}\n"
    )
    found = reported(rest + 'emit: [x]\nversions: {megatron: "9"}\n')
    assert [code for code, _ in found] == [
        *("PARC-X19", "PARC-X20", "PARC-R03", "PARC-X16", "PARC-X18"),
    ]
