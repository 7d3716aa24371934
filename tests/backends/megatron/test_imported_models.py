"""Imported launch files of Megatron describe the model that the program trains, or are rejected."""

from __future__ import annotations

import json

import pytest

from parc.backends.megatron.launch_files.import_arguments import read_megatron_args
from parc.compiler.diagnostics import Sink
from parc.compiler.topology.readers.reader_state import Fragment
from tests.compiled import planned

FLAGS = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 "
    "--max-position-embeddings 512 --global-batch-size 16 --micro-batch-size 1 --bf16 "
)


def imported(program: str, flags: str = "") -> tuple[Fragment | None, Sink]:
    """Return the fragment of a launch line, and the findings."""
    sink = Sink()
    line = f"torchrun --nproc-per-node 8 --nnodes 1 {program} {FLAGS}{flags}\n"
    return read_megatron_args(line, "run.sh", sink), sink


@pytest.mark.parametrize(
    ("flags", "activation"),
    [
        ("", "gelu_tanh"),
        ("--disable-bias-linear", "gelu"),
        ("--no-bias-gelu-fusion", "gelu"),
        ("--disable-bias-linear --squared-relu", "relu2"),
    ],
)
def test_gelu_has_its_tanh_form_only_in_the_kernel_that_adds_a_bias(
    flags: str, activation: str
) -> None:
    fragment, _ = imported("pretrain_gpt.py", flags)
    assert fragment is not None
    model = {**fragment.spec["model"], "vocab": 50304}
    assert model["activation"] == activation
    spec = {**fragment.spec, "parc": 1, "name": "x", "model": model, "emit": ["megatron"]}
    spec["cluster"] = {"node": "dgx-h100", "nodes": 1}
    plan, sink = planned(spec)
    assert plan is not None, [one.finding.message for one in sink.diagnostics]


@pytest.mark.parametrize("program", ["pretrain_bert.py", "/megatron/pretrain_t5.py"])
def test_a_program_for_another_kind_of_model_is_rejected(program: str) -> None:
    fragment, sink = imported(program)
    assert fragment is None
    assert [one.code for one in sink.diagnostics] == ["PARC-I05"]
    assert "an encoder" in sink.diagnostics[0].finding.message


@pytest.mark.parametrize("program", ["pretrain_vlm.py", "examples/multimodal/train.py"])
def test_encoders_next_to_the_decoder_are_listed_as_left_out(program: str) -> None:
    fragment, _ = imported(program)
    assert fragment is not None
    assert any(f"the encoders that {program} trains" in note for note in fragment.notes)
    own, _ = imported("examples/train.py")
    assert own is not None
    assert not any("encoders" in note for note in own.notes)


def test_a_spec_with_a_program_for_another_kind_of_model_is_rejected() -> None:
    spec = {
        **{"parc": 1, "name": "x", "model": "llama-3-8b", "emit": ["megatron"]},
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 512, "global_batch": 16},
        "launch": {"program": "pretrain_bert.py"},
    }
    _, sink = planned(spec)
    found = [one for one in sink.diagnostics if one.code == "PARC-E10"]
    assert [one.finding.fix for one in found] == ["launch.program: pretrain_gpt.py"]
    assert "BERT" in json.dumps(found[0].finding.label)


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        ("--ffn-hidden-size $X", "model.ffn"),
        ("--normalization $X", "model.norm"),
        ("--recompute-granularity $X", "layout.recompute"),
        ("--fp8-format hybrid --fp8-recipe $X", "job.fp8_recipe"),
        ("--pipeline-model-parallel-size $X", "layout.pp"),
        (
            "--pipeline-model-parallel-size $X --num-layers-per-virtual-pipeline-stage 2",
            "layout.vpp",
        ),
        ("--tensor-model-parallel-size $X --tensor-parallel-num-weight-shards 8", "layout.gtp"),
    ],
)
def test_a_field_that_follows_from_an_unknown_value_is_left_out(flags: str, path: str) -> None:
    fragment, _ = imported("pretrain_gpt.py", flags)
    assert fragment is not None
    section, field = path.split(".")
    assert field not in fragment.spec.get(section, {})
    assert any(note.startswith("not carried over") for note in fragment.notes)
    known, _ = imported("pretrain_gpt.py", flags.replace("$X", KNOWN.get(path, "2")))
    assert known is not None
    assert field in known.spec[section]


KNOWN = {
    "model.norm": "RMSNorm",
    "layout.recompute": "selective",
    "job.fp8_recipe": "blockwise",
}
"""Field -> value of its flag in a test; 2 for all others."""


def test_embedding_and_loss_count_as_layers_of_virtual_stages() -> None:
    counted = (
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
        "--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2"
    )
    fragment, _ = imported("pretrain_gpt.py", counted)
    assert fragment is not None
    assert fragment.spec["layout"]["vpp"] == 4
