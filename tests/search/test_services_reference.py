"""The fast search of services chooses what a plain search of all layouts chooses.

PARC_SERVICES=1000 sets the number of random services.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

from parc.backends.registry import engine
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingEstimate, ServingSearch
from parc.compiler.search import search_serving_layouts as search_module
from parc.compiler.search.search_serving_layouts import search_serving_layouts
from tests.search.services_reference import use_reference
from tests.search.serving_specs import problem_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")

COUNT = int(os.environ.get("PARC_SERVICES", "40"))
MODELS = ("llama-3.1-8b", "mixtral-8x7b", "gpt-oss-20b", "gemma-2-9b", "deepseek-v2")
NODES = ("dgx-h100", "l40s-8", "dgx-a100")


def random_service(dice: random.Random) -> dict[str, Any]:
    """Return the spec of a random small service; some specs have no valid layout."""
    sizes = {"base": dice.choice(NODES), "gpus_per_node": dice.choice((1, 2, 3, 4))}
    traffic = {
        "input_tokens": dice.choice((128, 1000, 4000)),
        "output_tokens": dice.choice((16, 500)),
        "concurrency": dice.choice((1, 7, 64, 512)),
    }
    extra: dict[str, Any] = {}
    if dice.random() < 0.3:
        extra["layout"] = {dice.choice(("tp", "pp", "dp")): dice.choice((1, 2, 3))}
    if dice.random() < 0.5:
        extra["goals"] = {"maximize": dice.choice(("throughput", "latency", "fewest-gpus"))}
    job = {"traffic": traffic}
    return spec(dice.choice(MODELS), sizes, dice.choice((1, 2)), job=job, **extra)


def search(tree: Mapping[str, Any]) -> tuple[tuple[ServingEstimate, ServingSearch] | None, Sink]:
    sink = Sink()
    problem = problem_of(dict(tree))
    return search_serving_layouts(problem, engine(problem.framework), sink), sink


def test_the_search_agrees_with_a_plain_search_of_all_layouts() -> None:
    chosen = 0
    for seed in range(COUNT):
        tree = random_service(random.Random(seed))
        fast, sink = search(tree)
        with pytest.MonkeyPatch.context() as patch:
            use_reference(patch)
            plain, plain_sink = search(tree)
        assert sink.diagnostics == plain_sink.diagnostics, seed
        if fast is None or plain is None:
            assert fast is plain, seed
            continue
        chosen += 1
        (best, found), (plain_best, everything) = fast, plain
        assert best.layout == plain_best.layout, seed
        assert best.requests_per_second == pytest.approx(plain_best.requests_per_second, rel=1e-12)
        assert best.ttft_seconds == pytest.approx(plain_best.ttft_seconds, rel=1e-12)
        assert [one.layout for one in found.ranked] == [one.layout for one in everything.ranked]
        assert found.enumerated <= everything.enumerated
        # A layout that the fast search skips is invalid, so only the counts of rules can differ.
        skipped = everything.enumerated - found.enumerated
        assert sum(dict(everything.dropped).values()) - sum(dict(found.dropped).values()) == skipped
    assert chosen >= COUNT * 2 // 3


def random_service_without_load(dice: random.Random) -> dict[str, Any]:
    """Return the spec of a random service whose load is the largest one within two limits."""
    traffic = {"input_tokens": dice.choice((300, 2000)), "output_tokens": dice.choice((50, 400))}
    goals = {
        "ttft": f"{dice.choice((500, 1000, 4000))}ms",
        "tpot": f"{dice.choice((20, 40, 80))}ms",
        "maximize": dice.choice(("throughput", "lowest-cost")),
    }
    tree = spec(dice.choice(MODELS[1:]), dice.choice(NODES), dice.choice((2, 3)), goals=goals)
    job = {**tree["job"], "traffic": traffic}
    return {**tree, "job": job}


def test_layouts_that_are_left_out_by_their_load_would_not_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Simulations only reduce the load of the best layouts, and take most of the time.
    monkeypatch.setattr(search_module, "simulate_finalists", lambda _, order, *a, **b: order)
    monkeypatch.setattr(search_module, "choose_step_tokens", lambda *args: (None, args[3]))
    left_out = 0
    for seed in range(1, 1 + COUNT // 10):
        tree = random_service_without_load(random.Random(seed))
        fast, sink = search(tree)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search_module, "BOUND_SLACK", math.inf)
            plain, plain_sink = search(tree)
        assert sink.diagnostics == plain_sink.diagnostics, seed
        if fast is None or plain is None:
            assert fast is plain, seed
            continue
        assert fast[0] == plain[0], seed
        assert fast[1].ranked == plain[1].ranked, seed
        assert fast[1].rejected == plain[1].rejected, seed
        left_out += sum(dict(plain[1].dropped).values()) - sum(dict(fast[1].dropped).values())
    assert left_out
