"""Import of ``optimizer``, ``scheduler`` and gradient clipping from a DeepSpeed config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parc.backends.deepspeed.derived_config import SCHEDULERS
from parc.backends.deepspeed.known_keys import PACKAGE
from parc.backends.shared.field_table import flag_table
from parc.compiler.tools.importers.flags import load_import_table
from parc.compiler.topology.readers.document import DocumentNode

TABLE = load_import_table(PACKAGE)
CONSTANTS = {
    row.setting: row.constant for row in flag_table(PACKAGE).rows if row.setting in TABLE.implied
}
"""Key -> constant that PARC always emits; a config with this value needs no field in the spec."""
DECAYS = {scheduler: decay for decay, scheduler in SCHEDULERS.items()}
"""Scheduler class of DeepSpeed (runtime/lr_schedules.py) -> ``job.lr_decay``."""
SETS_PEAK = ("WarmupLR", "WarmupDecayLR")
"""Schedules whose ``warmup_max_lr`` replaces the optimizer's rate (runtime/lr_schedules.py)."""
_MAX_RATE = "scheduler.params.warmup_max_lr"
_LEAST = {"float": 0.0, "positive": 1e-300}
_MOST = 1e12
"""Largest real number that a spec accepts."""
_NO_WARMUP_START = {"warmup_min_lr": 0, "warmup_min_ratio": 0}
"""Key of the learning rate at which a warm-up starts -> 0, the value that a spec implies."""


class _ReadKey(NamedTuple):
    """Key of a config that an import does not lose."""

    key: str
    """Dotted path, such as ``optimizer.params.lr``."""
    field: str = ""
    """Field of ``job`` that the key sets; empty if PARC writes the same value without a field."""
    value: object = None
    """Value of the field."""


def read_optimizer(root: DocumentNode) -> tuple[dict[str, object], set[str]]:
    """Return (values of ``job`` fields, keys that were read, such as ``optimizer.params.lr``).

    Numbers that are absent, ``auto`` or out of range set no field.
    """
    job: dict[str, object] = {}
    read: set[str] = set()
    for key, field, value in (
        *_read_numbers(root),
        *_read_adam_constants(root),
        *_read_betas(root),
        *_read_schedule(root),
    ):
        read.add(key)
        if field:
            job[field] = value
    rate = _read_number(_find_section(root, "optimizer", "params"), "lr", 0, _MOST)
    if _MAX_RATE in read and rate != job.get("learning_rate"):
        read.discard("optimizer.params.lr")
    return job, read


def _read_number(node: DocumentNode | None, key: str, least: float, most: float) -> float | None:
    value = node.value.get(key) if node is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if least <= value <= most else None


def _find_section(root: DocumentNode, *names: str) -> DocumentNode | None:
    """Return the mapping at the path ``names``; None if a part of the path is absent."""
    node: DocumentNode | None = root
    for name in names:
        node = node.mapping(name) if node is not None else None
    return node


def _read_numbers(root: DocumentNode) -> Iterator[_ReadKey]:
    """Yield each real-number setting of flags.yaml in the config."""
    for key, row in TABLE.rows.items():
        *above, name = key.split(".")
        if row.kind in _LEAST:
            number = _read_number(_find_section(root, *above), name, _LEAST[row.kind], _MOST)
            if number is not None:
                yield _ReadKey(key, row.path.partition(".")[2], number)


def _read_adam_constants(root: DocumentNode) -> Iterator[_ReadKey]:
    for key, constant in CONSTANTS.items():
        *above, name = key.split(".")
        section = _find_section(root, *above)
        if section is not None and section.value.get(name) == constant:
            yield _ReadKey(key)


def _read_betas(root: DocumentNode) -> Iterator[_ReadKey]:
    params = _find_section(root, "optimizer", "params")
    betas = params.value.get("betas") if params is not None else None
    if isinstance(betas, list) and len(betas) == 2 and all(_is_beta(beta) for beta in betas):
        yield _ReadKey("optimizer.params.betas", "adam_beta1", betas[0])
        yield _ReadKey("optimizer.params.betas", "adam_beta2", betas[1])


def _is_beta(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _read_schedule(root: DocumentNode) -> Iterator[_ReadKey]:
    section, params = root.mapping("scheduler"), _find_section(root, "scheduler", "params")
    kind = section.value.get("type") if section is not None else None
    if not isinstance(kind, str) or kind not in DECAYS or params is None:
        return
    yield _ReadKey("scheduler.type", "lr_decay", DECAYS[kind])
    for name in ("warmup_num_steps", "total_num_steps"):
        key, steps = f"scheduler.params.{name}", params.value.get(name)
        # bool is a subclass of int in Python: without the test, true would be read as 1 step.
        if isinstance(steps, int) and not isinstance(steps, bool) and 0 < steps <= 10**9:
            yield _ReadKey(key, TABLE.rows[key].path.partition(".")[2], steps)
    for key, value in _NO_WARMUP_START.items():
        if key in params.value and params.value[key] == value:
            yield _ReadKey(f"scheduler.params.{key}")
    yield from _read_learning_rate_ends(root, params, kind)


def _read_learning_rate_ends(
    root: DocumentNode, params: DocumentNode, kind: str
) -> Iterator[_ReadKey]:
    """Yield the keys of the peak and of the final learning rate.

    With WarmupCosineLR, the final rate is a fraction of the optimizer's rate. With WarmupDecayLR,
    the final rate is always 0.
    """
    peak = _read_number(_find_section(root, "optimizer", "params"), "lr", 1e-300, _MOST)
    # A spec has a single peak rate.
    warmup_end = _read_number(params, "warmup_max_lr", 1e-300, _MOST)
    if warmup_end is not None and (kind in SETS_PEAK or warmup_end == peak):
        yield _ReadKey(_MAX_RATE, "learning_rate", warmup_end)
    share = _read_number(params, "cos_min_ratio", 0, 1)
    if share is not None and peak is not None:
        minimum = float(f"{share * peak:.6g}")
        yield _ReadKey("scheduler.params.cos_min_ratio", "min_learning_rate", minimum)
    # Without this field, PARC would choose a final rate above 0.
    if kind == "WarmupDecayLR":
        yield _ReadKey("scheduler.type", "min_learning_rate", 0.0)
