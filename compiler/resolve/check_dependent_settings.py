"""Report settings that have no effect, because of another setting or the kind of model (E14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Model
from parc.compiler.ir.frozen import frozen
from parc.compiler.resolve.check_unused_settings import is_path_in_fields, paths_of_set_fields
from parc.compiler.spec.spec import Spec, TaskSpec


@frozen
class Dependency:
    """Condition under which fields of a spec have no effect."""

    paths: tuple[str, ...]
    """Spec paths of the fields; a section stands for all fields below it."""
    is_unused: Callable[[Any, Model], bool]
    """Function of the spec and its model."""
    reason: str


CONSTANT_RATE = "the learning rate is constant after the warm-up"
NO_EXPERTS = "the model has no experts"
MODEL = (
    Dependency(
        ("model.full_attention_every",),
        lambda spec, model: model.attention.window is None,
        "the model has no window",
    ),
    Dependency(
        tuple(
            f"model.position.{name}"
            for name in ("scaling_factor", "original_max_positions", "mscale", "mscale_all_dim")
        ),
        lambda spec, model: model.position.scaling == "none" and model.position.kind != "yarn",
        "the positions have no scaling",
    ),
    Dependency(
        ("model.position.percent",),
        lambda spec, model: model.attention.latent is not None,
        "latent.qk_rope_dim is the rotated part of a head with latent attention",
    ),
    Dependency(
        ("model.experts.shared_gate",),
        lambda spec, model: model.experts is not None and not model.experts.shared_size,
        "the model has no shared experts",
    ),
)
TRAINING = (
    *MODEL,
    Dependency(
        (
            *("job.moe_dispatcher", "job.moe_overlap", "job.moe_imbalance"),
            *("goals.limits.ep", "goals.limits.etp"),
        ),
        lambda spec, model: model.experts is None,
        NO_EXPERTS,
    ),
    Dependency(
        ("job.fp8_recipe",),
        lambda spec, model: spec.job.precision != "fp8",
        "the precision is not fp8",
    ),
    Dependency(
        ("job.async_checkpoint", "job.checkpoint_interval"),
        lambda spec, model: spec.job.checkpoint_dir is None,
        "no checkpoint_dir is set",
    ),
    Dependency(
        ("job.min_learning_rate",),
        lambda spec, model: spec.job.lr_decay == "constant",
        CONSTANT_RATE,
    ),
    Dependency(
        ("job.lr_decay_steps",),
        # A warm-up that is a fraction is a fraction of these steps.
        lambda spec, model: (
            spec.job.lr_decay == "constant" and not isinstance(spec.job.warmup_steps, float)
        ),
        CONSTANT_RATE,
    ),
)
SERVING = (
    *MODEL,
    Dependency(("goals.limits.ep",), lambda spec, model: model.experts is None, NO_EXPERTS),
    Dependency(
        ("job.traffic.burstiness", "job.traffic.lengths.output_cv"),
        # A trace has its own arrivals and lengths (V34).
        lambda spec, model: (
            spec.job.traffic.request_rate is None
            and spec.job.traffic.trace is None
            and all(getattr(spec.goals, limit) is None for limit in ("ttft", "tpot", "e2e"))
        ),
        "requests are simulated only with a request_rate or a limit on latency",
    ),
)


def check_dependent_settings(spec: TaskSpec, model: Model, sink: Sink) -> None:
    """Report fields that have no effect although the spec changes their defaults (E14)."""
    dependencies = TRAINING if isinstance(spec, Spec) else SERVING
    unused = [one for one in dependencies if one.is_unused(spec, model)]
    if not unused:
        return
    for path in paths_of_set_fields(spec, only_changed=True):
        for one in unused:
            if is_path_in_fields(path, one.paths):
                finding = Finding(f"{path} has no effect", label=one.reason, fix=f"remove {path}")
                sink.report("E14", finding, at=path, key=True)
