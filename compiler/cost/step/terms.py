"""Terms of a training estimate: unit, formula in words, and source of the formula.

The table is printed by ``parc explain TERM``, the report and docs/cost-model/.
"""

from __future__ import annotations

from parc.compiler.ir.frozen import frozen


@frozen
class EstimateTerm:
    """Term of an estimate; ``name`` is its field in ``StageMemory`` or ``StepTime``."""

    name: str
    unit: str
    title: str
    formula: str
    source: str
    variants: str = ""
    """How properties of a software stack change the formula (``Efficiency``); most stacks have
    none of them."""


_MEGATRON = "Megatron-LM docs, dist_optimizer.md; checked against its DDP buffers"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, with flash attention"

TERMS: dict[str, EstimateTerm] = {
    term.name: term
    for term in (
        EstimateTerm(
            "weights_bytes",
            "bytes",
            "weights",
            "2 bytes x parameters per rank; FSDP2: 4 bytes, divided by the number of shards",
            _MEGATRON,
        ),
        EstimateTerm(
            "gradients_bytes",
            "bytes",
            "gradients",
            "4 bytes x parameters per rank (fp32 accumulation); in fp16: 2 bytes",
            _MEGATRON,
        ),
        EstimateTerm(
            "optimizer_bytes",
            "bytes",
            "optimizer state",
            "12 bytes x (dense parameters / (dp x cp) + expert parameters / edp); not divided at "
            "zero_stage 0",
            _MEGATRON,
        ),
        EstimateTerm(
            "activations_bytes",
            "bytes",
            "activations",
            "bytes saved by all layers x micro-batches in flight, plus the recomputed activations "
            "and gradients of one layer as far as they exceed logits and loss",
            _KORTHIKANTI,
        ),
        EstimateTerm(
            "logits_bytes",
            "bytes",
            "logits and loss",
            "tokens x (6 x padded vocabulary + 4 x hidden size) / tp, on the stage of the loss; "
            "each prediction layer adds tokens x 4 x (padded vocabulary + hidden size) / tp",
            "Megatron-LM, vocab_parallel_cross_entropy: 16-bit logits and fp32 softmax",
        ),
        EstimateTerm(
            "communication_bytes",
            "bytes",
            "communicator buffers",
            "2 x 0.56 GiB x number of mesh axes with more than one rank (2 x 0.09 GiB with PCIe "
            "only); 0.44 GiB per NVLink peer of the all-to-all between experts, for at most 7 "
            "peers",
            "NVIDIA/nccl, issues 964 and 1685: measured on A100 and H100",
        ),
        EstimateTerm(
            "framework_bytes",
            "bytes",
            "driver context",
            "0.42 GiB on Volta, 0.51 on Ampere, 0.65 on Hopper, 0.75 on other generations",
            "assumed: parc/compiler/catalog/generations",
        ),
        EstimateTerm(
            "fragmentation_bytes",
            "bytes",
            "fragmentation",
            "5 to 14 % of activations and logits; Megatron: 5 % of state too; FSDP2: also two "
            "units in 16 bits",
            "published pairs of reserved and allocated bytes, runs of emitted programs",
        ),
        EstimateTerm(
            "casts_bytes",
            "bytes",
            "low-precision weights",
            "bytes per weight of linear layers: 2 in fp8 on Hopper and Ada, 1 in fp8 on Blackwell, "
            "2.06 in mxfp8, 1.13 in nvfp4, 2 with DDP under autocast",
            "TransformerEngine caches quantized weights for all micro-batches of a step; autograd "
            "saves the casts of autocast",
        ),
        EstimateTerm(
            "gathered_bytes",
            "bytes",
            "gathered weights",
            "at ZeRO stage 3: two layers in 16 bit, or one layer and the embedding if that is "
            "more; with gtp: one weight and its gradient per distinct shape; with egtp: "
            "the weights of the experts of two layers and the gradients of one",
            "Rajbhandari et al. 2020, arXiv:1910.02054; PyTorch FSDP2 prefetches one layer",
        ),
        EstimateTerm(
            "workspace_bytes",
            "bytes",
            "workspaces",
            "matrix libraries: 96 MiB (20 before Hopper), with experts 128 MiB (16) more; one "
            "16-bit gradient per distinct weight shape; with pp > 1, inputs and output gradients "
            "of all virtual stages; with sequence parallelism, the gathered hidden states on the "
            "stage of the loss",
            "Megatron-LM functional-test records: allocated bytes without the parameters",
        ),
        EstimateTerm(
            "compute_seconds",
            "seconds",
            "compute",
            "micro-batches x forward and backward pass of the slowest stage: GEMMs and attention "
            "core by shape (experts: one GEMM per expert; GEMMs of weight gradients add to the sum "
            "of the step), plus traffic of element-wise kernels and routed rows / memory "
            "bandwidth; at least the launch time of the host, which depends on the experts per "
            "rank; job.moe_imbalance multiplies the rows of experts",
            "Kernel fits: docs/kernel-fits.md; factors: parc/compiler/catalog/generations",
            "blocking_launches: the times of host and device add up; unfused, flash_attention_2, "
            "fused_routing, fused_experts and separate_sums: times of other kernels",
        ),
        EstimateTerm(
            "recompute_seconds",
            "seconds",
            "recompute",
            "micro-batches x forward computation that the backward pass repeats",
            _KORTHIKANTI,
            "blocking_launches, unfused, flash_attention_2, fused_routing and fused_experts: as "
            "for compute_seconds",
        ),
        EstimateTerm(
            "tp_seconds",
            "seconds",
            "tensor parallelism",
            "an all-gather and a reduce-scatter of hidden states around attention and around a "
            "dense MLP (16 bit; in low precision, quantized states are gathered); the backward "
            "pass has one more all-gather, and at most half of its collectives overlap with "
            "weight gradients; without sequence parallelism one all-reduce each, which overlaps "
            "in the backward pass; times the factor tp of the hardware class, half of it with "
            "job.tp_overlap; with gtp or egtp, "
            "also two all-gathers of each shared weight and a reduce-scatter of its gradient, as "
            "far as they take longer than computation",
            _KORTHIKANTI,
            "without overlaps_tp: nothing overlaps in the backward pass",
        ),
        EstimateTerm(
            "cp_seconds",
            "seconds",
            "context parallelism",
            "p2p (ring): (cp - 1) x keys and values, once forward and twice backward, minus the "
            "time of the attention core; all_gather: all keys and values; a2a: Q, K, V and O, "
            "forward and backward; a2a+p2p: a2a among neighbors and a ring over cp / neighbors "
            "ranks",
            "Ring attention, arXiv:2310.01889; Llama 3, 2407.21783; Ulysses, 2309.14509",
        ),
        EstimateTerm(
            "ep_seconds",
            "seconds",
            "expert parallelism",
            "per routed layer four transfers (dispatch and combine, forward and backward) of a "
            "rank's 16-bit hidden states, one copy per selected expert; with deepep and hybridep "
            "one copy per NVLink domain; moe_overlap hides up to 45 %",
            "Megatron-Core dispatchers alltoall and flex; deepseek-ai/DeepEP",
        ),
        EstimateTerm(
            "pp_seconds",
            "seconds",
            "pipeline point-to-point",
            "time of a hop x 2 (n - ceil(n / pp)) with n = micro-batches + pp - 1; interleaved: "
            "at most time of a hop x 2 (pp x vpp - 1); times the factor pp of the hardware class",
            "Simulated schedules: parc/compiler/cost/schedules/formulas.py",
            "blocking_hops (a rank exchanges one message at a time and computes nothing): time of "
            "a hop x (2 min(pp - 1, 2) x micro-batches + 2 (pp - 1)), without the factor; unfused: "
            "a hop sends 1/tp per rank and gathers the parts",
        ),
        EstimateTerm(
            "bubble_seconds",
            "seconds",
            "pipeline bubble",
            "share b x (sum of all stage times - slowest stage) / vpp; b is 1 for GPipe and 1F1B, "
            "and less for zero-bubble schedules; interleaved: time of the schedule with the time "
            "of each model chunk - micro-batches x slowest stage - exposed hops",
            "Narayanan et al. 2021, section 2.2, generalized to unequal stages; interleaved: "
            "parc/compiler/cost/schedules/unequal_chunks.py",
        ),
        EstimateTerm(
            "dp_seconds",
            "seconds",
            "data parallelism",
            "a reduce-scatter of 4-byte gradients and an all-gather of 2-byte parameters (fewer "
            "bytes if weights are stored and sent in a low precision) take s seconds and overlap "
            "with w, a share of one micro-batch; (s^3 + w^3)^(1/3) - w is exposed, at least 5 % "
            "of s; with interleaving max of that / vpp and the same with w x ((vpp - 1) x pp + "
            "1) / vpp; at ZeRO stage 3 two all-gathers and a reduce-scatter per micro-batch",
            "Megatron-LM overlap-grad-reduce and overlap-param-gather; FSDP, arXiv:2304.11277",
            "whole_gradients: an all-reduce; without overlaps_gradients: nothing overlaps; "
            "shares_first_nic: less bandwidth",
        ),
        EstimateTerm(
            "optimizer_seconds",
            "seconds",
            "optimizer step",
            "40 bytes x parameters of the shard / memory bandwidth, plus a fixed time per step",
            "Adam reads and writes three fp32 states, the gradient and a 16-bit copy",
            "whole_gradients: also traffic of whole gradients and a gather of the weights",
        ),
        EstimateTerm(
            "placement_seconds",
            "seconds",
            "placement on hosts",
            "exposed fraction x bytes over the busiest link / its bandwidth, summed over the "
            "traffic of all axes, minus the terms of these axes at full bandwidth; at least 0",
            "Hosts of oversubscribed switches share uplinks: docs/placement.md",
        ),
    )
}
"""Field of ``StageMemory`` or ``StepTime`` -> term that describes the field."""
