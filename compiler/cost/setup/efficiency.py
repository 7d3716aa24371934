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
    accumulate: float
    """Memory traffic of adding up gradients over its bytes at data-sheet rate."""
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


UNSEEN = Efficiency(1.10, 1.15, 1.2, 1.3, 6e-4, 0.8, 0.75, 3e-5, 0.7, 0.6, 1.0, 0.02, 0.003, 1.0)
"""A class of which no run was published: the centres of the priors that the fits start from."""

CLASSES: dict[str, Efficiency] = {
    # 85 runs of 16 models, mean error 4.7 %.
    "ampere/bigscience": Efficiency(
        1.19,
        1.15,
        1.32,
        1.42,
        0.0006,
        0.896,
        0.411,
        3e-05,
        0.7,
        0.607,
        1.0,
        0.0201,
        0.00403,
        3.16,
        unfused=True,
    ),
    # 101 runs of 6 models, mean error 3.5 %.
    "ampere/fsdp": Efficiency(
        1.08, 1.15, 1.76, 1.29, 0.0006, 0.8, 0.75, 3e-05, 0.701, 0.6, 1.0, 0.0215, 0.00302, 1.0
    ),
    # 3 runs of 3 models, mean error 4.6 %.
    "ampere/jax": Efficiency(
        1.04,
        1.15,
        1.11,
        1.25,
        0.000665,
        0.8,
        0.75,
        3e-05,
        0.699,
        0.6,
        1.0,
        0.0471,
        0.00279,
        1.01,
    ),
    # 809 runs of 7 models, mean error 6.6 %.
    "ampere/unfused": Efficiency(
        1.12,
        1.15,
        0.902,
        1.24,
        0.000779,
        0.806,
        0.748,
        2.98e-05,
        0.7,
        0.604,
        1.0,
        0.0135,
        0.00346,
        1.1,
        unfused=True,
    ),
    # 51 runs of 6 models, mean error 6.5 %.
    "blackwell/megatron": Efficiency(
        1.1,
        1.12,
        1.55,
        1.28,
        0.000608,
        0.983,
        1.06,
        2.94e-05,
        0.736,
        0.637,
        0.882,
        0.0234,
        0.00318,
        0.906,
        experts=1.26,
        routed_seconds=0.00214,
    ),
    # 3 runs of 1 models, mean error 6.2 %.
    "cdna4/megatron": Efficiency(
        1.1, 1.16, 1.21, 1.3, 0.0006, 0.8, 0.75, 3e-05, 0.7, 0.6, 1.0, 0.02, 0.003, 0.999
    ),
    # 60 runs of 6 models, mean error 6.2 %.
    "hopper/fsdp": Efficiency(
        1.21, 1.17, 3.41, 1.38, 0.0006, 0.828, 0.749, 3e-05, 0.692, 0.6, 1.0, 0.023, 0.00364, 1.0
    ),
    # 41 runs of 5 models, mean error 7.9 %.
    "hopper/jax": Efficiency(
        1.22,
        1.12,
        1.35,
        1.48,
        0.000469,
        0.8,
        0.565,
        3.02e-05,
        0.503,
        0.6,
        1.0,
        0.0261,
        0.00318,
        0.995,
    ),
    # 118 runs of 13 models, mean error 4.9 %.
    "hopper/megatron": Efficiency(
        1.11,
        0.975,
        1.72,
        1.43,
        0.000701,
        0.562,
        0.883,
        3.11e-05,
        1.0,
        0.605,
        1.11,
        0.106,
        0.00297,
        1.42,
        experts=1.44,
        routed_seconds=0.00157,
    ),
    # 19 runs of 2 models, mean error 13.5 %.
    "hopper/nanotron": Efficiency(
        1.14,
        1.15,
        1.31,
        1.39,
        0.000568,
        1.02,
        0.695,
        3.02e-05,
        0.681,
        0.599,
        1.0,
        0.0721,
        0.00322,
        1.03,
    ),
    # 4 runs of 4 models, mean error 4.9 %.
    "volta/unfused": Efficiency(
        1.07,
        1.15,
        0.945,
        1.3,
        0.0006,
        1.03,
        0.75,
        3e-05,
        0.7,
        0.6,
        1.0,
        0.0186,
        0.003,
        0.96,
        unfused=True,
    ),
}
"""``generation/stack`` -> its row. Stacks: megatron (TransformerEngine, from 2023 on), unfused
(Megatron before FlashAttention), bigscience (its own fork of it), fsdp (of torch), nanotron, jax.
Fitted by ``make accuracy`` on published runs; a parameter that the runs of a class cannot tell
stays at its prior, whose centres are those of UNSEEN."""

BORROWED: dict[str, Efficiency] = {
    "ampere/megatron": replace(
        CLASSES["ampere/unfused"], attention=CLASSES["ampere/fsdp"].attention, unfused=False
    ),
}
"""Classes without a published run, put together from those of the same GPUs: the machine as older
Megatron has used it, with the fused attention core of today."""


def efficiency(hardware: str) -> Efficiency:
    """The row of a class; of another GPU generation under the same stack where it has none."""
    generation, _, stack = hardware.partition("/")
    for known in (generation, *LIKE.get(generation, ())):
        row = CLASSES.get(f"{known}/{stack}") or BORROWED.get(f"{known}/{stack}")
        if row is not None:
            return row
    return replace(UNSEEN, unfused=stack in ("unfused", "bigscience"))


LIKE = {
    "volta": ("ampere",),
    "ada": ("hopper",),
    "cdna2": ("cdna4",),
    "cdna3": ("cdna4",),
    "blackwell": ("hopper",),
    "hopper": ("ampere",),
}
"""Generation -> those whose training runs stand for its own, nearest first."""
