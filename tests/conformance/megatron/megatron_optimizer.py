"""Settings of Megatron-Core's optimizer and learning-rate scheduler for parsed arguments.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch


class FusedAdam:
    """Stand-in for the optimizer of TransformerEngine 2.1 or newer, which needs a GPU.

    Megatron reads the names of its arguments.
    """

    def __init__(
        self,
        master_weight_dtype: Any = None,
        exp_avg_dtype: Any = None,
        exp_avg_sq_dtype: Any = None,
        use_decoupled_grad: bool = False,
    ) -> None: ...


@contextlib.contextmanager
def precision_aware_optimizer() -> Iterator[None]:
    """Make TransformerEngine's optimizer importable.

    Only for some stages, because Megatron builds other modules if it finds TransformerEngine.
    """
    name = "transformer_engine.pytorch.optimizers"
    optimizers = ModuleType(name)
    optimizers.FusedAdam = FusedAdam  # type: ignore[attr-defined]
    packages = {part: ModuleType(part) for part in (name.rsplit(".", 2)[0], name.rsplit(".", 1)[0])}
    with patch.dict(sys.modules, {**packages, name: optimizers}):
        yield


@precision_aware_optimizer()
def optimizer_settings(args: Namespace) -> dict[str, Any]:
    """Return the settings of the optimizer and its scheduler; "rates" has the learning rate after a
    number of steps.
    """
    from megatron.training import training

    config = training.get_megatron_optimizer_config(args)[0]
    group: dict[str, Any] = {"params": []}
    with patch.object(training, "get_args", lambda: args):
        scheduler = training.get_optimizer_param_scheduler(SimpleNamespace(param_groups=[group]))
    rates = {}
    for step in (1, 2, args.train_iters // 2, args.train_iters):
        scheduler.num_steps = step * args.global_batch_size
        rates[str(step)] = scheduler.get_lr(group)
    betas = {"adam_beta1": config.adam_beta1, "adam_beta2": config.adam_beta2}
    return {
        "rates": rates,
        **betas,
        "adam_epsilon": config.adam_eps,
        "weight_decay": scheduler.get_wd(),
        "gradient_clipping": config.clip_grad,
        "seed": args.seed,
    }
