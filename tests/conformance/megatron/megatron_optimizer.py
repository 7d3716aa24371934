"""Settings of Megatron-Core's optimizer and learning-rate scheduler for parsed arguments.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields
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
def overlap_settings(args: Namespace) -> None:
    """Build the settings of the optimizer and of data parallelism."""
    from megatron.training import training

    training.get_megatron_optimizer_config(args)
    if hasattr(training, "get_megatron_ddp_config"):
        training.get_megatron_ddp_config(args)
    else:
        _settings_of_get_model(args)


def _settings_of_get_model(args: Namespace) -> None:
    """Build the settings of data parallelism as get_model of Megatron-Core 0.17 does, which also
    builds the model (reimplemented).
    """
    from megatron.core.distributed import DistributedDataParallelConfig

    names = {field.name for field in fields(DistributedDataParallelConfig)}
    settings = {name: value for name, value in vars(args).items() if name in names}
    if args.ddp_num_buckets is not None:
        assert args.ddp_bucket_size is None, "both --ddp-num-buckets and --ddp-bucket-size"
    patterns = tuple(args.ddp_param_name_patterns_for_fp32_local_accumulation)
    settings |= {
        "grad_reduce_in_fp32": args.accumulate_allreduce_grads_in_fp32,
        "check_for_nan_in_grad": args.check_for_nan_in_loss_and_grad,
        "bucket_size": args.ddp_bucket_size,
        "pad_buckets_for_high_nccl_busbw": args.ddp_pad_buckets_for_high_nccl_busbw,
        "reduce_scatter_with_fp32_accumulation": args.ddp_reduce_scatter_with_fp32_accumulation,
        "param_name_patterns_for_fp32_local_accumulation": patterns,
        "average_in_collective": args.ddp_average_in_collective,
    }
    DistributedDataParallelConfig(**settings)


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
