"""DeepSpeed: ``optimizer``, ``scheduler`` and clipping of its JSON config to fields of the job."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.topology.readers.document import Node

DECAYS = {"WarmupCosineLR": "cosine", "WarmupDecayLR": "linear", "WarmupLR": "constant"}
"""Schedules of runtime/lr_schedules.py -> ``job.lr_decay``."""
_STEPS = {"warmup_num_steps": "warmup_steps", "total_num_steps": "lr_decay_steps"}
_LINEAR = {"warmup_type": "linear", "warmup_min_lr": 0, "warmup_min_ratio": 0}
"""Keys of a warm-up, with the value that the spec's has."""


def read_optimizer(root: Node) -> tuple[dict[str, object], set[str]]:
    """Fields of ``job``, and the keys that they are read from (``optimizer.params.lr``).

    A number that is absent, ``auto`` or out of range is left to the spec.
    """
    job: dict[str, object] = {}
    read: set[str] = set()
    for key, field, value in (*_clipping(root), *_optimizer(root), *_schedule(root)):
        read.add(key)
        if field:
            job[field] = value
    return job, read


def _number(node: Node | None, key: str, least: float, most: float) -> float | None:
    value = node.value.get(key) if node is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if least <= value <= most else None


def _clipping(root: Node) -> Iterator[tuple[str, str, object]]:
    norm = _number(root, "gradient_clipping", 0, 1e12)
    if norm is not None:
        yield "gradient_clipping", "gradient_clipping", norm


def _params(root: Node, section: str) -> Node | None:
    found = root.mapping(section)
    return found.mapping("params") if found is not None else None


def _optimizer(root: Node) -> Iterator[tuple[str, str, object]]:
    params = _params(root, "optimizer")
    section = root.mapping("optimizer")
    if section is not None and section.value.get("type") == "AdamW":
        yield "optimizer.type", "", None
    for key, field, least in (
        ("lr", "learning_rate", 1e-300),
        ("eps", "adam_epsilon", 1e-300),
        ("weight_decay", "weight_decay", 0),
    ):
        number = _number(params, key, least, 1e3)
        if number is not None:
            yield f"optimizer.params.{key}", field, number
    betas = params.value.get("betas") if params is not None else None
    if isinstance(betas, list) and len(betas) == 2 and all(_is_beta(beta) for beta in betas):
        yield "optimizer.params.betas", "adam_beta1", betas[0]
        yield "optimizer.params.betas", "adam_beta2", betas[1]


def _is_beta(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _schedule(root: Node) -> Iterator[tuple[str, str, object]]:
    section, params = root.mapping("scheduler"), _params(root, "scheduler")
    kind = section.value.get("type") if section is not None else None
    if not isinstance(kind, str) or kind not in DECAYS or params is None:
        return
    yield "scheduler.type", "lr_decay", DECAYS[kind]
    for key, field in _STEPS.items():
        steps = params.value.get(key)
        if isinstance(steps, int) and not isinstance(steps, bool) and 0 < steps <= 10**9:
            yield f"scheduler.params.{key}", field, steps
    for key, value in _LINEAR.items():
        if key in params.value and params.value[key] == value:
            yield f"scheduler.params.{key}", "", None
    yield from _ends(root, params, kind)


def _ends(root: Node, params: Node, kind: str) -> Iterator[tuple[str, str, object]]:
    """Peak and end: the cosine takes its peak from the optimizer, the linear decay ends at 0."""
    peak = _number(_params(root, "optimizer"), "lr", 1e-300, 1e3)
    most = params.value.get("warmup_max_lr")
    if most is not None and most == peak:
        yield "scheduler.params.warmup_max_lr", "", None
    share = _number(params, "cos_min_ratio", 0, 1)
    if share is not None and peak is not None:
        yield (
            "scheduler.params.cos_min_ratio",
            "min_learning_rate",
            float(f"{share * peak:.6g}"),
        )
    if kind == "WarmupDecayLR":
        yield "scheduler.type", "min_learning_rate", 0.0
