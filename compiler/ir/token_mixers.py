"""Dimensions of token mixers: softmax attention, linear attention, Mamba and convolutions."""

from __future__ import annotations

from typing import Literal

from parc.compiler.ir.frozen import frozen

RecurrentMixer = Literal["linear", "mamba", "convolution"]
"""Token mixer with a state: linear attention, Mamba (a state space model) or a short causal
convolution."""
Mixer = Literal["attention", "parallel", "none"] | RecurrentMixer
"""Token mixer: softmax attention, a recurrent mixer, both next to each other, or none."""


@frozen
class LatentAttention:
    """Dimensions of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)."""

    q_lora_rank: int | None
    """LoRA rank of the query projection; None if the projection has full rank."""
    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@frozen
class Indexer:
    """Indexer of sparse attention, which scores all earlier tokens with small heads of its own.

    Each query then attends only to the ``top_k`` keys with the highest scores (DeepSeek-V3.2).
    """

    heads: int
    head_dim: int
    """Width of an index query; the index keys have a single head of this width."""
    top_k: int
    head_weights: bool = True
    """True if each token has a weight per head, from a projection of its own."""
    shared: bool = False
    """True if the layer uses the keys that an earlier layer selected, and has no indexer."""


@frozen
class LowRank:
    """Low-rank projections of grouped-query attention (DeepSeek-V4)."""

    queries: int
    """Rank of the query projection, whose two parts have a norm between them."""
    output: int
    """Rank of the output projection per group of heads."""
    output_groups: int
    """Number of groups of heads that are projected to ``output`` elements each. A second product
    joins all groups."""


@frozen
class Compression:
    """Compressed keys and values in addition to those of the sliding window (DeepSeek-V4)."""

    rate: int
    """Number of tokens per compressed entry."""
    overlap: bool
    """True if an entry also depends on the tokens of the entry before it, so that the projections
    have twice the width."""

    def parameters(self, hidden: int, width: int, norm: int) -> int:
        """Return the number of parameters that compress vectors of ``width`` elements.

        They are the projections to the vectors and to their weights, a bias for each token of an
        entry, and a norm with ``norm`` parameters (transformers 5.23, modeling_deepseek_v4.py).
        """
        wide = width * (2 if self.overlap else 1)
        return 2 * hidden * wide + self.rate * wide + norm


