"""Serving specs that must not compile for SGLang, each with SGLang's reaction to the command.

``rejected``: by its parser or resolver; ``silent``: accepted, with a failure or wrong result later;
``later``: rejected or wrong only when the model is built, which needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.search.serving_specs import spec

Outcome = Literal["rejected", "silent", "later"]
Tree = dict[str, Any]
FP8 = {"precision": "fp8"}


@dataclass(frozen=True)
class InvalidSpec:
    """Spec, and SGLang's reaction to its command."""

    name: str
    tree: Tree
    outcome: Outcome
    words: tuple[str, ...] = ()
    """Further words of the command that a user would write for the spec."""


def service(model: str, nodes: int, layout: Tree, **job: Any) -> Tree:
    """Return a spec on hosts of eight H200; sections of the spec may be among ``job``."""
    sections = {name: job.pop(name) for name in ("launch", "goals") if name in job}
    job = {"max_model_len": 4096, **(FP8 if model == "deepseek-v3" else {}), **job}
    tree = spec(model, "hgx-h200", nodes, job=job, layout={"replicas": 1, **layout})
    return tree | sections | {"emit": ["sglang", "rankmap"]}


def invalid_services() -> list[InvalidSpec]:
    """Return all invalid specs; their names are unique."""
    found = [*_heads(), *_experts(), *_data(), *_stages(), *_hosts(), *_limits(), *_arguments()]
    assert len({bad.name for bad in found}) == len(found)
    return found


