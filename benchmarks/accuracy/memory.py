"""Memory section of the accuracy page: published readings against the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.accuracy.memory_fits import predict_fits, summarize_fits
from benchmarks.accuracy.memory_rows import Reading, read_out_of_memory, read_readings
from benchmarks.accuracy.static_records import read_records, summary

WITHIN = 0.07


def section(data: Path | None = None) -> str:
    """Return the section as Markdown.

    The readings are the project's own. ``data`` may name a folder with more runs that have trained.
    """
    from benchmarks.accuracy.__main__ import load

    readings = tuple(read_readings())
    groups = sorted({reading.group for reading in readings})
    lines = [
        "## Memory",
        "",
        "The table compares the predicted peak of one rank with published readings of the same",
        "counter: bytes that torch allocated or reserved, or bytes in use on the device",
        "(nvidia-smi).",
        "",
        "| readings | counter | n | median error | mean | largest | bias | within 7 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_row(group, [row for row in readings if row.group == group]) for group in groups),
        _row("all", readings),
        "",
        _static_sentence(readings),
        "",
        summary(list(read_records())),
        "",
        summarize_fits(list(predict_fits(load(data).cases))),
        _out_of_memory_sentence(),
        "",
    ]
    return "\n".join(lines)


def _out_of_memory_sentence() -> str:
    """Return the sentence about published layouts that ran out of memory."""
    fits = [fits for _, fits in read_out_of_memory()]
    count = f"Of {len(fits)} published layouts that ran out of memory"
    return f"{count}, {sum(fits)} are predicted to fit."


def _row(title: str, readings: Sequence[Reading]) -> str:
    errors = [abs(reading.error) for reading in readings]
    kinds = ", ".join(sorted({reading.kind for reading in readings}))
    close = sum(error <= WITHIN for error in errors)
    bias = mean(reading.error for reading in readings)
    cells = (
        title,
        kinds,
        str(len(errors)),
        f"{median(errors):.1%}",
        f"{mean(errors):.1%}",
        f"{max(errors):.1%}",
        f"{bias:+.1%}",
        f"{close} of {len(errors)}",
    )
    return f"| {' | '.join(cells)} |"


def _static_sentence(readings: Sequence[Reading]) -> str:
    """Return the sentence about the memory that stays allocated between two steps."""
    errors = [abs(static_error(reading)) for reading in readings if reading.static_bytes]
    return (
        f"Between two steps, only parameters, gradients, optimizer state and workspaces are "
        f"allocated. The error of this estimate over {len(errors)} readings has a median of "
        f"{median(errors):.1%} and a maximum of {max(errors):.1%}."
    )


def static_error(reading: Reading) -> float:
    """Return the relative error of the memory that stays allocated between two steps."""
    stage = reading.stage
    held = stage.static_bytes + stage.casts_bytes + stage.workspace_bytes
    return held / reading.static_bytes - 1


def main() -> None:
    """Print the section, and the readings sorted by error."""
    print(section())
    for reading in sorted(read_readings(), key=lambda row: abs(row.error)):
        print(f"{reading.error:+7.1%}  {reading.group:16} {reading.name}")


if __name__ == "__main__":
    main()
