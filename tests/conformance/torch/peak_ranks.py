"""Run a training program on a CPU and record the peaks of the bytes of its tensors.

    torchrun ... peak_ranks.py train.py --device cpu

Storages are counted while they exist, with their size after FSDP2 has resized them. torch's RMSNorm
saves what its single kernel on a GPU saves, and the optimizer uses the variant with lists of
tensors, as on a GPU. Each rank writes one line per step to the file PEAKS.RANK: the peak of the
forward and backward passes, and the bytes between two steps.

Imports neither PARC nor pytest.
"""

from __future__ import annotations

import os
import runpy
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counter of the bytes of all storages that operators have created."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, tuple[Any, int]] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the operators on the local tensors follow
        result = operator(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.count(getattr(leaf, "elem", leaf))
        return result

    def count(self, tensor: torch.Tensor) -> None:
        """Count the storage of ``tensor``, until it is freed."""
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        alive, counted = self.sizes.get(key) or (weakref.ref(storage, self.forget(key)), 0)
        self.sizes[key] = (alive, size)
        self.change(size - counted)

    def forget(self, key: int) -> Any:
        """Return the function that runs when the storage ``key`` is freed."""
        return lambda _: self.change(-self.sizes.pop(key)[1])

    def change(self, size: int) -> None:
        """Add ``size`` bytes."""
        self.now += size
        self.peak = max(self.peak, self.now)


LIVE = LiveBytes()
RESIZE, STEP = torch.UntypedStorage.resize_, torch.optim.AdamW.step


def resize(storage: torch.UntypedStorage, size: int) -> Any:
    """Resize a storage, and count its new size."""
    result = RESIZE(storage, size)
    if storage._cdata in LIVE.sizes:
        alive, counted = LIVE.sizes[storage._cdata]
        LIVE.sizes[storage._cdata] = (alive, size)
        LIVE.change(size - counted)
    return result


def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Write the peak since the last step, and run the step."""
    with Path(f"{os.environ['PEAKS']}.{os.environ['RANK']}").open("a") as lines:
        lines.write(f"{LIVE.peak}\n")
    result = STEP(optimizer, *args, **kwargs)
    LIVE.peak = 0
    return result


def single_kernel_norm(norm: Any, x: Any) -> Any:
    """Apply a norm that saves only its input and its statistics."""
    return torch.nn.functional.layer_norm(x, norm.normalized_shape, norm.weight)


def main() -> None:
    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
    torch.optim.AdamW.step = step  # type: ignore[method-assign]
    torch.nn.RMSNorm.forward = single_kernel_norm  # type: ignore[method-assign]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    with LIVE:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
