"""Decoder-only transformer with the sizes in train.json, and its process groups.

Tensor parallelism: with a pipeline, `cut` splits the layers; without one, DeepSpeed's AutoTP splits
them as `TransformerModel._tp_plan` states. Replace `Block` with your own layers.
"""

import json
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm as dist
from torch import nn
from torch.nn import functional as F

PLAN = json.loads(Path(__file__).with_name("train.json").read_text(encoding="utf-8"))
MODEL, EXPERTS, TOPOLOGY = PLAN["model"], PLAN.get("experts"), PLAN["topology"]
SEED = PLAN["seed"]
PIPE, DATA, SEQUENCE, TENSOR = (TOPOLOGY[axis] for axis in ("pipe", "data", "sequence", "model"))


class Groups:
    """Process groups of the layers, and the mpu interface that DeepSpeed requires for Ulysses.

    ZeRO must also reduce gradients over the ranks of a sequence. Without these methods it would
    reduce only over data-parallel ranks, and the weights of sequence ranks would diverge.
    """

    tensor = None
    sequence = None

    @classmethod
    def create(cls, topology):
        for ranks in topology.get_axis_comm_lists("model") if PIPE > 1 else []:
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                cls.tensor = group
        for first in range(0, dist.get_world_size(), SEQUENCE) if SEQUENCE > 1 else []:
            ranks = list(range(first, first + SEQUENCE))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                cls.sequence = group

    def get_sequence_parallel_group(self):
        return Groups.sequence

    def get_sequence_parallel_world_size(self):
        return SEQUENCE

    def get_sequence_parallel_rank(self):
        return dist.get_rank() % SEQUENCE

    def get_sequence_data_parallel_group(self):
        return dist.get_world_group()

    def get_sequence_data_parallel_world_size(self):
        return dist.get_world_size()

    def get_sequence_data_parallel_rank(self):
        return dist.get_rank()

    def get_data_parallel_world_size(self):
        return DATA

    def get_model_parallel_world_size(self):
        return 1

    def get_model_parallel_rank(self):
        return 0

    def get_model_parallel_group(self):
        return None


class Copied(torch.autograd.Function):
    """Input of a tensor-parallel block: identity forward, all-reduce of gradients backward."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=Groups.tensor)
        return grad


class Summed(torch.autograd.Function):
    """Output of a tensor-parallel block: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x, group=Groups.tensor)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def cut(layer, dim):
    """Keep this rank's part of a linear layer, split by outputs (dim 0) or inputs (dim 1)."""
    if Groups.tensor is None:
        return layer
    rank = dist.get_rank(group=Groups.tensor)
    for name in ("weight", "bias") if dim == 0 else ("weight",):
        whole = getattr(layer, name)
        if whole is not None:
            part = nn.Parameter(whole.detach().chunk(TENSOR, dim)[rank].clone())
            part.model_parallel = True
            setattr(layer, name, part)
    return layer


def narrow(layer, x):
    """Return the summed output of a layer split by inputs; the bias is added once, after the sum."""
    if Groups.tensor is None:
        return layer(x)
    x = Summed.apply(F.linear(x, layer.weight))
    return x if layer.bias is None else x + layer.bias


def enter(x):
    return x if Groups.tensor is None else Copied.apply(x)


def norm():
    kind = nn.RMSNorm if MODEL["norm"] == "rmsnorm" else nn.LayerNorm
    return kind(MODEL["hidden"], eps=MODEL["norm_epsilon"])


