"""PARC counts the parameters of transformers, or reports a key, if a number of a config changes.

The keys and their defaults come from the class in transformers, so that a key that PARC ignores or
whose default PARC takes for fixed, although the class derives it from other keys, is found.
"""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.cost.counts import params
from tests.catalog.family_counts import counted_configs
from tests.catalog.test_models_hf_families import resolved
from tests.conformance.tool_checkers import transformers_verdicts

pytestmark = pytest.mark.conformance
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
NOT_SHAPES = ("_token_id", "vocab_size", "max_position_embeddings", *LAYERS)
"""Endings of keys that change no shape, or that change it in the same way in every family."""
Config = dict[str, Any]


def small_configs() -> list[Config]:
    """Return one config per family, with few layers where a counted config has few."""
    found: dict[str, Config] = {}
    for config, _ in counted_configs():
        known = found.setdefault(config["model_type"], config)
        if not set(LAYERS) & known.keys() and set(LAYERS) & config.keys():
            found[config["model_type"]] = config
    return list(found.values())


def test_a_changed_number_changes_the_count_as_in_transformers() -> None:
    bases = small_configs()
    changed: list[Config] = []
    for config, verdict in zip(
        bases, transformers_verdicts([{"config": config} for config in bases]), strict=True
    ):
        for key, value in verdict.get("numbers", {}).items():
            if value > 0 and not key.endswith(NOT_SHAPES):
                changed += [{**config, key: 2 * value}, {**config, key: max(value // 2, 1)}]
    verdicts = transformers_verdicts([{"config": config} for config in changed])
    # transformers rejects some numbers, such as more key-value heads than attention heads.
    counted = [
        (config, verdict["parameters"])
        for config, verdict in zip(changed, verdicts, strict=True)
        if "parameters" in verdict
    ]
    assert len(counted) > 1500
    wrong = [(config, count, ours) for config, count in counted if (ours := silent(config, count))]
    assert not wrong


def silent(config: Config, count: int) -> int | None:
    """Return the parameters that PARC counts if they differ from ``count`` without a finding."""
    model, sink = resolved(config)
    if model is None or any(one.code == "PARC-K05" for one in sink.diagnostics):
        return None
    ours = params.total_params(model)
    return None if ours == count else ours