@frozen
class Attention:
    """Dimensions of softmax attention, either grouped-query or latent.

    If ``latent`` is set, its projections replace those of grouped-query attention.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    qk_norm: Literal["none", "head", "full"]
    """Normalization of queries and keys: none, per head with head_dim weights (Qwen3), or over all
    heads together (full)."""
    window: int | None
    """Sliding-window length in tokens; None = full causal attention."""
    latent: LatentAttention | None
    sinks: bool
    """True if each head has a learned sink logit (gpt-oss)."""
    full_attention_every: int
    """Distance n between layers that ignore ``window`` and attend to the full context: layers n,
    2n, ... (Gemma 2: n = 2, Gemma 3: n = 6); 0 if no layer does."""
    gate: bool
    """True if a sigmoid gate scales the attention output; the gate has a projection as wide as the
    queries (Qwen3-Next)."""
    value_dim: int = 0
    """Head dim of values if it differs from ``head_dim`` (MiMo-V2-Flash); otherwise 0."""
    chunked: bool = False
    """True if ``window`` is the length of chunks, so that queries attend only to keys of their own
    chunk (Llama 4)."""
    indexer: Indexer | None = None
    """Indexer that selects the keys of each query; None = all visible keys."""
    head_gate: bool = False
    """True if a sigmoid gate with one number per head scales the attention output (Step 3.5)."""
    shared_kv: bool = False
    """True if the layer attends to the keys and values of an earlier layer, so that it has neither
    projections nor a cache for them (Gemma 3n)."""
    keys_as_values: bool = False
    """True if values are the projected keys, before norm and rotation, so that values have no
    projection (Gemma 4). The cache stores both."""
    joint_kv: bool = False
    """True if the same vectors are keys and values, so that one projection computes them and the
    cache stores them once (DeepSeek-V4)."""
    low_rank: LowRank | None = None
    """Low-rank projections of queries and outputs; None = projections of full rank."""
    compression: Compression | None = None
    """Compressed keys and values, to which all queries attend in addition to those of ``window``;
    None = the keys and values of tokens only."""

    @property
    def value_width(self) -> int:
        """Head dim of values in grouped-query attention."""
        return self.value_dim or self.head_dim

    @property
    def key_value_projection_width(self) -> int:
        """Total output width of the key and value projections of grouped-query attention."""
        if self.shared_kv:
            return 0
        values = 0 if self.keys_as_values or self.joint_kv else self.value_width
        return self.kv_heads * (self.head_dim + values)

    @property
    def cached_width(self) -> int:
        """Number of elements that the cache stores per key-value head and token."""
        return self.head_dim + (0 if self.joint_kv else self.value_width)

    @property
    def slides(self) -> bool:
        """True if the cache stores only the tokens of a window."""
        return self.window is not None and self.compression is None

    @property
    def query_projection_heads(self) -> int:
        """Number of heads in the output of the query projection.

        This is the number of query heads, doubled if the projection also computes a gate.
        """
        return (2 if self.gate else 1) * self.heads

    def can_exchange_heads(self, ranks: int, tp: int) -> bool:
        """Return True if ``ranks`` ranks can exchange attention heads for tokens (Ulysses).

        On each of the ``tp`` tensor-parallel ranks, the number of query heads and the number of
        key-value heads must both be divisible by ``ranks``.
        """
        # With fewer key-value heads than tp ranks, every rank has a copy of one head, hence max().
        own = (self.heads // tp, max(self.kv_heads // tp, 1))
        return not any(heads % ranks for heads in own)


LinearKind = Literal["gated-delta-net", "kimi-delta", "lightning"]
"""Kind of linear attention: Gated DeltaNet (arXiv:2412.06464), Kimi Delta Attention, whose decay is
per channel (arXiv:2510.26692), or lightning attention, whose decay is fixed (arXiv:2501.08313)."""


@frozen
class LinearAttention:
    """Dimensions of linear attention, whose state is one matrix per head.

    Every ``full_attention_every``-th layer has softmax attention instead.
    """

    key_heads: int
    """Number of key heads, which is also the number of query heads. Several value heads share one
    key head and one query head."""
    value_heads: int
    key_dim: int
    value_dim: int
    conv_size: int
    """Width of the causal convolution over queries, keys and values; ``lightning`` has none."""
    full_attention_every: int
    """Distance n between layers with softmax attention: layers n, 2n, ... (Qwen3-Next: n = 4); 1 if
    layer variants list the layers with linear attention."""
    kind: LinearKind = "gated-delta-net"
    full_rank_gates: bool = False
    """True if decay and gate of Kimi Delta Attention have projections of full rank (Ling)
    instead of rank head dim."""

    @property
    def key_width(self) -> int:
        """Total width of all query heads; the total width of all key heads is the same."""
        return self.key_heads * self.key_dim

    @property
    def inner_width(self) -> int:
        """Total width of all value heads, which is also the width of the gate."""
        return self.value_heads * self.value_dim

    @property
    def input_projection_width(self) -> int:
        """Output width of the input projection of linear attention.

        All kinds project queries, keys and values. Gated DeltaNet adds the gate, and decay and
        update rate per value head; Kimi Delta Attention adds the update rate and the inputs of two
        projections, for decay and gate; lightning attention adds the gate.
        """
        inputs = 2 * self.key_width + self.inner_width
        if self.kind == "kimi-delta":
            wide = self.key_width + self.inner_width
            ranks = wide if self.full_rank_gates else self.key_dim + self.value_dim
            return inputs + self.value_heads + ranks
        heads = 2 * self.value_heads if self.kind == "gated-delta-net" else 0
        return inputs + self.inner_width + heads

    @property
    def gate_weights(self) -> int:
        """Number of weights that expand decay and gate from rank head dim to all heads."""
        if self.kind != "kimi-delta" or self.full_rank_gates:
            return 0
        return self.key_dim * self.key_width + self.value_dim * self.inner_width

    @property
    def decay_parameters(self) -> int:
        """Number of trained parameters of the decay: per head, and per head or per channel."""
        per_channel = {"gated-delta-net": self.value_heads, "kimi-delta": self.key_width}
        return self.value_heads + per_channel[self.kind] if self.kind in per_channel else 0

    @property
    def norm_width(self) -> int:
        """Width of the norm of the outputs: one head, or all heads together (lightning)."""
        return self.inner_width if self.kind == "lightning" else self.value_dim

    @property
    def conv_channels(self) -> int:
        """Number of channels of the causal convolution: the widths of queries, keys and values."""
        return 0 if self.kind == "lightning" else 2 * self.key_width + self.inner_width


@frozen
class Mamba:
    """Dimensions of a Mamba layer, a state space model: Mamba-2 (arXiv:2405.21060) or Mamba-1.

    Mamba-1 (arXiv:2312.00752) has one head per channel, and computes B, C and the step sizes from
    the output of the convolution.
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    """Number of groups of heads; the heads of a group share the input matrix B and the output
    matrix C of the state."""
    conv_size: int
    step_rank: int = 0
    """Rank of the projection to the step sizes of Mamba-1; 0 = Mamba-2."""
    norm: bool = True
    """True if a norm follows the scan of Mamba-2."""

    @property
    def inner_width(self) -> int:
        """Inner width of the Mamba layer: heads x head_dim."""
        return self.heads * self.head_dim

    @property
    def matrices_width(self) -> int:
        """Total width of B and C of one group in the input of the convolution; 0 for Mamba-1."""
        return 0 if self.step_rank else 2 * self.state_size

    @property
    def conv_channels(self) -> int:
        """Number of channels of the convolution: the inner width, plus B and C of all groups."""
        return self.inner_width + self.groups * self.matrices_width

    @property
    def input_projection_width(self) -> int:
        """Output width of the input projection of a Mamba layer.

        The projection computes the input of the convolution and the gate. That of Mamba-2 also
        computes one step size per head.
        """
        steps = 0 if self.step_rank else self.heads
        return self.conv_channels + self.inner_width + steps

    @property
    def step_projections(self) -> tuple[tuple[int, int], ...]:
        """Shapes (outputs, inputs) of the projections after the convolution; empty for Mamba-2.

        The first one computes B, C and the input of the second one, which computes step sizes.
        """
        rank = self.step_rank
        first, second = (rank + 2 * self.state_size, self.inner_width), (self.inner_width, rank)
        return (first, second) if rank else ()

    @property
    def small_parameters(self) -> int:
        """Number of parameters outside projections and convolution.

        They are the decay, the skip weight and the bias of the step size per head, and the weights
        of the norm. The decay of Mamba-1 has one number per state.
        """
        decays = self.state_size if self.step_rank else 1
        norm = self.inner_width if self.norm and not self.step_rank else 0
        return (decays + 2) * self.heads + norm


@frozen
class Convolution:
    """Dimensions of a short causal convolution between two gates (LFM2, arXiv:2511.23404).

    The input projection computes two gates and the input of the convolution, which has one kernel
    per channel of the hidden size.
    """

    conv_size: int
    """Kernel width in tokens."""
    width: int
    """Number of channels: the hidden size of the model."""
    bias: bool
    """True if the projections and the convolution have biases."""

    @property
    def inner_width(self) -> int:
        """Input width of the output projection."""
        return self.width

    @property
    def conv_channels(self) -> int:
        """Number of channels of the convolution."""
        return self.width

    @property
    def input_projection_width(self) -> int:
        """Output width of the input projection: two gates and the input of the convolution."""
        return 3 * self.width
