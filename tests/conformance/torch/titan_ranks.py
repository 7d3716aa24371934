"""Run torchtitan's own trainer on CPUs over gloo, with replacements for GPU functions.

    torchrun ... titan_ranks.py --module parc_titan --config run ...

Replaced are: the kernel of FlexAttention (by dense attention with the same mask), counters of GPU
memory, the data set and its tokenizer (by generated tokens), the weights (drawn by name, so that
they do not depend on the number of ranks), gloo's missing PREMUL_SUM (by a sum), and
``torch.distributed.set_timeout``, which torch 2.13 does not have. Prints the trainer's output.
Imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from absent_modules import install_absent_modules
from emulated_gpu import install_fake_triton

UNUSED = ("PIL", "datasets", "torch.utils.tensorboard", "torchdata", "wandb")
SEED, VOCABULARY = 1234, 128


class CpuDevice(types.ModuleType):
    """torch.cpu with the names that torchtitan uses of torch.cuda."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def cpu_device() -> CpuDevice:
    device, nothing = CpuDevice("cpu"), lambda *_: None
    memory = types.SimpleNamespace(total_memory=1 << 30)
    vars(device).update(
        set_device=nothing,
        reset_peak_memory_stats=nothing,
        empty_cache=nothing,
        current_device=lambda: 0,
        get_device_name=lambda *_: "cpu",
        get_device_properties=lambda *_: memory,
        memory_stats=lambda *_: {},
    )
    return device


def dense_attention(q: Any, k: Any, v: Any, **given: Any) -> tuple[Any, None]:
    """Compute the compiled kernel's result without a kernel, which has no backward pass on a
    CPU.
    """
    from torch.nn.attention.flex_attention import create_mask

    sizes = (q.shape[0], 1, q.shape[2], k.shape[2])
    mask = create_mask(given["block_mask"].mask_mod, *sizes, device="cpu")
    attend = torch.nn.functional.scaled_dot_product_attention
    more = {"scale": given["scale"], "enable_gqa": given["enable_gqa"]}
    return attend(q, k, v, attn_mask=mask, **more), None


class Samples:
    """Micro-batches of the run's numbered samples, which do not depend on the number of ranks."""

    def __init__(
        self, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        self.places, self.place = dp_world_size, dp_rank
        self.length, self.size = seq_len, local_batch_size

    def __iter__(self) -> Iterator[Any]:
        number = self.place
        positions = torch.arange(self.length).expand(self.size, -1)
        while True:
            first = number * self.size
            tokens = torch.stack([self.sample(n) for n in range(first, first + self.size)])
            number += self.places
            yield {"input": tokens[:, :-1], "positions": positions}, tokens[:, 1:]

    def sample(self, number: int) -> Any:
        dice = torch.Generator().manual_seed(SEED + number)
        return torch.randint(VOCABULARY, (self.length + 1,), generator=dice)


class Built:
    """Config whose ``build`` is a function."""

    def __init__(self, build: Any) -> None:
        self.build = build

    def to_dict(self) -> dict[str, Any]:
        return {}


def draw_weights(model: Any) -> None:
    """Draw every whole weight from a seed of its name; a rank stores its part."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            continue
        dice = torch.Generator().manual_seed(zlib.crc32(unwrapped_name(name).encode()))
        whole = 0.02 * torch.randn(weight.shape, generator=dice)
        if isinstance(weight, DTensor):
            mesh, placements = weight.device_mesh, weight.placements
            whole = distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()
            weight.to_local().copy_(whole)
        else:
            weight.copy_(whole)


def unwrapped_name(name: str) -> str:
    """Remove the parts that wrappers add to a name."""
    return name.replace("_checkpoint_wrapped_module.", "")


def replace_gpu_functions() -> None:
    """Install the replacements for GPU functions, before torchtitan's trainer is imported."""
    install_fake_triton()
    install_absent_modules(*UNUSED)
    import torchtitan.tools.utils as tools

    tools.device_type, tools.device_module = "cpu", cpu_device()
    tools.get_local_device = lambda: torch.device("cpu")
    vars(torch.distributed).setdefault("set_timeout", lambda *_: None)
    from torchtitan.models.common.attention import FlexAttention

    FlexAttention._compiled_flex_attn = staticmethod(dense_attention)


def replace_config() -> None:
    """Replace the data and tokenizer of the config, and the weights of its model."""
    from torchtitan.config import ConfigManager
    from torchtitan.models.common.decoder import Decoder

    parse, start = ConfigManager.parse_args, Decoder.init_weights

    def parse_args(self: Any, *words: Any) -> Any:
        config = parse(self, *words)
        config.tokenizer, config.dataloader = Built(lambda **_: None), Built(Samples)
        return config

    def init_weights(self: Any, **given: Any) -> None:
        start(self, **given)
        draw_weights(self)

    ConfigManager.parse_args, Decoder.init_weights = parse_args, init_weights


def sum_on_gloo() -> None:
    """Use sums for gradients, because FSDP2 divides inside NCCL's reduction and gloo can only
    add.
    """
    from torch.distributed.fsdp import FSDPModule

    divide = FSDPModule.set_gradient_divide_factor

    def set_gradient_divide_factor(self: Any, factor: float) -> None:
        divide(self, factor)
        self.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = set_gradient_divide_factor


if __name__ == "__main__":
    replace_gpu_functions()
    replace_config()
    sum_on_gloo()
    from torchtitan.train import main

    main()
