"""PARC and transformers read the same sizes, positions and windows from a config."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.shared.torch.tensor_plans import families_with_plan
from parc.compiler.cost.counts import params
from parc.compiler.ir import Attention, Model
from tests.catalog.configs import LIKE_THE_CATALOG
from tests.catalog.family_counts import counted_configs
from tests.catalog.test_models_hf_families import OTHERWISE, resolved
from tests.catalog.test_models_totals import EXACT
from tests.conformance.tool_checkers import transformers_verdicts

pytestmark = pytest.mark.conformance
OWN_BASE = ("dbrx", "hunyuan_v1_dense", "hunyuan_v1_moe")
"""Families with another rotary base: DBRX sets it in attn_config; Hunyuan's alpha becomes a larger
base in PARC.
"""
NEWER = ("flint", "granite_docling_text", "internlm3", "iquestcoder", "lfm3")
"""Families of transformers 5.23 without a class in the version that the tools' environment has."""
CheckedConfigs = list[tuple[dict[str, Any], int, dict[str, Any]]]


@pytest.fixture(scope="module")
def checked_configs() -> CheckedConfigs:
    """Return (config, expected count, verdict) for every counted config and those of the
    catalog.
    """
    rows = [row for row in counted_configs() if row[0]["model_type"] not in NEWER]
    rows += [
        (config, EXACT[name])
        for name, config in sorted(LIKE_THE_CATALOG.items())
        if name in EXACT and config["model_type"] not in OTHERWISE
    ]
    verdicts = transformers_verdicts([{"config": config} for config, _ in rows])
    return [(*row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]


def test_transformers_builds_models_with_the_counted_parameters(
    checked_configs: CheckedConfigs,
) -> None:
    wrong = [
        (config, count, verdict.get("parameters", verdict.get("error")))
        for config, count, verdict in checked_configs
        if verdict.get("parameters") != count
    ]
    assert not wrong


def test_plans_of_transformers_split_models_into_the_counted_parameters() -> None:
    configs = {
        config["model_type"]: config
        for config in (*LIKE_THE_CATALOG.values(), *(config for config, _ in counted_configs()))
        if config["model_type"] in families_with_plan()
    }
    assert configs.keys() == families_with_plan()
    cases = [{"config": config, "tp": 2} for config in configs.values()]
    wrong = [
        (config, verdict.get("parameters_on_rank", verdict.get("error")))
        for config, verdict in zip(configs.values(), transformers_verdicts(cases), strict=True)
        if verdict.get("parameters_on_rank") != parameters_on_rank(resolved(config)[0], 2)
    ]
    assert not wrong


def parameters_on_rank(model: Model, tp: int) -> int:
    """Return the parameters of one of ``tp`` ranks; an untied embedding is not split."""
    degrees, table = (tp, tp, 1), params.embedding_params(model)
    layers = (params.layer_kind_params_on_rank(model, kind, degrees) for kind in model.layer_kinds)
    whole = params.final_norm_params(model) + (0 if model.tied_embeddings else table)
    return sum(map(sum, layers)) + whole + table // tp


def test_transformers_reads_the_same_positions_windows_and_epsilons(
    checked_configs: CheckedConfigs,
) -> None:
    wrong = []
    for config, _, verdict in checked_configs:
        mine, theirs = facts(resolved(config)[0]), verdict["facts"]
        stated = {key: value for key, value in theirs.items() if value is not None}
        wrong += [
            (config, key, value, mine[key])
            for key, value in stated.items()
            if mine[key] is not None and mine[key] != pytest.approx(value)
        ]
    assert not wrong


def facts(model: Model) -> dict[str, Any]:
    """Return the facts of transformers_checker.py from PARC's model; None if the model has no such
    field.
    """
    position = model.position
    shapes = [model.with_shapes_of(kind).attention for kind in model.layer_kinds]
    windows = [
        None if one.chunked or not one.slides or _has_full_attention(one, layer) else one.window
        for layer, one in enumerate(shapes)
    ]
    rotary = position.kind in ("rope", "yarn")
    return {
        "base": position.base if rotary and model.family not in OWN_BASE else None,
        "percent": position.percent if rotary else None,
        "max_positions": position.max_positions,
        "norm_epsilon": model.norm_epsilon,
        "window": next((one for one in windows if one), None),
        "full_layers": [layer for layer, one in enumerate(windows) if one is None],
        "top_k": model.experts.top_k if model.experts else None,
    }


def _has_full_attention(attention: Attention, layer: int) -> bool:
    every = attention.full_attention_every
    return every > 0 and (layer + 1) % every == 0


def test_the_checker_reports_another_count_and_an_unknown_family() -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 100}
    cases = [{"config": llama | more} for more in ({}, {"mlp_bias": True}, {"model_type": "?"})]
    plain, biased, unknown = transformers_verdicts(cases)
    assert biased["parameters"] - plain["parameters"] == 2 * 11008 + 4096
    assert plain["facts"]["base"] == 10000.0
    assert (unknown["accepted"], unknown["stage"]) == (False, "config")