def _heads() -> Iterator[InvalidSpec]:
    for model in ("llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"):
        for tp in (3, 5, 6, 7):
            yield InvalidSpec(f"{model} over tp {tp}", service(model, 1, {"tp": tp}), "later")
    for tp in (10, 12, 24, 48):
        yield InvalidSpec(f"70b over tp {tp}", service("llama-3.1-70b", 6, {"tp": tp}), "later")
    for tp in (8, 16):
        layout = {"tp": tp, "dp": 2, "ep": "off"}
        tree = service("qwen3-235b-a22b", tp // 4, layout, **FP8)
        yield InvalidSpec(f"blocks of experts over tp {tp} x dp 2", tree, "later")
    for pcp in (2, 4):
        layout = {"tp": 2, "pcp": pcp, "dp": 1}
        yield InvalidSpec(
            f"pcp {pcp} of 70b",
            service("llama-3.1-70b", 1, layout),
            "silent",
        )
    for dcp in (2, 4, 8):
        layout = {"tp": 8, "dcp": dcp}
        yield InvalidSpec(f"dcp {dcp}", service("deepseek-v3", 1, layout), "silent")


def _experts() -> Iterator[InvalidSpec]:
    for tp in (2, 4, 8):
        layout = {"tp": tp, "ep": "on"}
        yield InvalidSpec(f"ep on, dense, tp {tp}", service("llama-3.1-70b", 1, layout), "silent")
    for tp, dp, ep in ((8, 1, 4), (4, 2, 2), (4, 2, 4), (2, 4, 4), (8, 1, 2), (1, 8, 2)):
        layout = {"tp": tp, "dp": dp, "ep": ep}
        tree = service("qwen3-235b-a22b", 1, layout)
        yield InvalidSpec(f"ep {ep} of tp {tp} dp {dp}", tree, "silent")
    for redundant in (1, 3, 7, 12):
        layout = {"tp": 8, "ep": "on", "redundant_experts": redundant}
        tree = service("qwen3-235b-a22b", 1, layout)
        yield InvalidSpec(f"{redundant} redundant experts over 8", tree, "later")
    for tp, dp in ((8, 1), (4, 2)):
        layout = {"tp": tp, "dp": dp, "ep": "off", "redundant_experts": 32}
        tree = service("qwen3-235b-a22b", 1, layout)
        yield InvalidSpec(f"balancer without ep, tp {tp}", tree, "rejected")
    layout = {"tp": 8, "ep": "on", "redundant_experts": -8}
    tree = service("qwen3-235b-a22b", 1, layout)
    yield InvalidSpec("fewer than no redundant experts", tree, "silent")
    yield InvalidSpec(
        "ep on one rank", service("qwen3-30b-a3b", 1, {"tp": 1, "dp": 1, "ep": "on"}), "silent"
    )
    for tp, all2all in ((8, "deepep_high_throughput"), (4, "deepep_low_latency"), (8, "nixl_ep")):
        layout = {"tp": tp, "ep": "off", "all2all": all2all}
        tree = service("qwen3-235b-a22b", 1, layout)
        yield InvalidSpec(f"{all2all} without ep", tree, "silent")
    layout = {"tp": 8, "ep": "on", "all2all": "flashinfer_nvlink_two_sided"}
    yield InvalidSpec("two-sided exchange", service("qwen3-235b-a22b", 1, layout), "silent")


def _data() -> Iterator[InvalidSpec]:
    for dp in (2, 4, 8):
        tree = service("llama-3.1-8b", 1, {"tp": 1, "dp": dp})
        yield InvalidSpec(f"dp {dp} of a dense model", tree, "silent")
    for tp, dp in ((4, 2), (2, 4), (1, 8)):
        tree = service("mixtral-8x7b", 1, {"tp": tp, "dp": dp})
        yield InvalidSpec(f"mixtral, tp {tp} dp {dp}", tree, "silent")
    for tp, dp in ((4, 4), (8, 2), (2, 8), (1, 16)):
        layout = {"tp": tp, "dp": dp, "ep": "on"}
        tree = service("qwen3-235b-a22b", 1, layout)
        yield InvalidSpec(f"tp {tp} dp {dp} on one host", tree, "silent")
    for balancer in ("hybrid", "external"):
        launch = {"load_balancer": balancer}
        layout = {"tp": 2, "dp": 4, "ep": "on"}
        tree = service("qwen3-235b-a22b", 1, layout, launch=launch)
        yield InvalidSpec(f"{balancer} balancer", tree, "silent")


def _stages() -> Iterator[InvalidSpec]:
    for pp in (33, 40, 64):
        tree = service("llama-3.1-8b", pp, {"tp": 8, "pp": pp})
        yield InvalidSpec(f"{pp} stages of 32 layers", tree, "silent")
    for model in ("dbrx", "command-r-35b"):
        for pp in (2, 4):
            tree = service(model, 1, {"tp": 2, "pp": pp})
            yield InvalidSpec(f"{model} with {pp} stages", tree, "later")
    for stages in ([40, 30], [41, 40], [80], [20, 20, 40]):
        layout = {"tp": 4, "pp": 2, "stage_layers": stages}
        name = f"stages of {'-'.join(map(str, stages))}"
        yield InvalidSpec(name, service("llama-3.1-70b", 1, layout), "rejected")


def _hosts() -> Iterator[InvalidSpec]:
    for nodes, tp, pp in ((2, 8, 3), (4, 8, 6), (6, 16, 4), (4, 16, 3)):
        tree = service("llama-3.1-70b", nodes, {"tp": tp, "pp": pp})
        outcome: Outcome = "rejected" if tp * pp % nodes else "silent"
        yield InvalidSpec(f"tp {tp} pp {pp} on {nodes} hosts", tree, outcome)
    for tp, pp in ((8, 2), (16, 1), (4, 4), (8, 4), (4, 3), (2, 8)):
        tree = service("llama-3.1-70b", 1, {"tp": tp, "pp": pp})
        yield InvalidSpec(f"tp {tp} pp {pp} on one host", tree, "silent")
    for replicas in (3, 5, 9):
        tree = service("llama-3.1-70b", 2, {"tp": 8, "replicas": replicas})
        yield InvalidSpec(f"{replicas} engines of 8 on two hosts", tree, "silent")


def _limits() -> Iterator[InvalidSpec]:
    for tokens, page in ((4100, 16), (8200, 64), (2040, 64), (1000, 16)):
        job = {"max_num_batched_tokens": tokens, "block_tokens": page}
        tree = service("llama-3.1-70b", 1, {"tp": 8}, **job)
        yield InvalidSpec(f"{tokens} tokens in pages of {page}", tree, "rejected")
    for tokens in (131_073, 200_000, 1_000_000):
        tree = service("llama-3.1-70b", 1, {"tp": 8}, max_model_len=tokens)
        yield InvalidSpec(f"context of {tokens}", tree, "rejected")
    tree = service("llama-3.1-405b", 1, {"tp": 4, "pp": 1})
    yield InvalidSpec("405b in bf16 on 4 H200", tree, "later")
    for tp in (1, 2):
        tree = service("deepseek-v3", 1, {"tp": tp, "pp": 1, "dp": 1})
        yield InvalidSpec(f"v3 on {tp} GPUs", tree, "later")
    tree = service("llama-3.1-8b", 1, {"tp": 1}, goals={"memory_headroom": "1%"})
    yield InvalidSpec("headroom of 1 %", tree, "silent")
    for precision in ("int4", "nvfp4"):
        job = {"precision": precision, "quantize": True}
        tree = service("llama-3.1-8b", 1, {"tp": 1}, **job)
        yield InvalidSpec(f"quantized to {precision}", tree, "silent")
    for cache in ("fp16",):
        tree = service("llama-3.1-8b", 1, {"tp": 1}, kv_precision=cache)
        yield InvalidSpec(f"cache in {cache}", tree, "silent")


ARGUMENTS: tuple[tuple[tuple[str, ...], Outcome], ...] = (
    (("--no-such-flag",), "rejected"),
    (("--tensor-parallel",), "rejected"),
    (("--tp-size", "4"), "silent"),
    (("--tp", "4"), "silent"),
    (("--dp-size", "2"), "silent"),
    (("--enable-dp-attention",), "silent"),
    (("--pp-size", "2"), "silent"),
    (("--ep", "2"), "silent"),
    (("--nnodes", "2"), "rejected"),
    (("--node-rank", "1"), "silent"),
    (("--page-size", "64"), "silent"),
    (("--mem-fraction-static", "0.5"), "silent"),
    (("--context-length", "1024"), "silent"),
    (("--chunked-prefill-size", "1024"), "silent"),
    (("--max-running-requests", "4"), "silent"),
    (("--host", "127.0.0.1"), "silent"),
    (("--dtype", "int3"), "rejected"),
    (("--schedule-conservativeness", "low"), "rejected"),
    (("--tool-call-parser", "no-such-parser"), "rejected"),
    (("--attention-backend", "no-such-backend"), "rejected"),
    (("--watchdog-timeout",), "rejected"),
    (("--max-queued-requests", "many"), "rejected"),
    (("--enable-hierarchical-cache", "yes"), "rejected"),
    (("--hicache-ratio", "twice"), "rejected"),
    (("--hicache-write-policy", "never"), "rejected"),
    (("--disaggregation-mode", "both"), "rejected"),
    (("--load-balance-method", "random"), "rejected"),
    (("--speculative-num-steps", "1.5"), "rejected"),
    (("--page-siz", "64"), "silent"),
    (("stray",), "rejected"),
)
"""(words of launch.args, reaction)."""


def _arguments() -> Iterator[InvalidSpec]:
    for words, outcome in ARGUMENTS:
        launch = {"args": list(words)}
        tree = service("llama-3.1-8b", 1, {"tp": 1}, launch=launch)
        yield InvalidSpec(f"argument {' '.join(words)}", tree, outcome, words)
