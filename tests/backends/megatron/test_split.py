"""Tests of the assignment of layers to chunks: complete, balanced, in the simplest form."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.megatron.stages.layout_string import parse_layout_string
from parc.backends.megatron.stages.split import (
    ModelDepth,
    SplitPins,
    _find_split_cached,
    find_layout_string_fault,
    find_split,
    split_with_counts,
)
from parc.backends.megatron.stages.why_no_split import _explain_no_pipeline
from parc.compiler.ir import PipelineSplit, Problem
from tests.compiled import resolved

FREE = SplitPins(None, None, None, None, None)
FORMS = [
    # layers, mtp, pp, vpp, form, layers of the first and of the last rank
    (80, 0, 4, 5, "even", 20, 20),
    (126, 0, 16, 1, "counted", 7, 7),
    (94, 0, 16, 1, "counted", 5, 5),
    (33, 0, 2, 1, "counted", 17, 16),
    (61, 0, 16, 1, "first-last", 3, 2),
    (61, 1, 16, 2, "string", 4, 1),
    (105, 0, 35, 1, "even", 3, 3),
    (12, 0, 1, 1, "even", 12, 12),
    # The embedding is half a layer, so that the last stages are left without decoder layers.
    (1, 1, 3, 1, "string", 0, 0),
    (2, 1, 2, 2, "string", 1, 1),
    (4, 1, 7, 1, "string", 0, 0),
]


def split(layers: int, mtp: int, pp: int, vpp: int, pins: SplitPins = FREE) -> PipelineSplit | None:
    return _find_split_cached(ModelDepth(layers, mtp, 2, 1), pp, vpp, pins)


@pytest.mark.parametrize("row", FORMS)
def test_the_simplest_balanced_form_is_chosen(
    row: tuple[int, int, int, int, str, int, int],
) -> None:
    layers, mtp, pp, vpp, *wanted = row
    found = split(layers, mtp, pp, vpp)
    assert found is not None
    assert [found.form, found.stage_layers(0), found.stage_layers(-1)] == wanted


@given(st.integers(1, 200), st.integers(0, 2), st.integers(1, 24), st.integers(1, 8))
def test_every_layer_is_in_exactly_one_chunk_in_order(
    layers: int, mtp: int, pp: int, vpp: int
) -> None:
    found = split(layers, mtp, pp, vpp)
    if found is None:
        assert pp * vpp > layers or (pp == 1 and vpp > 1) or layers < 2 * pp * vpp
        return
    chunks = [found.chunks[k % pp][k // pp] for k in range(pp * vpp)]
    assert sum(chunk.layers for chunk in chunks) == layers
    assert sum(chunk.mtp_layers for chunk in chunks) == mtp
    first = 0
    for chunk in chunks:
        assert chunk.first_layer == first
        first += chunk.layers
    assert [chunk.embedding for chunk in chunks] == [True] + [False] * (pp * vpp - 1)
    assert [chunk.loss for chunk in chunks] == [False] * (pp * vpp - 1) + [True]
    if found.text:
        assert (
            find_layout_string_fault(
                ModelDepth(layers, mtp, 2, 1), parse_layout_string(found.text), pp, vpp
            )
            is None
        )


@given(st.integers(8, 200), st.integers(2, 16))
def test_stages_without_mtp_have_minimal_length(layers: int, pp: int) -> None:
    found = split(layers, 0, pp, 1)
    if found is not None:
        longest = max(found.stage_layers(stage) for stage in range(pp))
        assert longest <= -(-(layers + 1) // pp)


def test_the_published_layout_of_deepseek_v3_is_kept_unchanged() -> None:
    text = "Et*3|(tt|)*29,m|L"
    found = split(61, 1, 16, 2, SplitPins(text, None, None, None, None))
    assert found is not None
    assert found.text == text
    assert found.chunks[14][1].mtp_layers == 1
    assert found.chunks[15][1].loss
    assert [found.stage_layers(stage) for stage in (0, 1, 14, 15)] == [5, 4, 2, 2]


@pytest.mark.parametrize(
    ("pins", "pp", "vpp"),
    [
        (SplitPins(None, 18, 19, None, None), 4, 1),
        (SplitPins(None, 19, 19, None, None), 4, 2),
        (SplitPins("Et*80L", None, None, None, None), 4, 1),
        (SplitPins("Et*40|t*40L", 40, None, None, None), 2, 1),
        (SplitPins(None, None, None, True, False), 4, 1),
        (SplitPins(None, 20, None, None, True), 4, 1),
        (SplitPins(None, 20, None, None, None), 1, 1),
        (FREE, 1, 2),
        (FREE, 90, 1),
    ],
)
def test_impossible_pins_have_no_split(pins: SplitPins, pp: int, vpp: int) -> None:
    assert split(80, 0, pp, vpp, pins) is None


@pytest.mark.parametrize(
    ("pins", "builds"),
    [
        # What Megatron-Core 0.19.2 builds of 16 layers; the code of 0.17.1 and 0.18.2 is the same.
        (SplitPins(None, 4, None, None, None), "Megatron stops"),
        (SplitPins(None, None, 4, None, None), "Megatron stops"),
        (SplitPins(None, 4, 12, None, None), "Megatron stops"),
        (SplitPins(None, 4, 6, None, None), "Megatron would build 6 of 16 layers"),
        (SplitPins(None, 16, None, None, None), "all"),
        (SplitPins(None, None, 16, None, None), "all"),
        (SplitPins(None, None, None, True, None), "all"),
        (SplitPins(None, None, None, True, True), "all"),
        (SplitPins("Et*16L", None, None, None, None), "all"),
    ],
)
def test_a_split_without_a_pipeline_is_valid_if_megatron_builds_all_layers(
    pins: SplitPins, builds: str
) -> None:
    found = split(16, 0, 1, 1, pins)
    if builds == "all":
        assert found is not None
        assert found.stage_layers(0) == 16
    else:
        assert found is None
        code, _, finding = _explain_no_pipeline(16, pins)
        assert code == "P03"
        assert finding.label.startswith(builds)


@given(st.integers(1, 200), st.integers(3, 24), st.integers(1, 4))
def test_no_layout_string_is_used_if_two_smaller_ends_suffice(
    layers: int, pp: int, vpp: int
) -> None:
    found = split(layers, 0, pp, vpp)
    chunk = -(-layers // (pp * vpp))
    ends = layers - chunk * vpp * (pp - 2)
    if found is not None and found.form == "string":
        assert ends % vpp or ends < 2 * vpp
    if found is not None and found.form == "first-last":
        middle = {found.stage_layers(stage) for stage in range(1, pp - 1)}
        assert middle == {chunk * vpp}
        # The layers that remain are split evenly, in whole chunks; the first rank gets one more.
        first, last = found.stage_layers(0), found.stage_layers(-1)
        assert first + last == ends
        assert 0 <= first - last <= vpp


SMALL = {
    "parc": 1,
    "name": "small",
    "model": "gpt2-medium",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 1024, "global_batch": 64},
    "emit": ["megatron"],
}
"""Model of 24 layers."""


@pytest.mark.parametrize(
    ("pp", "counts", "form", "text"),
    [
        (4, (6, 6, 6, 6), "even", ""),
        (5, (5, 5, 5, 5, 4), "counted", ""),
        (4, (7, 7, 7, 3), "first-last", ""),
        (2, (13, 11), "first-last", ""),
        (2, (7, 7, 7, 3), "string", "Et*7|(t*7|)*2,t*3,L"),
        (4, (8, 6, 7, 3), "string", "Et*8|t*6|t*7|t*3,L"),
        (4, (8, 8, 8, 0), "string", "Et*8|(t*8|)*2,L"),
    ],
)
def test_given_counts_get_the_simplest_form(
    pp: int, counts: tuple[int, ...], form: str, text: str
) -> None:
    problem, _ = resolved(SMALL)
    assert isinstance(problem, Problem)
    vpp = len(counts) // pp
    own = find_split(problem, pp, vpp)
    assert own is not None
    found = split_with_counts(problem, own, counts)
    assert found is not None
    assert [found.form, found.text] == [form, text]
    chunks = [found.chunks[k % pp][k // pp] for k in range(pp * vpp)]
    assert tuple(chunk.layers for chunk in chunks) == counts
    assert [chunk.loss for chunk in chunks] == [chunk is chunks[-1] for chunk in chunks]
    pinned = replace(problem, pins=replace(problem.pins, count_loss=False))
    assert split_with_counts(pinned, own, counts) is None


def test_no_layer_may_follow_the_mtp_layers() -> None:
    problem, _ = resolved({**SMALL, "model": {"base": "deepseek-v3", "mtp_layers": 1}})
    assert isinstance(problem, Problem)
    pins = replace(problem.pins, pipeline_layout="Et*3|(tt|)*29,m|L")
    own = find_split(replace(problem, pins=pins), 16, 2)
    assert own is not None
    assert own.chunks[14][1].mtp_layers == 1
    counts = (4, *[2] * 28, 1, 0, 0)
    assert split_with_counts(problem, own, counts) is not None
    assert split_with_counts(problem, own, (4, *[2] * 27, 1, 1, 0, 1)) is None


def test_a_stage_without_work_has_no_split() -> None:
    problem, _ = resolved(SMALL)
    assert isinstance(problem, Problem)
    own = find_split(problem, 4, 1)
    assert own is not None
    assert split_with_counts(problem, own, (12, 0, 6, 6)) is None
