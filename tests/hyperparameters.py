"""Seeded random hyperparameters of a job, and the learning rate that they define."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from parc.compiler.ir import Job

DECAYS = ("cosine", "linear", "constant", "inverse-square-root", "wsd")


def hyperparameters(
    seed: object, steps: int, decays: tuple[str, ...] = DECAYS, least_warmup: int = 0
) -> dict[str, Any]:
    """Return fields of ``job`` for a run of ``steps`` steps; three fields keep their defaults."""
    dice = Random(f"hyperparameters {seed}")
    decay = dice.choice(decays)
    job: dict[str, Any] = {
        "lr_decay": decay,
        "learning_rate": dice.choice([1e-4, 3e-4, 0.00123]),
        "min_learning_rate": dice.choice([0, 1e-6, 2e-5]),
        "weight_decay": dice.choice([0, 0.1, 0.033]),
        "adam_beta1": dice.choice([0, 0.8, 0.9]),
        "adam_beta2": dice.choice([0.95, 0.98, 0.999]),
        "adam_epsilon": dice.choice([1e-8, 1e-5, 3e-15]),
        "gradient_clipping": dice.choice([0, 0.3, 1.0]),
        "seed": dice.choice([1, 1234, 4321]),
    }
    if steps >= 20:
        job["lr_decay_steps"] = dice.choice([steps, steps + 7])
        job["warmup_steps"] = dice.choice(["5%", "0%", 0, 1, 2, 9])
        if decay == "wsd":
            job["wsd_decay_steps"] = dice.choice([1, 7, 10])
    if decay == "inverse-square-root":
        least_warmup = max(least_warmup, 1)
    if least_warmup and job.get("warmup_steps") in ("0%", *range(least_warmup)):
        job["warmup_steps"] = least_warmup
    dropped = dice.sample(sorted(job.keys() - {"lr_decay"}), 3)
    return {name: value for name, value in job.items() if name not in dropped}


def planned_rate(job: Job, done: int) -> float:
    """Return the learning rate after ``done`` steps, as the spec defines it."""
    peak, least = job.learning_rate, job.min_learning_rate
    warmup, end = job.warmup_steps, job.lr_decay_steps
    if done < warmup:
        return peak * done / warmup
    if job.lr_decay == "constant":
        return peak
    if job.lr_decay == "inverse-square-root":
        return max(least, peak * math.sqrt(warmup / done))
    first = end - job.wsd_decay_steps if job.lr_decay == "wsd" else warmup
    part = min(max(done - first, 0) / (end - first), 1)
    curve = 0.5 + 0.5 * math.cos(math.pi * part) if job.lr_decay == "cosine" else 1 - part
    return least + (peak - least) * curve
