"""Tests of warnings and advice on valid plans."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from parc.backends.megatron.advice import report_advice
from parc.backends.megatron.backend import BACKEND as MEGATRON
from parc.backends.megatron.capabilities import VERSIONS
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Pins, Plan, Search
from parc.compiler.ir.layout import bubble_fraction
from tests.backends.megatron.boundaries import DENSE, PATTERN
from tests.backends.megatron.test_args_file import emitted, plan
from tests.compiled import Spec

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "S01",
        {"layout.tp": 1, "layout.sequence_parallel": True},
        {"layout.tp": 2, "layout.sequence_parallel": True},
    ),
    ("D21", {"model.kv_heads": 2}, {"model.kv_heads": 4}),
    ("D04", {"model.vocab": 600}, {"model.vocab": 1000}),
    ("P08", {"layout.pp": 6, "layout.tp": 1, "job.global_batch": 16}, {"job.global_batch": 48}),
    (
        "P16",
        {"layout.vpp": 1, "job.global_batch": 24},
        {"layout.vpp": 1, "job.global_batch": 48},
    ),
    (
        "P17",
        {"model.vocab": 2000, "layout.first_stage_layers": 4},
        {"model.vocab": 2000, "layout.first_stage_layers": 8},
    ),
]


@pytest.mark.parametrize(("code", "bad", "good"), CASES, ids=[code for code, _, _ in CASES])
def test_a_warning_appears_on_one_side_of_its_threshold(
    code: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    found, sink = plan(DENSE, bad)
    assert found is not None, sink.diagnostics
    assert f"PARC-{code}" in {d.code for d in sink.diagnostics}
    found, sink = plan(DENSE, good)
    assert found is not None, sink.diagnostics
    assert f"PARC-{code}" not in {d.code for d in sink.diagnostics}


@pytest.mark.parametrize(
    ("base", "layout", "expected"),
    [
        (DENSE, {"first_stage_layers": 12}, "give stage 0 fewer layers"),
        (DENSE, {"first_stage_layers": 4}, "give the last stage fewer layers"),
        (
            PATTERN,
            {"pp": 6, "tp": 4},
            "the pattern cannot be split more evenly; a smaller pp may be more even",
        ),
        (PATTERN, {"pipeline_layout": "Et*12|t*4L"}, "give stage 0 fewer layers"),
    ],
)
def test_the_advice_names_the_most_loaded_stage(base: Spec, layout: Spec, expected: str) -> None:
    made, _ = plan(base, {f"layout.{key}": value for key, value in layout.items()})
    assert isinstance(made, Plan)
    sink = advice_without_search(made)
    (found,) = [one.finding for one in sink.diagnostics if one.code == "PARC-P17"]
    assert found.help == expected
    assert "MTP" not in found.label


@pytest.mark.parametrize("version", VERSIONS)
def test_sequence_parallelism_is_off_at_tp_1_as_in_megatron(version: str) -> None:
    pins = {"layout.tp": 1, "layout.sequence_parallel": True, "versions": {"megatron": version}}
    found, sink = plan(DENSE, pins)
    assert found is not None
    assert isinstance(found, Plan)
    assert not found.layout.sequence_parallel
    assert [one.severity for one in sink.diagnostics if one.code == "PARC-S01"] == ["warning"]
    assert "--sequence-parallel" not in emitted(DENSE, pins)
    assert "--sequence-parallel" in emitted(DENSE, {**pins, "layout.tp": 2})


def test_a_large_loss_gets_a_smaller_last_stage_as_the_fix() -> None:
    even = {"model.vocab": 48000, "layout.pp": 4, "layout.tp": 2, "layout.vpp": 1}
    even["layout.count_loss"] = False
    _, sink = plan(DENSE, even)
    (found,) = [one.finding for one in sink.diagnostics if one.code == "PARC-P17"]
    path, last = found.fix.split(": ")
    after, sink = plan(DENSE, {**even, path: int(last)})
    assert isinstance(after, Plan)
    assert "PARC-P17" not in {one.code for one in sink.diagnostics}
    # A spec that sets a part of the split keeps it.
    _, sink = plan(DENSE, {**even, "layout.first_stage_layers": 4})
    assert [one.finding.fix for one in sink.diagnostics if one.code == "PARC-P17"] == [""]


def test_sizes_that_the_search_chose_get_no_advice_to_change_them() -> None:
    spec = {"model.vocab": 48000, "layout.pp": 4, "layout.tp": 2, "layout.vpp": 1}
    found, _ = plan(DENSE, spec | {"model.kv_heads": 1})
    assert isinstance(found, Plan)
    sink = Sink()
    report_advice(replace(found, problem=replace(found.problem, pins=Pins())), sink)
    assert "PARC-D21" not in {one.code for one in sink.diagnostics}
    report_advice(found, sink)
    assert "PARC-D21" in {one.code for one in sink.diagnostics}


def advice_without_search(made: Plan) -> Sink:
    """Return the advice on a plan that was read from a launch file."""
    sink = Sink()
    report_advice(replace(made, search=Search(0, (), ())), sink)
    return sink


def test_stages_that_the_search_has_balanced_get_no_advice() -> None:
    large = {"model": "llama-3.2-1b", "layout.pp": 4, "layout.tp": 1, "layout.vpp": 1}
    large["layout.cuda_graphs"] = False
    balanced, sink = plan(DENSE, large)
    assert isinstance(balanced, Plan)
    assert "PARC-P17" not in {one.code for one in sink.diagnostics}
    even, sink = plan(DENSE, {**large, "layout.count_loss": False})
    assert isinstance(even, Plan)
    assert even.layout.split.form == "even"
    assert [row[0].layers for row in balanced.layout.split.chunks] == [4, 5, 5, 2]
    assert balanced.estimate.time.total_seconds < 0.9 * even.estimate.time.total_seconds
    pins = replace(even.problem.pins, count_loss=None)
    unpinned = replace(even, problem=replace(even.problem, pins=pins))
    assert "PARC-P17" in {one.code for one in advice_without_search(unpinned).diagnostics}


PIPELINE = {"layout.vpp": 1, "layout.micro_batch": 1, "job.global_batch": 24}


def test_a_larger_batch_that_shrinks_the_bubble_keeps_the_layout() -> None:
    found, sink = plan(DENSE, PIPELINE)
    (advice,) = [one.finding for one in sink.diagnostics if one.code == "PARC-P16"]
    (batch, share) = re.findall(
        r"a global batch of (\d+), which reduces the bubble to ([0-9.]+)", advice.help
    )[0]
    after, sink = plan(DENSE, {**PIPELINE, "job.global_batch": int(batch)})
    assert isinstance(found, Plan)
    assert isinstance(after, Plan)
    assert "PARC-P16" not in {one.code for one in sink.diagnostics}
    layout = after.layout
    assert replace(layout, split=found.layout.split) == found.layout
    bubble = bubble_fraction(layout.pp, layout.vpp, layout.micro_batches(int(batch)))
    assert f"{bubble:.2f}" == share


def test_no_bubble_is_promised_for_another_batch_if_the_search_chooses_the_layout() -> None:
    free = {"layout": {"pp": 4, "vpp": 1}, "job.global_batch": 24}
    _, sink = plan(DENSE, free)
    bubbles = ("PARC-P08", "PARC-P16")
    (advice,) = [one.finding for one in sink.diagnostics if one.code in bubbles]
    assert "reduces the bubble to" not in advice.help
    assert "shows the best layouts for such a batch" in advice.help


@pytest.mark.parametrize(
    ("version", "tokenizer", "tp", "rows"),
    [
        # 128,256 tokens are a multiple of 128; the token that 0.17 adds costs 128 more rows.
        ("0.17", "NullTokenizer", 1, 128384),
        ("0.17", "NullTokenizer", 2, 128512),
        ("0.17", "HuggingFaceTokenizer", 1, 128256),
        ("0.18", "NullTokenizer", 1, 128256),
        ("0.19", "NullTokenizer", 1, 128256),
        ("0.20", "NullTokenizer", 1, 128256),
    ],
)
def test_the_rows_of_the_embedding_follow_the_tokenizer_of_the_version(
    version: str, tokenizer: str, tp: int, rows: int
) -> None:
    changes = {
        "model.vocab": 128256,
        "layout": {"tp": tp, "pp": 1},
        "versions": {"megatron": version},
        "job.tokenizer": tokenizer,
        "job.tokenizer_model": None if tokenizer == "NullTokenizer" else "meta-llama/Llama-3.1-8B",
    }
    found, sink = plan(DENSE, changes)
    assert isinstance(found, Plan), sink.diagnostics
    assert MEGATRON.padded_vocab(found.problem, tp) == rows
    # The memory of the plan contains these rows: embedding and head, 2 bytes per weight.
    exact, _ = plan(DENSE, {**changes, "model.vocab": rows, "versions": {"megatron": "0.19"}})
    assert isinstance(exact, Plan)
    weights = [one.estimate.memory[0].weights_bytes for one in (found, exact)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(("pp", "tp", "vpp"), [(2, 4, 1), (2, 4, 2), (4, 2, 1), (4, 2, 2)])
def test_the_suggested_batch_is_the_smallest_with_a_bubble_of_at_most_a_tenth(
    pp: int, tp: int, vpp: int
) -> None:
    sizes = {"layout.pp": pp, "layout.tp": tp, "layout.vpp": vpp, "cluster.nodes": 1}
    found, sink = plan(DENSE, {**sizes, "job.global_batch": pp})
    assert found is not None, sink.diagnostics
    (help_,) = [
        one.finding.help for one in sink.diagnostics if one.code in ("PARC-P16", "PARC-P08")
    ]
    batch = re.search(r"a global batch of ([0-9]+), which", help_)
    assert batch is not None, help_
    count = int(batch[1]) // found.layout.dp
    assert count % pp == 0
    assert bubble_fraction(pp, vpp, count) <= 0.1 < bubble_fraction(pp, vpp, count - pp)