def rotate(x, positions):
    """Apply rotary positions to the first dims of every head; x is (batch, tokens, heads, dim)."""
    dim = int(x.shape[-1] * MODEL["rope_percent"]) // 2 * 2
    exponent = torch.arange(0, dim, 2, device=x.device, dtype=torch.float32) / dim
    angle = positions[:, None].float() * MODEL["rope_base"] ** -exponent
    cos, sin = (part[None, :, None, :] for part in (angle.cos(), angle.sin()))
    one, two, rest = x[..., : dim // 2], x[..., dim // 2 : dim], x[..., dim:]
    turned = (one * cos - two * sin, two * cos + one * sin)
    return torch.cat((*(part.to(x.dtype) for part in turned), rest), dim=-1)


def own_positions(tokens, device):
    """Return the positions of this rank's tokens in the sequence."""
    first = dist.get_rank() % SEQUENCE * tokens if SEQUENCE > 1 else 0
    return torch.arange(first, first + tokens, device=device)


class Core(nn.Module):
    """Causal attention; q, k and v are (batch, tokens, heads, dim)."""

    def forward(self, q, k, v, *unused):
        share = q.shape[2] // k.shape[2]
        k, v = (x.repeat_interleave(share, dim=2) for x in (k, v))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, dim = MODEL["hidden"], MODEL["head_dim"]
        queries, keys, bias = MODEL["heads"] * dim, MODEL["kv_heads"] * dim, MODEL["qkv_bias"]
        self.q_proj = cut(nn.Linear(hidden, queries, bias=bias), 0)
        self.k_proj = cut(nn.Linear(hidden, keys, bias=bias), 0)
        self.v_proj = cut(nn.Linear(hidden, keys, bias=bias), 0)
        self.o_proj = cut(nn.Linear(queries, hidden, bias=MODEL["output_bias"]), 1)
        self.core = Core()
        if SEQUENCE > 1:
            from deepspeed.sequence.layer import DistributedAttention

            self.core = DistributedAttention(
                self.core, Groups.sequence, scatter_idx=2, gather_idx=1
            )

    def forward(self, x):
        x = enter(x)
        q, k, v = (self.heads(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        if MODEL["position"] == "rope":
            positions = own_positions(x.shape[1], x.device)
            q, k = rotate(q, positions), rotate(k, positions)
        if k.shape[2] < SEQUENCE:  # fewer key-value heads than ranks: copy them
            k, v = (head.repeat_interleave(SEQUENCE // k.shape[2], dim=2) for head in (k, v))
        out = self.core(q, k, v, 0) if SEQUENCE > 1 else self.core(q, k, v)
        return narrow(self.o_proj, out.flatten(2))

    def heads(self, x):
        return x.unflatten(-1, (-1, MODEL["head_dim"]))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        hidden, bias = MODEL["hidden"], MODEL["mlp_bias"]
        self.up_proj = cut(nn.Linear(hidden, width, bias=bias), 0)
        self.down_proj = cut(nn.Linear(width, hidden, bias=bias), 1)
        self.gate_proj = cut(nn.Linear(hidden, width, bias=bias), 0) if MODEL["gated"] else None

    def forward(self, x):
        x = enter(x)
        up = self.up_proj(x)
        inner = activation(up) if self.gate_proj is None else activation(self.gate_proj(x)) * up
        return narrow(self.down_proj, inner)


def activation(x):
    kind = MODEL["activation"]
    if kind in ("gelu", "gelu_tanh"):
        return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")
    if kind == "relu2":
        return F.relu(x).square()
    return F.silu(x) if kind == "silu" else F.relu(x)


class Block(nn.Module):
    """Decoder layer with attention and an MLP or experts."""

    def __init__(self, index):
        super().__init__()
        torch.manual_seed(SEED + 1 + index)  # the same weights for any pipeline split
        self.input_norm, self.post_norm = norm(), norm()
        self.attention = Attention()
        self.moe = EXPERTS is not None and index in EXPERTS["layers"]
        self.shared = None
        if not self.moe:
            self.mlp = Mlp(MODEL["ffn"])
            return
        from deepspeed.moe.layer import MoE

        self.mlp = MoE(
            MODEL["hidden"],
            Mlp(EXPERTS["size"]),
            num_experts=EXPERTS["count"],
            ep_size=TOPOLOGY["expert"],
            k=EXPERTS["top_k"],
            drop_tokens=False,
            top2_2nd_expert_sampling=False,
        )
        self.shared = Mlp(EXPERTS["shared_size"]) if EXPERTS["shared_size"] else None

    def forward(self, x):
        return self.run(x)[0]

    def run(self, x):
        """Return the output and the router's auxiliary loss (0 without experts)."""
        x = x + self.attention(self.input_norm(x))
        y = self.post_norm(x)
        if not self.moe:
            return x + self.mlp(y), x.new_zeros(())
        routed, loss, _ = self.mlp(y)
        return x + routed + (self.shared(y) if self.shared is not None else 0), loss


class Embedding(nn.Embedding):
    """Token embedding, plus learned positions if the model has them."""

    def __init__(self):
        torch.manual_seed(SEED)
        super().__init__(MODEL["vocab"], MODEL["hidden"])
        self.learned = MODEL["position"] == "learned"
        if self.learned:
            shape = (MODEL["max_positions"], MODEL["hidden"])
            self.positions = nn.Parameter(0.02 * torch.randn(shape))

    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, tokens):
        x = super().forward(tokens)
        return x + self.positions[own_positions(tokens.shape[1], x.device)] if self.learned else x


class Head(nn.Module):
    """Output projection with its own weights, for untied embeddings."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED - 1)
        self.weight = nn.Parameter(0.02 * torch.randn(MODEL["vocab"], MODEL["hidden"]))

    def forward(self, x):
        return F.linear(x, self.weight)


def logits_of(embedding, x):
    """Return logits computed with the weights of the embedding, for tied embeddings."""
    return F.linear(x, embedding.weight)


def loss_of(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class TransformerModel(nn.Module):
    """Whole model for runs without a pipeline; returns the loss of tokens and labels."""

    _tp_plan = {  # read by AutoTP, which recognizes a model by the name of this class
        **{f"layers.*.attention.{name}": "colwise" for name in ("q_proj", "k_proj", "v_proj")},
        **{f"layers.*.mlp.{name}": "colwise" for name in ("gate_proj", "up_proj")},
        "layers.*.attention.o_proj": "rowwise",
        "layers.*.mlp.down_proj": "rowwise",
    }

    def __init__(self):
        super().__init__()
        self.embedding = Embedding()
        self.layers = nn.ModuleList(Block(index) for index in range(MODEL["layers"]))
        self.final_norm = norm()
        self.head = None if MODEL["tied_embeddings"] else Head()

    def forward(self, tokens, labels):
        x, routing = self.embedding(tokens), 0.0
        for layer in self.layers:
            if PLAN["recompute"]:
                x, loss = deepspeed.checkpointing.checkpoint(layer.run, x)
            else:
                x, loss = layer.run(x)
            routing = routing + loss
        x = self.final_norm(x)
        logits = logits_of(self.embedding, x) if self.head is None else self.head(x)
        return loss_of(logits, labels), routing
