"""Every term of an estimate: its formula in words, and where the formula is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One term; ``name`` is the field of the estimate that holds it."""

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
            "2 x parameters on the rank; fp32 and divided over the shards with FSDP2",
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
            "12 x (dense / (dp cp) + experts / edp); undivided at zero_stage 0; fp16: 16",
            _MEGATRON,
        ),
        Term(
            "activations_bytes",
            "bytes",
            "activations",
            "stored bytes of all layers x micro-batches in flight, plus what one layer recomputes "
            "and its gradients where that exceeds the loss",
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
            "0.2 GB x axes with more than one rank",
            "published NCCL breakdowns: 0.3 to 0.5 GB for two or three communicators",
        ),
        Term(
            "framework_bytes",
            "bytes",
            "framework",
            "context of the driver: 0.45 GB Volta, 0.55 Ampere, 0.7 Hopper, 0.8 Blackwell",
            "published breakdowns: 0.4 to 0.8 GB",
        ),
        Term(
            "fragmentation_bytes",
            "bytes",
            "fragmentation",
            "5 % of activations and logits; FSDP2 and DeepSpeed: 8 %",
            "8: fitted on 85 readings; published: 5 to 10 % without expandable segments",
        ),
        Term(
            "casts_bytes",
            "bytes",
            "weights in fewer bits",
            "fp8: 2 x weights of linear layers on Hopper and Ada, 1 on Blackwell; mxfp8: 2.06; "
            "nvfp4: 1.13; DDP under autocast: 2",
            "TransformerEngine caches quantised weights over the micro-batches of a step; autograd "
            "saves the casts of autocast",
        ),
        Term(
            "gathered_bytes",
            "bytes",
            "gathered weights",
            "ZeRO-3: two layers in 16 bit, or one and the embedding",
            "Rajbhandari et al. 2020, arXiv:1910.02054; PyTorch FSDP2 prefetches one layer",
        ),
        Term(
            "workspace_bytes",
            "bytes",
            "workspaces",
            "matrix libraries: 96 MiB (20 before Hopper), with experts 128 (16) more; a 16-bit "
            "gradient of every distinct weight shape; pp > 1: 2 v stage inputs; with sequence "
            "parallelism, beside the loss: 2 T hidden",
            "Megatron-LM functional-test records: allocated bytes beside the parameters",
        ),
        Term(
            "compute_seconds",
            "seconds",
            "compute",
            "micro-batches x forward and backward of the slowest stage: every GEMM and the "
            "attention core by shape, plus streamed bytes / bandwidth, with those of adding up "
            "gradients; not under the launch floor",
            "Kernel fits: docs/kernel-fits.md; factors: parc/compiler/cost/efficiency.py",
        ),
        Term(
            "recompute_seconds",
            "seconds",
            "recompute",
            "micro-batches x forward work that the backward pass repeats",
            _KORTHIKANTI,
        ),
        Term(
            "tp_seconds",
            "seconds",
            "tensor parallelism",
            "a gather and a scatter of 2 T h around attention and MLP (MLP not where routed), "
            "backward 1.5 times more of which half is hidden, without sequence parallelism as "
            "much and all, not more than the weight gradients take; times the class factor",
            _KORTHIKANTI,
        ),
        Term(
            "cp_seconds",
            "seconds",
            "context parallelism",
            "ring: (c-1) x keys and values, forward and twice backward, less the attention core; "
            "gather: keys and values of all; a2a: Q, K, V and O both ways; a2a+p2p: the last among "
            "neighbours, a ring over c / neighbours",
            "Ring attention, arXiv:2310.01889; Llama 3, 2407.21783; Ulysses, 2309.14509",
        ),
        Term(
            "ep_seconds",
            "seconds",
            "expert parallelism",
            "4 x 2 (T/t) h a routed layer, k copies, or with deepep and hybridep one a domain, "
            "split between NVLink and network; moe_overlap hides up to 45 %",
            "Megatron-Core dispatchers alltoall and flex; deepseek-ai/DeepEP",
        ),
        Term(
            "pp_seconds",
            "seconds",
            "pipeline point-to-point",
            "hop x 2 (n - ceil(n / p)), n = m + p - 1; interleaved: hop x 2 (p v - 1); times the "
            "class factor",
            "Simulated schedules: parc/compiler/cost/schedule_formulas.py",
        ),
        Term(
            "bubble_seconds",
            "seconds",
            "pipeline bubble",
            "(sum of stage times - slowest stage) / v",
            "Narayanan et al. 2021, section 2.2, for unequal stages",
        ),
        Term(
            "dp_seconds",
            "seconds",
            "data parallelism",
            "T: reduce-scatter of 4 B gradients, all-gather of 2 B parameters; beside w, a share "
            "of one micro-batch: (T^3 + w^3)^(1/3) - w, at least 5 %; ZeRO-3: two gathers and a "
            "scatter a micro-batch",
            "Megatron-LM overlap-grad-reduce and overlap-param-gather; FSDP, arXiv:2304.11277",
        ),
        Term(
            "optimizer_seconds",
            "seconds",
            "optimizer step",
            "40 B x parameters of the shard / memory bandwidth, and a fixed time a step",
            "Adam: reads and writes of three fp32 states, gradient and 16-bit copy",
        ),
    )
}
"""name -> term; the names are fields of StageMemory and StepTime."""
