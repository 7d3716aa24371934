"""Terms of a training estimate: formula in words, and the source of the formula."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """Term of an estimate; ``name`` is its field in ``StageMemory`` or ``StepTime``."""

    name: str
    unit: str
    title: str
    formula: str
    source: str


_MEGATRON = "Megatron-LM docs, dist_optimizer.md; checked against its DDP buffers"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, with flash attention"

TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            "weights_bytes",
            "bytes",
            "weights",
            "2 x parameters of the rank; with FSDP2 4 x, divided by the shards",
            _MEGATRON,
        ),
        Term(
            "gradients_bytes",
            "bytes",
            "gradients",
            "4 x parameters (fp32 accumulation); fp16: 2",
            _MEGATRON,
        ),
        Term(
            "optimizer_bytes",
            "bytes",
            "optimizer state",
            "12 x (dense / (dp cp) + experts / edp); not divided at zero_stage 0; fp16: 16",
            _MEGATRON,
        ),
        Term(
            "activations_bytes",
            "bytes",
            "activations",
            "saved bytes of all layers x micro-batches in flight, plus the recomputed bytes and "
            "gradients of one layer if they exceed the loss",
            _KORTHIKANTI,
        ),
        Term(
            "logits_bytes",
            "bytes",
            "logits and loss",
            "tokens x (6 padded vocab + 4 hidden) / tp, on the last stage; each prediction layer "
            "adds 4 and 4",
            "Megatron-LM, vocab_parallel_cross_entropy: 16-bit logits and fp32 softmax",
        ),
        Term(
            "communication_bytes",
            "bytes",
            "communicator buffers",
            "0.2 GB x number of axes with more than one rank",
            "published NCCL breakdowns: 0.3 to 0.5 GB for two or three communicators",
        ),
        Term(
            "framework_bytes",
            "bytes",
            "framework",
            "driver context: 0.45 GB on Volta, 0.55 on Ampere, 0.7 on Hopper, 0.8 on others",
            "published breakdowns: 0.4 to 0.8 GB",
        ),
        Term(
            "fragmentation_bytes",
            "bytes",
            "fragmentation",
            "5 % of activations and logits; FSDP2 and DeepSpeed: 8 %",
            "8 %: fitted to 85 readings; published: 5 to 10 % without expandable segments",
        ),
        Term(
            "casts_bytes",
            "bytes",
            "low-precision weights",
            "fp8: 2 x weights of linear layers on Hopper and Ada, 1 on Blackwell; mxfp8: 2.06; "
            "nvfp4: 1.13; DDP under autocast: 2",
            "TransformerEngine caches quantised weights for all micro-batches of a step; autograd "
            "saves the casts of autocast",
        ),
        Term(
            "gathered_bytes",
            "bytes",
            "gathered weights",
            "ZeRO-3: two layers in 16 bit, or one layer and the embedding",
            "Rajbhandari et al. 2020, arXiv:1910.02054; PyTorch FSDP2 prefetches one layer",
        ),
        Term(
            "workspace_bytes",
            "bytes",
            "workspaces",
            "matrix libraries: 96 MiB (20 before Hopper), with experts 128 (16) more; a 16-bit "
            "gradient per distinct weight shape; pp > 1: 2 v stage inputs; with sequence "
            "parallelism 2 T hidden on the stage of the loss",
            "Megatron-LM functional-test records: allocated bytes without the parameters",
        ),
        Term(
            "compute_seconds",
            "seconds",
            "compute",
            "micro-batches x forward and backward pass of the slowest stage: GEMMs and attention "
            "core by shape, plus streamed bytes / bandwidth, also of gradient accumulation; at "
            "least the host's launch time",
            "Kernel fits: docs/kernel-fits.md; factors: parc/compiler/catalog/generations",
        ),
        Term(
            "recompute_seconds",
            "seconds",
            "recompute",
            "micro-batches x forward computation that the backward pass repeats",
            _KORTHIKANTI,
        ),
        Term(
            "tp_seconds",
            "seconds",
            "tensor parallelism",
            "a gather and a scatter of 2 T h around attention and dense MLP; backward one more "
            "gather, half of it overlapped with weight gradients; without sequence parallelism an "
            "all-reduce each, overlapped in the backward pass; times the class factor",
            _KORTHIKANTI,
        ),
        Term(
            "cp_seconds",
            "seconds",
            "context parallelism",
            "ring: (c-1) x keys and values, once forward and twice backward, minus the attention "
            "core; gather: all keys and values; a2a: Q, K, V and O in both directions; a2a+p2p: "
            "a2a among neighbours and a ring over c / neighbours",
            "Ring attention, arXiv:2310.01889; Llama 3, 2407.21783; Ulysses, 2309.14509",
        ),
        Term(
            "ep_seconds",
            "seconds",
            "expert parallelism",
            "4 x 2 (T/t) h per routed layer, k copies, or with deepep and hybridep one per domain, "
            "split between NVLink and network; moe_overlap hides up to 45 %",
            "Megatron-Core dispatchers alltoall and flex; deepseek-ai/DeepEP",
        ),
        Term(
            "pp_seconds",
            "seconds",
            "pipeline point-to-point",
            "hop x 2 (n - ceil(n / p)), n = m + p - 1; interleaved: hop x 2 (p v - 1); times the "
            "class factor",
            "Simulated schedules: parc/compiler/cost/schedules/formulas.py",
        ),
        Term(
            "bubble_seconds",
            "seconds",
            "pipeline bubble",
            "(sum of stage times - slowest stage) / v",
            "Narayanan et al. 2021, section 2.2, generalized to unequal stages",
        ),
        Term(
            "dp_seconds",
            "seconds",
            "data parallelism",
            "T: reduce-scatter of 4 B gradients and all-gather of 2 B parameters; exposed next to "
            "w, a share of one micro-batch: (T^3 + w^3)^(1/3) - w, at least 5 %; ZeRO-3: two "
            "gathers and a scatter per micro-batch",
            "Megatron-LM overlap-grad-reduce and overlap-param-gather; FSDP, arXiv:2304.11277",
        ),
        Term(
            "optimizer_seconds",
            "seconds",
            "optimizer step",
            "40 B x parameters of the shard / memory bandwidth, plus a fixed time per step",
            "Adam reads and writes three fp32 states, the gradient and a 16-bit copy",
        ),
    )
}
"""Field of ``StageMemory`` or ``StepTime`` -> its term."""
