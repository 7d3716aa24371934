"""Tests of Megatron's pipeline layout string: parsing, rejection with a position, formatting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.megatron.stages.layout_string import (
    LayoutStringError,
    Stage,
    format_layout_string,
    parse_layout_string,
)

READ = {
    "Et|tL": [(1, 1, 0, 0), (0, 1, 0, 1)],
    "Et*3|(tt|)*2,m|L": [(1, 3, 0, 0), (0, 2, 0, 0), (0, 2, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)],
    "E|(t|)*2t*3mL": [(1, 0, 0, 0), (0, 1, 0, 0), (0, 1, 0, 0), (0, 3, 1, 1)],
    "E(t*2|t)*2L": [(1, 2, 0, 0), (0, 3, 0, 0), (0, 1, 0, 1)],
}
REFUSED = {
    "": 0,
    "t|tL": 0,
    "Et|t": 3,
    "EtE|tL": 2,
    "EtL|tL": 5,
    "Et|xL": 3,
    "Et|(t(t))*2L": 3,
    "Et|(t)L": 3,
    "Et**2L": 2,
    "Et|*L": 3,
    "Em|tL": 3,
    "Et*0L": 1,
    "Et*99999L": 1,
    "(E": 0,
}
STAGES = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@pytest.mark.parametrize("text", READ)
def test_a_layout_is_parsed_as_megatron_expands_it(text: str) -> None:
    rows = [
        (int(s.embedding), s.layers, s.mtp_layers, int(s.loss)) for s in parse_layout_string(text)
    ]
    assert rows == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_an_invalid_layout_is_rejected_at_its_first_wrong_character(text: str) -> None:
    with pytest.raises(LayoutStringError) as refused:
        parse_layout_string(text)
    assert refused.value.at == REFUSED[text]


@given(STAGES, st.integers(0, 3))
def test_parsing_a_formatted_layout_returns_its_stages(layers: list[int], mtp: int) -> None:
    last = len(layers) - 1
    stages = tuple(
        Stage(k == 0, count, mtp if k == last else 0, k == last) for k, count in enumerate(layers)
    )
    assert parse_layout_string(format_layout_string(stages)) == stages


@given(st.text("EtmL|()*,0123456789 x", max_size=30))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        stages = parse_layout_string(text)
    except LayoutStringError as refused:
        stages, at = (), refused.at
    else:
        at = 0
    assert 0 <= at <= len(text)
    assert not stages or (stages[0].embedding and stages[-1].loss)
