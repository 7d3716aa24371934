"""What a training step gets out of the hardware, beside what its kernels take alone.

Kernels and collectives have fits of their own, from timings of single kernels (``gemm``,
``attention``, ``collectives``). These numbers carry the difference between such a timing and a
whole step: casts and gaps between kernels, overlap, shared NICs. One row a hardware class; every
row was fitted to published training runs by ``make accuracy`` and says how many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Efficiency:
    """One hardware class. Factors on kernel times are 1 where a step equals the single kernel."""

    gemm: float
    """16-bit matrix multiplications of a step over those of single kernels: gaps, clocks."""
    gemm_low: float
    """The same in 8 and 4 bit, with the casts."""
    attention: float
    """Attention core of a step over the fitted forward kernel."""
    stream: float
    """Memory traffic of norms, activations and residuals over its bytes at data-sheet rate."""
    layer_seconds: float
    """Host launch of one layer's forward; a floor under its time."""
    tp: float
    """Tensor-parallel collectives that are exposed, over their time alone."""
    network: float
    """Share of the NIC rate that large messages between hosts get."""
    hop_seconds: float
    """Latency of one hop between hosts, launch included."""
    dp_overlap: float
    """Share of a micro-batch that gradient and parameter traffic can hide behind."""
    pp: float
    """Pipeline messages that are exposed, over their time alone."""
    ep: float
    """Expert all-to-all that is exposed, over its time alone."""
    step_seconds: float
    """Once a step: optimizer launch, logging, data."""
    straggler: float
    """Growth of the step with every doubling of hosts."""
    experts: float = 1.3
    """Multiplications of routed experts in a step over one kernel of all their rows."""
    routed_seconds: float = 2e-3
    """Host launch of one routed layer's forward in 16 bit; a floor under its time."""
    unfused: bool = False
    """Attention scores go through memory: frameworks from before FlashAttention."""
    fused_routing: bool = True
    """Permutation of routed tokens is one kernel (--moe-permute-fusion, without token dropping)."""
    fused_experts: bool = False
    """Both multiplications of the experts, activation and casts are one kernel."""


UNSEEN = Efficiency(1.10, 1.15, 1.2, 1.3, 3e-4, 0.8, 0.75, 3e-5, 0.7, 0.6, 1.0, 0.02, 0.003)
"""A class of which no run was published: the centres of the priors that the fits start from."""

CLASSES: dict[str, Efficiency] = {
    # 85 runs of 16 models, mean error 9.4 %.
    "ampere/bigscience": Efficiency(
        1.25,
        1.15,
        1.4,
        1.41,
        0.0003,
        0.948,
        0.778,
        3e-05,
        0.723,
        0.513,
        1.0,
        0.02,
        0.00274,
        unfused=True,
    ),
    # 101 runs of 6 models, mean error 3.5 %.
    "ampere/fsdp": Efficiency(
        1.08, 1.15, 1.76, 1.29, 0.0003, 0.8, 0.75, 3e-05, 0.7, 0.6, 1.0, 0.0215, 0.00302
    ),
    # 3 runs of 3 models, mean error 5.2 %.
    "ampere/jax": Efficiency(
        1.11, 1.15, 1.32, 1.4, 0.000301, 0.8, 0.749, 3e-05, 0.7, 0.6, 1.0, 0.0407, 0.00324
    ),
    # 7 runs of 1 models, mean error 14.6 %.
    "ampere/megatron": Efficiency(
        1.27, 1.15, 1.38, 1.42, 0.0003, 0.8, 0.749, 3e-05, 0.7, 0.6, 1.0, 0.0211, 0.00371
    ),
    # 82 runs of 6 models, mean error 9.5 %.
    "ampere/unfused": Efficiency(
        1.09,
        1.15,
        0.865,
        1.28,
        0.000309,
        1.17,
        0.673,
        3.36e-05,
        0.68,
        0.535,
        1.0,
        0.0183,
        0.0032,
        unfused=True,
    ),
    # 51 runs of 6 models, mean error 6.4 %.
    "blackwell/megatron": Efficiency(
        1.11,
        1.11,
        1.6,
        1.27,
        0.0003,
        0.889,
        0.959,
        2.91e-05,
        0.627,
        0.624,
        0.858,
        0.0326,
        0.00319,
        experts=1.24,
        routed_seconds=0.00208,
    ),
    # 3 runs of 1 models, mean error 6.0 %.
    "cdna4/megatron": Efficiency(
        1.1, 1.16, 1.22, 1.31, 0.0003, 0.8, 0.75, 3e-05, 0.7, 0.6, 1.0, 0.0202, 0.003
    ),
    # 60 runs of 6 models, mean error 6.6 %.
    "hopper/fsdp": Efficiency(
        1.22, 1.17, 3.47, 1.42, 0.0003, 0.804, 0.749, 3e-05, 0.7, 0.6, 1.0, 0.0242, 0.0037
    ),
    # 41 runs of 5 models, mean error 16.5 %.
    "hopper/jax": Efficiency(
        1.23, 1.26, 1.4, 1.88, 0.000281, 0.8, 0.746, 3e-05, 0.7, 0.6, 1.0, 0.0243, 0.00526
    ),
    # 118 runs of 13 models, mean error 5.8 %.
    "hopper/megatron": Efficiency(
        1.15,
        1.14,
        1.6,
        1.42,
        0.00031,
        0.555,
        0.806,
        3.06e-05,
        0.737,
        0.601,
        1.02,
        0.105,
        0.00457,
        experts=1.43,
        routed_seconds=0.00166,
    ),
    # 19 runs of 2 models, mean error 13.6 %.
    "hopper/nanotron": Efficiency(
        1.14, 1.15, 1.28, 1.31, 0.0003, 1.4, 0.747, 3.15e-05, 0.7, 0.608, 1.0, 0.107, 0.00312
    ),
    # 4 runs of 4 models, mean error 4.7 %.
    "volta/unfused": Efficiency(
        1.06,
        1.15,
        0.906,
        1.27,
        0.0003,
        1.03,
        0.75,
        3e-05,
        0.7,
        0.6,
        1.0,
        0.0182,
        0.003,
        unfused=True,
    ),
}
"""``generation/stack`` -> its row. Stacks: megatron (TransformerEngine, from 2023 on), unfused
(Megatron before FlashAttention), bigscience (its own fork of it), fsdp (of torch), nanotron, jax.
Fitted by ``make accuracy`` on published runs; a parameter that the runs of a class cannot tell
stays at its prior, whose centres are those of UNSEEN."""


def efficiency(hardware: str) -> Efficiency:
    """The row of a class; of another GPU generation under the same stack where it has none."""
    generation, _, stack = hardware.partition("/")
    for known in (generation, *LIKE.get(generation, ())):
        row = CLASSES.get(f"{known}/{stack}")
        if row is not None:
            return row
    return replace(UNSEEN, unfused=stack in ("unfused", "bigscience"))


LIKE = {
    "ada": ("hopper",),
    "cdna2": ("cdna4",),
    "cdna3": ("cdna4",),
    "blackwell": ("hopper",),
    "hopper": ("ampere",),
}
"""Generation -> those whose training runs stand for its own, nearest first."""
