"""Speculative decoding: accepted tokens, time and memory of the draft."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.draft import draft_cache_bytes_per_token, draft_weights_bytes
from parc.compiler.cost.serving.shard import weights_bytes
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds
from parc.compiler.ir import ServingProblem
from parc.compiler.ir.serving import ServingLayout, StepTerms
from parc.compiler.ir.serving_features import Speculative
from tests.search import serving_specs

BATCH = StepBatch(8, 1000)
TP_8 = ServingLayout(8)


def problem(**speculative: object) -> ServingProblem:
    job = {"speculative": speculative} if speculative else {}
    return serving_specs.problem_of(serving_specs.spec("llama-3.1-70b", "dgx-h100", job=job))


def step(found: ServingProblem, layout: ServingLayout = TP_8) -> StepTerms:
    setup = found.service.setup
    deployment = build_deployment(found.model, found.cluster, setup, layout)
    return engine_step_seconds(deployment, BATCH)


@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.85), (3, 0.65), (7, 0.4)])
def test_the_accepted_tokens_are_the_mean_of_drawn_acceptances(
    tokens: int, acceptance: float
) -> None:
    random, drawn = Random(1), 0
    for _ in range(20_000):
        accepted = 0
        while accepted < tokens and random.random() < acceptance:
            accepted += 1
        drawn += accepted + 1
    found = Speculative("ngram", tokens, acceptance, None).accepted_tokens
    assert found == pytest.approx(drawn / 20_000, rel=0.02)


def test_a_step_with_a_draft_model_takes_one_pass_of_it_per_token() -> None:
    small = {"method": "draft-model", "model": "llama-3.2-1b", "checkpoint": "/draft"}
    plain, one, three = (
        step(found) for found in (problem(), problem(**small, tokens=1), problem(**small, tokens=3))
    )
    assert plain.draft == 0.0
    alone = serving_specs.problem_of(serving_specs.spec("llama-3.2-1b", "dgx-h100"))
    apart = step(alone)
    assert one.draft == pytest.approx(apart.total_seconds - apart.host)
    assert three.draft == pytest.approx(3 * one.draft)
    assert plain.total_seconds < one.total_seconds < three.total_seconds


def test_ngram_drafts_need_no_time_and_no_memory() -> None:
    found = problem(method="ngram")
    assert step(found).draft == 0.0
    assert draft_weights_bytes(found.service.setup, ServingLayout(8)) == 0.0
    assert draft_cache_bytes_per_token(found.service.setup, 8) == 0.0


def test_the_memory_of_the_draft_is_that_of_the_small_model() -> None:
    found = problem(method="draft-model", model="llama-3.2-1b", checkpoint="/draft")
    layout, setup = ServingLayout(4), found.service.setup
    alone = serving_specs.problem_of(serving_specs.spec("llama-3.2-1b", "dgx-h100"))
    own = weights_bytes(alone.model, layout, alone.service.setup)
    assert draft_weights_bytes(setup, layout) == pytest.approx(own)
    plain = replace(setup, speculative=None)
    whole, without = (
        build_deployment(found.model, found.cluster, one, layout).memory.weights_bytes
        for one in (setup, plain)
    )
    assert whole - without == pytest.approx(own)


def test_the_draft_layer_of_deepseek_v3_has_the_published_size() -> None:
    # 14.0 B parameters, 2 x 0.9 B of them embedding and head that it shares (README_WEIGHTS.md:
    # "11.5 B unique parameters"), in fp8.
    tree = serving_specs.spec("deepseek-v3", "dgx-h100", 2, job={"precision": "fp8"})
    tree["job"]["speculative"] = {"method": "mtp", "tokens": 1}
    setup = serving_specs.problem_of(tree).service.setup
    assert draft_weights_bytes(setup, ServingLayout(1)) == pytest.approx(11.6e9, rel=0.02)


def test_running_requests_are_reduced_until_their_draft_tokens_fit_in_a_step() -> None:
    setup = problem(method="ngram", tokens=15).service.setup
    assert (setup.max_running, setup.max_batched_tokens) == (512, 8192)
