"""The search for the number of replicas that meets the limits in all samples."""

from __future__ import annotations

from random import Random

import pytest

from parc.compiler.search.simulate_finalists import SAMPLES, _result_for_smallest_count


@pytest.mark.parametrize("seed", range(40))
def test_the_smallest_count_within_the_limits_is_found(seed: int) -> None:
    dice = Random(seed)
    counts = sorted(dice.sample(range(1, 4000), dice.choice((1, 2, 30, 1500))))
    # Latency in units of its limit: a constant part, a part that falls with the load, and noise.
    fixed, load = dice.uniform(0.1, 1.1), dice.uniform(0.1, 2) * dice.choice(counts)
    power = dice.choice((0.5, 1, 4))
    offsets = [dice.uniform(0, 0.05) for _ in SAMPLES]
    seeds = list(SAMPLES)
    simulations = 0

    def ratio(count: int, sample: int) -> float:
        return fixed + (load / count) ** power + offsets[sample]

    def simulate_with(count: int, number: int) -> tuple[int | None, float]:
        nonlocal simulations
        for sample in tuple(seeds[:number]):
            simulations += 1
            if ratio(count, sample) > 1:
                seeds.remove(sample)
                seeds.insert(0, sample)
                return None, ratio(count, sample)
        return count, max(ratio(count, sample) for sample in seeds[:number])

    within = (n for n in counts if all(ratio(n, sample) <= 1 for sample in SAMPLES))
    found = _result_for_smallest_count(counts, simulate_with)  # type: ignore[arg-type]
    assert found == next(within, None)
    # Doubling steps and a bisection need up to 2 log2(n) counts.
    assert simulations <= len(SAMPLES) * 2 * len(counts).bit_length() + len(SAMPLES)
