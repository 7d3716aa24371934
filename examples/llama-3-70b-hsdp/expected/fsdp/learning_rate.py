"""Learning rate per step, computed from the settings of the plan in JSON."""

import math


def learning_rate(step: int, plan: dict) -> float:
    """Return the rate of a step, counted from 0: linear warm-up to the peak, then the set decay."""
    peak, least, warmup = plan["learning_rate"], plan["min_learning_rate"], plan["warmup_steps"]
    decay, end = plan["lr_decay"], plan["lr_decay_steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    if decay == "constant":
        return peak
    if decay == "inverse-square-root":
        return max(least, peak * math.sqrt(warmup / step))
    start = end - plan["wsd_decay_steps"] if decay == "wsd" else warmup
    done = min(max(step - start, 0) / (end - start), 1.0)
    left = (1 + math.cos(math.pi * done)) / 2 if decay == "cosine" else 1 - done
    return least + (peak - least) * left
