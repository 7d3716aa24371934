"""Memory records of Megatron's functional tests between two steps, explained tensor by tensor.

The golden values of the tests record torch's allocated bytes on the last rank. With expandable
segments every tensor is rounded up to 512 bytes. Without them torch's allocator does not split off
remainders of up to 1 MiB and counts them as allocated, and the block that a tensor gets depends on
all earlier requests. The benchmark replays the requests that follow from Megatron's program; other
activations can leave other remainders, so a record may differ by whole remainders. Recorded at
Megatron-LM d98e8a6, tests/functional_tests/test_cases.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.accuracy.memory.caching_allocator import MIB
from benchmarks.accuracy.memory.rows import PATH, Words, layout_of, model_of, words_of
from benchmarks.accuracy.memory.static_auxiliary import RecordedRun, auxiliary_tensors
from benchmarks.accuracy.memory.static_replay import allocated_bytes
from benchmarks.accuracy.memory.static_tensors import buffers, round_up
from parc.backends.megatron.memory import BLOCK_BYTES

RECORDS = Path(__file__).parent.parent / "published" / "static.csv"
UNIT_BYTES = MIB // 16
"""Large tensors of the small test models are multiples of this size, hence remainders are too."""


@dataclass(frozen=True, slots=True)
class Record:
    """A golden value with its prediction."""

    name: str
    measured_bytes: int
    predicted_bytes: int
    """Predicted bytes of all tensors, with the replayed remainders if segments do not expand."""
    expands: bool

    @property
    def is_exact(self) -> bool:
        """True if prediction and record agree to the byte."""
        return self.measured_bytes == self.predicted_bytes

    @property
    def differs_by_remainders(self) -> bool:
        """True if they differ only by remainders of blocks that were not split, and by a few
        scalars."""
        off = self.measured_bytes - self.predicted_bytes
        scalars = (off + UNIT_BYTES // 2) % UNIT_BYTES - UNIT_BYTES // 2
        return not self.expands and abs(off) <= 10 * MIB and abs(scalars) <= 2 * BLOCK_BYTES

    @property
    def error(self) -> float:
        """Relative error; positive if the prediction is above the record."""
        return self.predicted_bytes / self.measured_bytes - 1


def read_records(path: Path = RECORDS) -> Iterator[Record]:
    """Yield all records in the order of the file, with the models and layouts of the readings."""
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
    run = RecordedRun(row, reading, model, layout, int(words["sequence"]), micro_batches)
    precision, auxiliary = reading["precision"], auxiliary_tensors(run)
    made = buffers(model, layout, "overlapped_gradients" in reading["runtime"].split())
    expands = run.has("expanding")
    if expands:
        sizes = auxiliary + [size for buffer in made for size in buffer.bytes(precision)]
        held = sum(round_up(size, BLOCK_BYTES) for size in sizes)
    else:
        held = allocated_bytes(made, auxiliary, precision)
    return Record(f"{row['id']} {row['record']}", int(row["bytes"]), held, expands)


def summary(records: list[Record]) -> str:
    """Return a sentence with the number of records that the prediction matches."""
    is_exact = sum(record.is_exact for record in records)
    near = sum(record.differs_by_remainders and not record.is_exact for record in records)
    rest = [abs(r.error) for r in records if not (r.is_exact or r.differs_by_remainders)]
    return (
        f"A separate benchmark predicts every tensor that the last rank keeps between two steps. "
        f"It matches {is_exact} of {len(records)} records to the byte, and {near} more except for "
        f"whole remainders that torch's allocator did not split off. The other {len(rest)} records "
        f"differ by {median(rest) * 100:.2f} % (median), {max(rest) * 100:.2f} % (largest)."
    )
