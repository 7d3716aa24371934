"""What Megatron's functional tests held between two steps, tensor by tensor.

Their golden values record torch's allocated bytes of the last rank. Where segments expand a tensor
takes a multiple of 512 bytes. Elsewhere torch's allocator splits off no remainder of up to 1 MiB,
and the tensor is recorded with it; which free block a tensor gets depends on all that ran before.
The requests are replayed as far as Megatron's program alone says them; a record is met up to the
remainders that other activations would have left.
Recorded at Megatron-LM d98e8a6, tests/functional_tests/test_cases.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.accuracy.memory_rows import PATH, Words, layout_of, model_of, words_of
from benchmarks.accuracy.static_beside import Run, tensors_beside
from benchmarks.accuracy.static_replay import allocated_bytes
from benchmarks.accuracy.static_tensors import buffers, rounded
from parc.compiler.cost.memory.runtime import BLOCK_BYTES, MIB

RECORDS = Path(__file__).parent / "published" / "static.csv"
UNIT_BYTES = MIB // 16
"""Large tensors of the small test models are multiples of this, so remainders are."""


@dataclass(frozen=True, slots=True)
class Record:
    """One golden value."""

    name: str
    measured_bytes: int
    held_bytes: int
    """Tensors, with the remainders that the replay leaves them where segments do not expand."""
    expands: bool

    @property
    def exact(self) -> bool:
        """Met to the byte."""
        return self.measured_bytes == self.held_bytes

    @property
    def whole_remainders(self) -> bool:
        """Off by remainders of cached blocks that were not split, and by a few scalars."""
        off = self.measured_bytes - self.held_bytes
        scalars = (off + UNIT_BYTES // 2) % UNIT_BYTES - UNIT_BYTES // 2
        return not self.expands and abs(off) <= 10 * MIB and abs(scalars) <= 2 * BLOCK_BYTES

    @property
    def error(self) -> float:
        """Relative, positive where the tensors are more than the record."""
        return self.held_bytes / self.measured_bytes - 1


def read_records(path: Path = RECORDS) -> Iterator[Record]:
    """All rows, in the order of the file; models and layouts are those of the readings."""
    with PATH.open(encoding="utf-8", newline="") as lines:
        readings = {row["id"]: row for row in csv.DictReader(lines)}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield _record(row, readings[row["id"]])


def _record(row: Words, reading: Words) -> Record:
    words = words_of(reading["layout"])
    model = model_of(words_of(reading["model"]), words)
    layout = layout_of(words, model)
    micro_batches = layout.micro_batches(int(words["global_batch"]))
    run = Run(row, reading, model, layout, int(words["sequence"]), micro_batches)
    precision, beside = reading["precision"], tensors_beside(run)
    made = buffers(model, layout, "overlapped_gradients" in reading["runtime"].split())
    expands = run.has("expanding")
    if expands:
        sizes = beside + [size for buffer in made for size in buffer.bytes(precision)]
        held = sum(rounded(size, BLOCK_BYTES) for size in sizes)
    else:
        held = allocated_bytes(made, beside, precision)
    return Record(f"{row['id']} {row['record']}", int(row["bytes"]), held, expands)


def summary(records: list[Record]) -> str:
    """How many records are met, as a sentence."""
    exact = sum(record.exact for record in records)
    near = sum(record.whole_remainders and not record.exact for record in records)
    rest = [abs(r.error) for r in records if not (r.exact or r.whole_remainders)]
    return (
        f"Tensor by tensor, {exact} of {len(records)} records of what the last rank holds between "
        f"two steps are met to the byte, and {near} up to whole remainders that torch's allocator "
        f"did not split off; the other {len(rest)} are off by {median(rest):.2%} (median), "
        f"{max(rest):.2%} (largest)."
    )
