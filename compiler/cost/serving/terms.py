"""Terms of a serving estimate: title, formula in words, and source."""

from __future__ import annotations

from parc.compiler.cost.step.terms import EstimateTerm

_VLLM = "vLLM, v1/core/kv_cache_planning.py and v1/worker/gpu_worker.py"
_SARATHI = "Sarathi-Serve, arXiv:2403.02310; Little's law"
_STEP = "fitted to published serving measurements, docs/cost-model/serving.md"

SERVING_TERMS: dict[str, EstimateTerm] = {
    term.name: term
    for term in (
        EstimateTerm(
            "ttft_seconds",
            "seconds",
            "mean time to the first token",
            "wait for a slot + front end + steps until the engine accepts the request + earlier "
            "prompts + its own chunks through the stages + one step",
            "fitted to published times, docs/cost-model/serving.md; M/D/1 under a request rate",
        ),
        EstimateTerm(
            "tpot_seconds",
            "seconds",
            "mean time per output token",
            "decode step + running / output tokens x seconds that one prompt adds to steps",
            _SARATHI,
        ),
        EstimateTerm(
            "tokens_per_second",
            "tokens/s",
            "output tokens per second, all replicas",
            "running requests / (ttft + output tokens x tpot) x output tokens",
            "Little's law",
        ),
        EstimateTerm(
            "cache_bytes",
            "bytes",
            "memory per rank for the key-value cache",
            "device memory x (1 - memory_headroom) - weights - overhead",
            _VLLM,
        ),
        EstimateTerm(
            "block_bytes",
            "bytes",
            "one block of the cache per rank",
            "block tokens x layers of the stage x 2 x max(1, kv_heads / tp) x head_dim x bytes; "
            "latent attention: (kv_lora_rank + qk_rope_dim) x bytes, not divided by tp; with "
            "recurrent layers: layers of the widest group, block tokens raised until a state fits",
            _VLLM,
        ),
        EstimateTerm(
            "longest_bytes",
            "bytes",
            "cache of one request of max_model_len per rank",
            "ceil(max_model_len / dcp / block tokens) x block_bytes; less with a window; with "
            "recurrent layers plus the blocks per request for each group of states",
            _VLLM,
        ),
        EstimateTerm(
            "overhead_bytes",
            "bytes",
            "memory per rank other than weights and cache",
            "context, communicators and graphs + workspace bytes per element x "
            "max_num_batched_tokens x (6 hidden + 4 width / tp)",
            _STEP,
        ),
        EstimateTerm(
            "prefill_seconds",
            "seconds",
            "seconds that the prompt of one request adds to steps",
            "step with a chunk of prompts - step without, x prompt / chunk",
            _SARATHI,
        ),
    )
}
