"""Memory section of the accuracy page: published readings against the estimate and its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.accuracy.memory.fits import predict_fits, summarize_fits
from benchmarks.accuracy.memory.rows import Reading, read_out_of_memory, read_readings
from benchmarks.accuracy.memory.static_records import read_records, summary
from parc.compiler.report.formatting import format_percent

WITHIN = 0.07
COVERAGE = 0.8
"""Share of the readings that the interval of an estimate should contain."""


def section(data: Path | None = None) -> str:
    """Return the section as Markdown.

    The readings are the project's own. ``data`` may name a folder with more runs that have trained.
    """
    from benchmarks.accuracy.__main__ import load

    readings = tuple(read_readings())
    free = [reading for reading in readings if not reading.locked]
    groups = sorted({reading.group for reading in free})
    lines = [
        "## Memory",
        "",
        "The table compares the predicted peak of one rank with published readings of the same",
        "counter: bytes that torch allocated or reserved, or bytes in use on the device",
        "(nvidia-smi). A third of the first 59 sources is locked: they had no influence on",
        "formulas since they were drawn. *inside* counts readings inside the 80 % interval of the",
        "estimate.",
        "",
        "In November 2026, 108 readings of 21 documents were entered before any was predicted.",
        "With the formulas of that day, 49 of them were within 7 % (median error 9.1 %, bias",
        "+11.7 %). They are open readings since then: formulas have changed because of them. In a",
        "second test, 42 readings had a mean error of 23.2 % (median 15.3 %), and 45 % were inside",
        "their intervals. Most are of nanotron in 2024, whose program saved gathered inputs then.",
        "In a third test, 29 readings of 11 documents had a mean error of 14.4 % (median 14.4 %,",
        "bias -11.7 %), and 9 of them were inside their intervals. Most are of FlagPerf, with",
        "nvidia-smi. In a fourth test, 104 readings of 25 documents had a mean error of 20.1 %",
        "(median 9.8 %, bias -11.2 %), and 46 of them were inside their intervals. Without",
        "KempnerForge, which keeps whole gradients until the last micro-batch, the mean error of",
        "the other 75 was 10.7 % (median 5.4 %, bias +1.6 %). In a fifth test, 19 readings of 11",
        "documents had a mean error of 8.7 % (median 8.7 %, bias -6.9 %), and 10 of them were",
        "inside their intervals. Of these, 7 of torchtitan had a mean error of 5.7 % (median",
        "2.8 %; four repeat a layout of older readings), and 12 of FlagPerf in 2023, with",
        "nvidia-smi, one of 10.4 %. In a sixth test, three readings of two documents had a mean",
        "error of 5.6 %, and one of them was inside its interval.",
        "",
        "| readings | counter | n | median error | mean | largest | bias | within 7 % | inside |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_locked_rows(readings)),
        *(_row(group, [row for row in free if row.group == group]) for group in groups),
        _row("all that are not locked", free),
        "",
        _static_sentence(readings),
        "",
        summary(list(read_records())),
        "",
        summarize_fits(list(predict_fits(load(data).cases))),
        _out_of_memory_sentence(),
        "",
        _interval_sentence(free),
        "",
    ]
    return "\n".join(lines)


def _locked_rows(readings: Sequence[Reading]) -> list[str]:
    """Return one line per counter, with all readings of locked sources."""
    locked = [reading for reading in readings if reading.locked]
    kinds = sorted({reading.kind for reading in locked})
    return [_row("**locked**", [row for row in locked if row.kind == kind]) for kind in kinds]


def _out_of_memory_sentence() -> str:
    """Return the sentence about published layouts that ran out of memory."""
    found = list(read_out_of_memory())
    count = f"Of {len(found)} published layouts that ran out of memory"
    might = sum(row.might_fit for row in found)
    return (
        f"{count}, {sum(row.surely_fits for row in found)} are predicted to fit with the whole "
        f"interval, and {might} with its low end."
    )


def _row(title: str, readings: Sequence[Reading]) -> str:
    errors = [abs(reading.error) for reading in readings]
    kinds = ", ".join(sorted({reading.kind for reading in readings}))
    close = sum(error <= WITHIN for error in errors)
    bias = mean(reading.error for reading in readings)
    cells = (
        title,
        kinds,
        str(len(errors)),
        format_percent(median(errors)),
        format_percent(mean(errors)),
        format_percent(max(errors)),
        f"{bias * 100:+.1f} %",
        f"{close} of {len(errors)}",
        str(sum(reading.is_inside for reading in readings)),
    )
    return f"| {' | '.join(cells)} |"


def _static_sentence(readings: Sequence[Reading]) -> str:
    """Return the sentence about the memory that stays allocated between two steps."""
    errors = [abs(static_error(reading)) for reading in readings if reading.static_bytes]
    return (
        f"Between two steps, only parameters, gradients, optimizer state and workspaces are "
        f"allocated. The error of this estimate over {len(errors)} readings has a median of "
        f"{format_percent(median(errors))} and a maximum of {format_percent(max(errors))}."
    )


def _interval_sentence(readings: Sequence[Reading]) -> str:
    """Return the sentence about intervals that are fitted without the readings they predict."""
    share, sources = held_out_coverage(readings), {reading.document for reading in readings}
    return (
        f"If the spread is fitted without the readings of a source, the interval contains "
        f"{share * 100:.0f} % of them (mean over {len(sources)} sources, where the functional "
        f"tests of Megatron are one, and the pages of FlagPerf; {COVERAGE * 100:.0f} % is the "
        "goal)."
    )


def static_error(reading: Reading) -> float:
    """Return the relative error of the memory that stays allocated between two steps."""
    stage = reading.stage
    held = stage.static_bytes + stage.casts_bytes + stage.workspace_bytes + reading.copied_bytes
    return held / reading.static_bytes - 1


def fitted_spread(readings: Sequence[Reading]) -> float:
    """Return the spread of dynamic bytes that puts the share ``COVERAGE`` of the readings inside.

    Sources have equal weights, however many readings they have.
    """
    counts = Counter(reading.document for reading in readings)
    needs = sorted((reading.needed_spread, 1 / counts[reading.document]) for reading in readings)
    total, covered = float(len(counts)), 0.0
    for need, weight in needs:
        covered += weight
        if covered >= COVERAGE * total:
            return need
    return needs[-1][0]


def held_out_coverage(readings: Sequence[Reading]) -> float:
    """Return the mean share of a source's readings inside intervals fitted to other sources."""
    shares = []
    for document in sorted({reading.document for reading in readings}):
        own = [reading for reading in readings if reading.document == document]
        spread = fitted_spread([reading for reading in readings if reading.document != document])
        shares.append(mean(reading.needed_spread <= spread for reading in own))
    return mean(shares)


def main() -> None:
    """Print the section, and the readings that are not locked, sorted by error."""
    print(section())
    readings = (reading for reading in read_readings() if not reading.locked)
    for reading in sorted(readings, key=lambda row: abs(row.error)):
        print(f"{reading.error * 100:+7.1f} %  {reading.group:16} {reading.name}")


if __name__ == "__main__":
    main()
