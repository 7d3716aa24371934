"""Search for the largest request rate whose simulated latencies meet the limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from parc.compiler.evaluate.find_largest_rate import find_largest_rate

SAMPLES = 3


class Simulation:
    """Simulation whose ratio of latency to limit is a function of the rate; counts its samples."""

    def __init__(self, ratio: Callable[[float], float]) -> None:
        self.ratio, self.samples = ratio, 0

    def __call__(self, rate: float, number: int) -> tuple[Any, float]:
        ratio = self.ratio(rate)
        self.samples += 1 if ratio > 1 else number
        return (None if ratio > 1 else SimpleNamespace(solved_request_rate=rate)), ratio


def decode_steps(rate: float) -> float:
    """Return the ratio of steps that grow slowly with the load; 1 at 90 requests/s."""
    return 0.4 + 0.6 * rate / 90


def queue(rate: float) -> float:
    """Return the ratio of a wait in a queue that saturates at 97 requests/s; 1 at 90."""
    return 0.07 / (0.97 - min(rate / 100, 0.96999))


def jump(rate: float) -> float:
    """Return the ratio of a percentile that jumps from far below its limit to far above it."""
    return 0.2 if rate <= 90 else 40.0


def flat(rate: float) -> float:
    """Return a ratio that hardly depends on the rate; 1 at 90 requests/s."""
    return math.pow(rate / 90, 0.1)


@pytest.mark.parametrize("tries_least", [False, True])
@pytest.mark.parametrize(
    ("ratio", "least", "most"),
    # Where a latency hardly depends on the rate, 1 % of the limit is 10 % of the rate.
    [(decode_steps, 0.95, 12), (queue, 0.95, 20), (jump, 0.92, 20), (flat, 0.88, 20)],
)
def test_the_rate_is_close_to_the_largest_one(
    ratio: Callable[[float], float], least: float, most: int, tries_least: bool
) -> None:
    for largest in (95.0, 130.0, 300.0):
        simulation = Simulation(ratio)
        bounds = (60.0 if tries_least else 6.0, largest)
        found = find_largest_rate(simulation, bounds, SAMPLES, tries_least=tries_least)
        assert found is not None
        assert found.solved_request_rate is not None
        assert 90 * least <= found.solved_request_rate <= 90 * (1 + 1e-9), largest
        assert simulation.samples <= most, largest


@pytest.mark.parametrize("tries_least", [False, True])
def test_the_largest_rate_is_the_result_if_it_meets_the_limits(tries_least: bool) -> None:
    found = find_largest_rate(
        Simulation(lambda rate: rate / 100), (50.0, 80.0), SAMPLES, tries_least=tries_least
    )
    assert found is not None
    assert found.solved_request_rate == 80


@pytest.mark.parametrize("tries_least", [False, True])
def test_no_rate_is_found_if_the_least_one_misses_a_limit(tries_least: bool) -> None:
    simulation = Simulation(lambda rate: 1.5 + rate / 1000)
    bounds = (6.0, 100.0)
    assert find_largest_rate(simulation, bounds, SAMPLES, tries_least=tries_least) is None
    assert simulation.samples == 1 if tries_least else simulation.samples <= 9


def test_a_simulation_without_limits_is_run_once() -> None:
    simulation = Simulation(lambda _: 0.0)
    found = find_largest_rate(simulation, (6.0, 100.0), SAMPLES)
    assert found is not None
    assert (found.solved_request_rate, simulation.samples) == (100, SAMPLES)
