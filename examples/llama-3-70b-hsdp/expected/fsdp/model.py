"""Decoder-only transformer with the sizes in fsdp/config.json: grouped-query attention with rotary
positions, gated MLP, pre-norm. TENSOR_PLAN in parallelize.py refers to the module names.
"""

import math

import torch
import torch.nn.functional as F
from parallelize import CONFIG, place_part
from torch import nn


def rotary_frequencies(config: dict) -> torch.Tensor:
    """Return the radians per token for each pair of a head's dims, with the configured scaling."""
    width = config["head_dim"]
    frequencies = config["rope_base"] ** -(torch.arange(0, width, 2).float() / width)
    factor, original = config["rope_factor"], config["rope_original"]
    if config["rope_scaling"] == "linear":
        return frequencies / factor
    if config["rope_scaling"] == "llama3":  # scales long wavelengths, keeps short ones
        turns = original * frequencies / (2 * math.pi)
        smooth = ((turns - 1) / (4 - 1)).clamp(0, 1)
        return frequencies * (smooth + (1 - smooth) / factor)
    return frequencies


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of every head by position; x is (batch, tokens, heads, head_dim)."""
    first, second = x.float().chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return rotated.type_as(x)


class Attention(nn.Module):
    """Causal grouped-query attention; with tensor parallelism each rank has a part of the heads."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, width = config["hidden"], config["head_dim"]
        bias = config["qkv_bias"]
        self.width = width
        self.wq = nn.Linear(hidden, config["heads"] * width, bias=bias)
        self.wk = nn.Linear(hidden, config["kv_heads"] * width, bias=bias)
        self.wv = nn.Linear(hidden, config["kv_heads"] * width, bias=bias)
        self.wo = nn.Linear(config["heads"] * width, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            linear(x).view(batch, tokens, -1, self.width) for linear in (self.wq, self.wk, self.wv)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    """SiLU-gated MLP."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.w1 = nn.Linear(config["hidden"], config["ffn"], bias=False)
        self.w2 = nn.Linear(config["ffn"], config["hidden"], bias=False)
        self.w3 = nn.Linear(config["hidden"], config["ffn"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Decoder layer."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        epsilon = config["norm_epsilon"]
        self.attention_norm = nn.RMSNorm(config["hidden"], eps=epsilon)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config["hidden"], eps=epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Model from tokens (batch, length) to logits (batch, length, vocab)."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config["vocab"], config["hidden"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["layers"]))
        self.norm = nn.RMSNorm(config["hidden"], eps=config["norm_epsilon"])
        self.output = nn.Linear(config["hidden"], config["vocab"], bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).float()
        angles = torch.outer(places, rotary_frequencies(self.config).to(tokens.device))
        cos, sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.output(self.norm(x))


def build_model() -> Transformer:
    """Return the planned model on the current device."""
    return Transformer(CONFIG["model"])


@torch.no_grad()
def initialize(model: nn.Module) -> None:
    """Initialize weights independently of the mesh: draw whole tensors, keep this rank's part."""
    generator = torch.Generator().manual_seed(CONFIG["seed"])
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight.fill_(1.0)
        elif name.endswith("bias"):
            weight.zero_()
        else:
            place_part(weight, 0.02 * torch.randn(weight.shape, generator=generator))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of sequences with one more token for the labels."""
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
