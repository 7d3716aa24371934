"""The memory model against published readings, counter by counter."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.memory import section, static_error
from benchmarks.accuracy.memory_fits import verdicts
from benchmarks.accuracy.memory_rows import Reading, read_readings

READINGS = tuple(read_readings())
LIMITS = {
    "BigScience": (0.03, 0.85),
    "Megatron CI": (0.015, 0.9),
    "Megatron-Bridge": (0.03, 1.0),
    "nanotron": (0.065, 0.5),
    "torchtitan": (0.06, 0.7),
}
"""group -> (largest median error, smallest share within 7 %)."""


def of(group: str) -> list[Reading]:
    """Readings of one group."""
    return [reading for reading in READINGS if reading.group == group]


@pytest.mark.parametrize("group", LIMITS)
def test_a_group_of_readings_is_met(group: str) -> None:
    errors = [abs(reading.error) for reading in of(group)]
    largest_median, share = LIMITS[group]
    assert median(errors) <= largest_median
    assert sum(error <= 0.07 for error in errors) >= share * len(errors)


def test_the_limits_name_every_group() -> None:
    assert {reading.group for reading in READINGS} == LIMITS.keys()


def test_nine_readings_of_ten_are_within_seven_percent_and_half_within_three() -> None:
    errors = [abs(reading.error) for reading in READINGS]
    assert median(errors) <= 0.03
    assert sum(error <= 0.07 for error in errors) >= 0.85 * len(errors)


def test_what_stays_between_steps_is_parameters_and_workspaces() -> None:
    errors = [abs(static_error(reading)) for reading in READINGS if reading.static_bytes]
    assert len(errors) == 33
    assert median(errors) <= 0.01


@pytest.mark.parametrize("runtime", ["dist_optimizer_fim_dataset", "15b_8t_release"])
def test_beside_parameters_a_run_without_pipeline_holds_its_workspaces_alone(runtime: str) -> None:
    (reading,) = [reading for reading in READINGS if runtime in reading.name]
    beside = reading.static_bytes - reading.stage.static_bytes
    assert beside == pytest.approx(reading.stage.workspace_bytes, abs=24 * 2**20)


def test_every_reading_lies_in_the_band_but_a_few() -> None:
    inside = 0
    for reading in READINGS:
        half = reading.stage.high_bytes - reading.stage.total_bytes
        inside += abs(reading.predicted_bytes - reading.measured_bytes) <= half
    assert inside >= 0.7 * len(READINGS)


def test_the_section_has_a_line_for_every_group() -> None:
    text = section()
    assert text.startswith("## Memory\n")
    assert all(f"| {group} |" in text for group in LIMITS)


def test_every_run_that_has_trained_fits_and_none_that_ran_out_of_memory() -> None:
    found = list(verdicts(load(None).cases))
    assert len(found) > 200
    assert [verdict.case.run.id for verdict in found if not verdict.right] == []
