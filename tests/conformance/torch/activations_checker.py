"""Measure the bytes that autograd saves for one layer of an emitted program, on a CPU.

    python activations_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "program": "fsdp", "files": {path: text}, "autocast": false, "tokens": [2, 256]}.
A verdict adds "activations" and "weights": bytes of saved tensors other than parameters, and of
casts of parameters; and "traffic": the bytes that element-wise operators move in the forward and in
the backward pass (traffic_counter.py). Statistics of norms are left out. On a GPU torch's RMSNorm
is one kernel that saves only its input; on a CPU it is replaced by LayerNorm, which saves the same.

Runs under the Python that has torch; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from absent_modules import install_absent_modules
from case_lines import Case, Verdict, answer_cases, import_before_forks
from emulated_gpu import install_fake_triton
from torchtitan_checker import UNUSED
from traffic_counter import traffic_of

FEW_BYTES = 8
"""Bytes per token of the statistics of a norm."""


def check(case: Case, verdict: Verdict) -> None:
    """Build the layer and run its forward pass."""
    import torch

    verdict["stage"] = "the layer"
    torch.nn.RMSNorm.forward = single_kernel_norm  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        for path, text in case["files"].items():
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        sys.path.insert(0, str(Path(folder, case["program"])))
        layer, rest = LAYERS[case["program"]](Path(folder, case["program"]))
    autocast = case["autocast"]
    adapted = any(not weight.requires_grad for weight in layer.parameters())
    for weight in layer.parameters():
        wide = autocast and (weight.requires_grad or not adapted)
        weight.data = weight.data.to(torch.float32 if wide else torch.bfloat16)
    batch, length = case["tokens"]
    hidden = case["hidden"]
    stream = torch.randn(batch, length, hidden, dtype=next(layer.parameters()).dtype)
    stream.requires_grad_()
    verdict["stage"] = "forward"
    context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
    with context:
        saved = saved_by(layer, stream * 1.0, rest(length))
    shapes = {tuple(tensor.shape) for tensor in layer.parameters()}
    held = (*layer.parameters(), *layer.buffers())
    own = {tensor.untyped_storage().data_ptr() for tensor in held}
    few = FEW_BYTES * batch * length
    activations = weights = 0
    for tensor in saved:
        size = tensor.untyped_storage().nbytes()
        if tensor.untyped_storage().data_ptr() in own or size <= few:
            continue
        if tuple(tensor.shape) in shapes or tuple(tensor.shape[::-1]) in shapes:
            weights += size
        else:
            activations += size
    verdict |= {"activations": activations, "weights": weights}
    verdict["stage"] = "traffic"
    given, inner = rest(length), stream.detach().requires_grad_()
    verdict["traffic"] = traffic_of(lambda: layer(inner, **given), context)


def saved_by(layer: Any, stream: Any, rest: dict[str, Any]) -> list[Any]:
    """Return one tensor per saved storage, except the arguments that need no gradient."""
    import torch

    found: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        found.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = layer(stream, **rest)
    tables = [part for value in rest.values() for part in parts_of(value)]
    shared = {part.untyped_storage().data_ptr() for part in tables}
    assert out is not None
    return [tensor for place, tensor in found.items() if place not in shared]


def parts_of(value: Any) -> list[Any]:
    """Return the tensors of an argument."""
    if isinstance(value, (tuple, list)):
        return list(value)
    return [value] if hasattr(value, "untyped_storage") else []


def single_kernel_norm(norm: Any, x: Any) -> Any:
    """Apply a norm that saves only its input and its statistics."""
    import torch

    return torch.nn.functional.layer_norm(x, norm.normalized_shape, norm.weight)


Rest = Callable[[int], dict[str, Any]]
Built = tuple[Any, Rest]


def plain_layer(folder: Path) -> Built:
    """Return a block of fsdp/model.py."""
    import torch
    from model import Block

    config = json.loads((folder / "config.json").read_text("utf-8"))["model"]

    def rest(length: int) -> dict[str, Any]:
        tables = torch.randn(2, 1, length, 1, config["head_dim"] // 2)
        return {"cos": tables[0], "sin": tables[1]}

    return Block(config), rest


def transformers_layer(folder: Path) -> Built:
    """Return the decoder layer that accelerate/train.py trains."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    job = json.loads((folder / "job.json").read_text("utf-8"))
    whole = AutoModelForCausalLM.from_config(LlamaConfig(**job["model"], use_cache=False))
    decoder = whole.model
    if "lora" in job:
        from adapters import add_adapters

        add_adapters(whole)  # changes the layers in place

    def rest(length: int) -> dict[str, Any]:
        x = torch.zeros(1, length, 1, dtype=next(decoder.layers[0].parameters()).dtype)
        return {"position_embeddings": decoder.rotary_emb(x, torch.arange(length)[None])}

    return decoder.layers[0], rest


def deepspeed_layer(folder: Path) -> Built:
    """Return a block of deepspeed/model.py, with the positions of all tokens."""
    import model
    import torch

    model.own_positions = lambda tokens, device: torch.arange(tokens, device=device)
    return model.Block(0), lambda length: {}


def titan_layer(folder: Path) -> Built:
    """Return a block of torchtitan/parc_titan.py, with torch's attention instead of the compiled
    one.
    """
    import parc_titan
    import torch
    from torchtitan.models.common.attention import FlexAttention

    def attention(self: Any, *heads: Any, **rest: Any) -> Any:
        found = torch.nn.functional.scaled_dot_product_attention(
            *(part.transpose(1, 2) for part in heads), is_causal=True, enable_gqa=True
        )
        return found.transpose(1, 2)

    FlexAttention.forward = attention  # type: ignore[method-assign]
    block = parc_titan.block(0).build()
    block.attention.rope._init_self_buffers()
    return block, lambda length: {"attention_masks": None}


LAYERS: dict[str, Callable[[Path], Built]] = {
    "fsdp": plain_layer,
    "accelerate": transformers_layer,
    "deepspeed": deepspeed_layer,
    "torchtitan": titan_layer,
}


def main() -> int:
    import_before_forks("torch", "transformers", "deepspeed")
    install_absent_modules(*UNUSED)
    install_fake_triton()
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
