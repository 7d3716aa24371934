"""A measured training run, and the format of the published runs.

``published/runs.csv`` contains the runs, ``published/models.jsonl`` the models that the catalog
lacks.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from parc.compiler.spec.model_spec import ModelSpec

PUBLISHED = Path(__file__).parent / "published"


@dataclass(frozen=True, slots=True)
class Run:
    """Facts that a source states about one run; None if it does not state them."""

    id: str
    model: str
    """Catalog name, or a name of ``published/models.jsonl``."""
    layers: int | None
    """Number of layers if the run trained a shortened model; None: all."""
    mtp: int
    """Multi-token-prediction layers that were trained."""
    node: str
    """Catalog name of the node type."""
    gpus: int
    gpus_per_node: int | None
    """GPUs per host if it has fewer than the node type."""
    network_gbps: float | None
    """Network rate per host if it differs from the node type."""
    nics: int | None
    """NICs per host if their number differs from the node type."""
    precision: str
    """bf16, fp16, fp8, mxfp8 or nvfp4."""
    recipe: str
    """Precision in the words of the source: fp8-cs (current scaling), fp8-ds (delayed scaling)."""
    sequence: int
    global_batch: int | None
    """Global batch size in sequences."""
    tp: int | None
    cp: int
    pp: int
    vpp: int | None
    ep: int | None
    etp: int | None
    shard: int | None
    """Ranks that share one copy of the state (FSDP); None: all data-parallel ranks."""
    zero: int | None
    sequence_parallel: bool | None
    micro_batch: int | None
    recompute: str | None
    """none, selective, full, or ``selective:a+b`` with module names."""
    overlap: str
    """Enabled features joined by ``+``, such as ep-overlap, cuda-graph, tp-overlap."""
    step_seconds: float | None
    tokens_per_s_per_gpu: float | None
    """Throughput, if the step time is unknown."""
    oom: bool
    """True if the run ran out of memory."""
    tier: str
    """A: configuration and measurement are stated. B: one value is derived. C: the time is not
    scored, only whether the run fits."""
    sweep: str
    """Name of a sweep; its runs differ only in layout."""
    cluster: str
    framework: str
    source: str
    spec: ModelSpec | None = None
    """Model dimensions if ``model`` is in neither table."""


FIELDS = tuple(field.name for field in fields(Run) if field.name != "spec")


def read_runs(path: Path) -> tuple[Run, ...]:
    """Read the runs of a CSV file, in its order."""
    types = get_type_hints(Run)
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_parse_row(row, types) for row in csv.DictReader(file))


def _parse_row(row: dict[str, str], types: dict[str, Any]) -> Run:
    cells: dict[str, Any] = {name: _parse_cell(row[name], types[name]) for name in FIELDS}
    return Run(**cells)


def write_runs(path: Path, runs: Iterable[Run]) -> None:
    """Write ``runs`` to a CSV file. None becomes an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([_format_cell(getattr(run, name)) for name in FIELDS] for run in runs)


def _parse_cell(text: str, kind: Any) -> Any:
    """Convert a cell to the type of its field. An empty cell is None if the field allows None."""
    choices = get_args(kind) or (kind,)
    if not text and NoneType in choices:
        return None
    base = next(choice for choice in choices if choice is not NoneType)
    return text == "1" if base is bool else base(text)


def _format_cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.9g}" if isinstance(value, float) else "" if value is None else value


def read_models(path: Path) -> dict[str, ModelSpec]:
    """Return the published models that the catalog lacks by name: one JSON object per line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    specs = [ModelSpec.model_validate_json(line) for line in lines]
    return {spec.name: spec for spec in specs if spec.name}
