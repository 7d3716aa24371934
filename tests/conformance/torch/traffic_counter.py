"""Count the bytes that the element-wise operators of a layer read and write.

Views, matrix products and attention are left out. A tensor that is expanded along a dimension is
read once. CUDA computes the gradient of a norm's weight in a second kernel, which reads both inputs
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WITHOUT_TRAFFIC = frozenset(
    {
        *("mm", "addmm", "bmm", "baddbmm"),
        *("view", "_unsafe_view", "transpose", "t", "permute", "expand", "slice", "select"),
        *("split", "split_with_sizes", "chunk", "unbind", "unsqueeze", "squeeze", "alias"),
        *("detach", "as_strided", "_reshape_alias", "reshape", "lift_fresh"),
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    }
)
READS_TWICE = "native_layer_norm_backward"


class TrafficCounter(TorchDispatchMode):
    """Sum of the sizes of inputs and outputs of all operators that run inside the context."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        if name not in WITHOUT_TRAFFIC:
            read = sum(map(size_in_memory, tensors_of((args, kwargs))))
            written = sum(map(size_in_memory, tensors_of(out)))
            self.nbytes += read * (2 if name == READS_TWICE else 1) + written
        return out


def size_in_memory(tensor: Any) -> int:
    """Return the bytes of the distinct elements of a tensor."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= length if stride else 1
    return count * int(tensor.element_size())


def tensors_of(value: Any) -> Iterator[Any]:
    """Yield the tensors inside nested arguments or results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_of(each)


class AttentionWithoutTraffic(torch.autograd.Function):
    """Attention whose results have the memory layout of a fused GPU kernel and arbitrary values."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        ctx.save_for_backward(q, k, v)
        batch, heads, tokens, _ = q.shape
        return torch.empty(batch, tokens, heads, v.shape[-1], dtype=q.dtype).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return tuple(torch.empty_like(each) for each in ctx.saved_tensors)


def traffic_of(run: Callable[[], Any], context: Any) -> tuple[int, int]:
    """Return the bytes of the forward pass, which ``run`` executes, and of the backward pass.

    ``context`` is entered for the forward pass.
    """
    attention = mock.patch(
        "torch.nn.functional.scaled_dot_product_attention",
        lambda q, k, v, *rest, **options: AttentionWithoutTraffic.apply(q, k, v),
    )
    with attention, context, TrafficCounter() as forward:
        out = run()
    out = out[0] if isinstance(out, tuple) else out
    gradient = torch.empty_like(out)
    with TrafficCounter() as backward:
        out.backward(gradient)
    return forward.nbytes, backward.nbytes
