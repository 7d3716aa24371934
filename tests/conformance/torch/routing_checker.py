"""Measure the bytes that permutations of routed tokens move in the library transformers, on a CPU.

    python routing_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "tokens", "hidden", "experts", "top_k"}. A verdict adds "traffic": bytes per
element of routed tokens in the forward and in the backward pass of a layer of experts. Matrix
products move none, and the experts are so narrow that their activation function moves hardly any.
Each row that is gathered or added counts as read from and written to memory.

Runs under the Python that has torch and transformers; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Verdict, answer_cases, import_before_forks
from traffic_counter import TrafficCounter, size_in_memory, tensors_of

GATHERS = ("index", "gather")
ADDITIONS = ("index_put", "index_put_", "scatter_add", "scatter_add_")
NARROW = 1


class RowCounter(TrafficCounter):
    """Counter that counts the moved rows of gathers and indexed additions, not whole tensors."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        before = self.nbytes
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.__name__.partition(".")[0]
        if name in GATHERS:
            self.nbytes = before + 2 * size_in_memory(out)
        elif name in ADDITIONS:
            rows = [each for each in tensors_of(args[1:]) if each.is_floating_point()]
            self.nbytes = before + 3 * sum(map(size_in_memory, rows))
        elif name == "new_zeros":
            self.nbytes = before + size_in_memory(out)
        return out


class EmptyProduct(torch.autograd.Function):
    """Grouped matrix product with arbitrary values, whose operators move no bytes."""

    @staticmethod
    def forward(ctx: Any, rows: Any, weight: Any) -> Any:
        ctx.save_for_backward(rows, weight)
        return rows.new_empty(rows.shape[0], weight.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return tuple(torch.empty_like(each) for each in ctx.saved_tensors)


def check(case: Case, verdict: Verdict) -> None:
    """Run both passes of a layer of experts and count."""
    from transformers import Qwen3MoeConfig
    from transformers.integrations import moe
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    moe._grouped_mm = lambda rows, weight, offs: EmptyProduct.apply(rows, weight)
    config = Qwen3MoeConfig(
        hidden_size=case["hidden"],
        moe_intermediate_size=NARROW,
        num_experts=case["experts"],
        num_experts_per_tok=case["top_k"],
    )
    config._experts_implementation = "grouped_mm"
    verdict["stage"] = "the layer"
    layer = Qwen3MoeSparseMoeBlock(config).to(torch.bfloat16)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight)
    stream = torch.randn(1, case["tokens"], case["hidden"], dtype=torch.bfloat16)
    stream.requires_grad_()
    elements = case["tokens"] * case["top_k"] * case["hidden"]
    with RowCounter() as forward:
        found = layer(stream)
    out = found[0] if isinstance(found, tuple) else found
    gradient = torch.ones_like(out)
    verdict["stage"] = "backward"
    with RowCounter() as backward:
        out.backward(gradient)
    verdict["traffic"] = [forward.nbytes / elements, backward.nbytes / elements]


def main() -> int:
    import_before_forks("torch", "transformers")
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
