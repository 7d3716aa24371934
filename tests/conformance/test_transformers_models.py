"""Parameters that PARC counts for a config are those of the model that transformers builds."""

from __future__ import annotations

import pytest

from tests.catalog.configs import LIKE_THE_CATALOG
from tests.catalog.family_counts import counted_configs
from tests.catalog.test_models_hf_families import OTHERWISE
from tests.catalog.test_models_totals import EXACT
from tests.conformance.tool_judging import transformers_verdicts

pytestmark = pytest.mark.conformance


def test_transformers_builds_models_of_the_counted_parameters() -> None:
    counted = counted_configs()
    verdicts = transformers_verdicts([{"config": config} for config, _ in counted])
    wrong = [
        (config, count, verdict.get("parameters", verdict.get("error")))
        for (config, count), verdict in zip(counted, verdicts, strict=True)
        if verdict.get("parameters") != count
    ]
    assert not wrong


def test_transformers_builds_the_models_of_the_catalog() -> None:
    named = {name: LIKE_THE_CATALOG[name] for name in sorted(LIKE_THE_CATALOG)}
    published = {
        name: config
        for name, config in named.items()
        if name in EXACT and config["model_type"] not in OTHERWISE
    }
    verdicts = transformers_verdicts([{"config": config} for config in published.values()])
    wrong = [
        (name, EXACT[name], verdict.get("parameters", verdict.get("error")))
        for name, verdict in zip(published, verdicts, strict=True)
        if published[name]["model_type"] not in OTHERWISE
        and verdict.get("parameters") != EXACT[name]
    ]
    assert not wrong


def test_the_judge_sees_another_count_and_an_unknown_family() -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 100}
    cases = [{"config": llama | more} for more in ({}, {"mlp_bias": True}, {"model_type": "?"})]
    plain, biased, unknown = transformers_verdicts(cases)
    assert biased["parameters"] - plain["parameters"] == 2 * 11008 + 4096
    assert (unknown["accepted"], unknown["stage"]) == (False, "config")
