"""Parameters that PARC counts for a config are those of the model that transformers builds."""

from __future__ import annotations

import pytest

from tests.catalog.family_counts import counted_configs
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


def test_the_judge_sees_another_count_and_an_unknown_family() -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 100}
    cases = [{"config": llama | more} for more in ({}, {"mlp_bias": True}, {"model_type": "?"})]
    plain, biased, unknown = transformers_verdicts(cases)
    assert biased["parameters"] - plain["parameters"] == 2 * 11008 + 4096
    assert (unknown["accepted"], unknown["stage"]) == (False, "config")
