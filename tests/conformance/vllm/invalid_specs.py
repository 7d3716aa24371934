"""Serving specs that must not compile, each with vLLM's reaction to the corresponding command.

``rejected``: by its parser or its config; ``silent``: accepted, with a failure or wrong result
later; ``later``: rejected only when the model is built or the cache is planned, which needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.hybrid_models import NEMOTRON_NANO
from tests.search.serving_specs import spec

Outcome = Literal["rejected", "silent", "later"]
Tree = dict[str, Any]
FP8 = {"precision": "fp8", "max_model_len": 4096}


@dataclass(frozen=True)
class InvalidSpec:
    """Spec, and vLLM's reaction to its command."""

    name: str
    tree: Tree
    outcome: Outcome


def dense(nodes: int, layout: Tree, **job: Any) -> Tree:
    """Return a spec for Llama 3.1 70B on hosts of eight H200."""
    return spec(
        "llama-3.1-70b", "hgx-h200", nodes, job={"max_model_len": 4096, **job}, layout=layout
    )


def routed(nodes: int, layout: Tree, **job: Any) -> Tree:
    """Return a spec for Qwen3 235B on hosts of eight H200."""
    job = {"max_model_len": 4096, **job}
    return spec("qwen3-235b-a22b", "hgx-h200", nodes, job=job, layout=layout)


def latent(nodes: int, layout: Tree, **job: Any) -> Tree:
    """Return a spec for DeepSeek-V3 in its native fp8 on hosts of eight H200."""
    return spec("deepseek-v3", "hgx-h200", nodes, job={**FP8, **job}, layout=layout)


def invalid_services() -> list[InvalidSpec]:
    """Return all invalid specs; their names are unique."""
    found = [*_heads(), *_hosts(), *_experts(), *_contexts(), *_stages(), *_limits(), *_blocks()]
    assert len({bad.name for bad in found}) == len(found)
    return found


def _heads() -> Iterator[InvalidSpec]:
    for tp in (3, 5, 6, 7):
        yield InvalidSpec(
            f"70b heads over tp {tp}", dense(1, {"tp": tp, "replicas": 1}), "rejected"
        )
        yield InvalidSpec(
            f"235b heads over tp {tp}", routed(1, {"tp": tp, "replicas": 1}), "rejected"
        )
        yield InvalidSpec(
            f"v3 heads over tp {tp}", latent(1, {"tp": tp, "replicas": 1}), "rejected"
        )
    for tp in (10, 12, 24, 48):
        yield InvalidSpec(
            f"70b heads over tp {tp}", dense(6, {"tp": tp, "replicas": 1}), "rejected"
        )
    for tp in (7, 14):
        node = {"base": "hgx-h200", "gpus_per_node": 7}
        tree = spec("qwen2.5-7b", node, 2, layout={"tp": tp, "replicas": 1})
        yield InvalidSpec(f"qwen vocabulary over tp {tp}", tree, "later")
    job = {"max_model_len": 4096, "checkpoint": "/models/nano"}
    nano = {**NEMOTRON_NANO, "family": "nemotron_h"}
    tree = spec(nano, "hgx-h200", 2, job=job, layout={"tp": 16, "ep": "on", "replicas": 1})
    yield InvalidSpec("groups of mamba heads over tp 16", tree, "later")


def _hosts() -> Iterator[InvalidSpec]:
    for nodes, tp, pp in ((4, 8, 3), (8, 8, 6), (4, 4, 7), (4, 2, 13)):
        layout = {"tp": tp, "pp": pp, "replicas": 1}
        name = f"tp {tp} pp {pp} on {nodes} hosts of six"
        node = {"base": "hgx-h200", "gpus_per_node": 6}
        tree = spec("llama-3.1-70b", node, nodes, job={"max_model_len": 4096}, layout=layout)
        outcome: Outcome = "silent" if tp * pp % nodes == 0 else "rejected"
        yield InvalidSpec(name, tree, outcome)
    for tp, pp in ((8, 2), (16, 1), (4, 4), (8, 4), (4, 3), (2, 8)):
        layout = {"tp": tp, "pp": pp, "replicas": 1}
        yield InvalidSpec(f"tp {tp} pp {pp} on one host", dense(1, layout), "rejected")
    for tp, dp in ((4, 4), (8, 2), (2, 8), (1, 16)):
        layout = {"tp": tp, "dp": dp, "ep": "on", "replicas": 1}
        yield InvalidSpec(f"tp {tp} dp {dp} on one host", routed(1, layout), "silent")
    for replicas in (3, 5, 9):
        yield InvalidSpec(
            f"{replicas} engines of 8 on two hosts",
            dense(2, {"tp": 8, "replicas": replicas}),
            "silent",
        )


def _experts() -> Iterator[InvalidSpec]:
    for tp in (2, 4, 8):
        yield InvalidSpec(
            f"ep on, dense, tp {tp}", dense(1, {"tp": tp, "ep": "on", "replicas": 1}), "rejected"
        )
    for tp, dp, ep in ((8, 1, 4), (4, 2, 2), (4, 2, 4), (2, 4, 4), (8, 1, 16), (1, 8, 2)):
        layout = {"tp": tp, "dp": dp, "ep": ep, "replicas": 1}
        yield InvalidSpec(f"ep {ep} of tp {tp} dp {dp}", routed(1, layout), "silent")
    for redundant in (1, 3, 7, 12):
        layout = {"tp": 8, "ep": "on", "redundant_experts": redundant, "replicas": 1}
        yield InvalidSpec(f"{redundant} redundant experts over 8", routed(1, layout), "later")
    for tp, dp in ((8, 1), (4, 2)):
        layout = {"tp": tp, "dp": dp, "ep": "off", "redundant_experts": 32, "replicas": 1}
        yield InvalidSpec(f"balancer without ep, tp {tp}", routed(1, layout), "rejected")
    layout = {"tp": 8, "ep": "on", "redundant_experts": -8, "replicas": 1}
    yield InvalidSpec("fewer than no redundant experts", routed(1, layout), "rejected")
    for dp in (2, 4, 8):
        yield InvalidSpec(f"dp {dp} of a dense model", dense(1, {"tp": 1, "dp": dp}), "silent")
    small = spec("qwen3-30b-a3b", "hgx-h200", 1, layout={"tp": 1, "dp": 1, "ep": "on"})
    yield InvalidSpec("ep over one rank", small, "silent")
    for name in ("deepep_low_latency", "deepep_high_throughput", "nixl_ep"):
        layout = {"tp": 8, "ep": "on", "all2all": name, "replicas": 1}
        yield InvalidSpec(f"{name} with one data-parallel rank", routed(1, layout), "silent")


def _contexts() -> Iterator[InvalidSpec]:
    for tp, dcp in ((8, 2), (4, 2), (8, 8), (4, 4), (2, 2)):
        layout = {"tp": tp, "dcp": dcp, "replicas": 1}
        yield InvalidSpec(f"dcp {dcp} of grouped queries, tp {tp}", dense(1, layout), "rejected")
    for dcp in (3, 5, 6, 16):
        layout = {"tp": 8, "dcp": dcp, "replicas": 1}
        yield InvalidSpec(f"dcp {dcp} of tp 8", latent(1, layout), "rejected")
    for dcp in (4, 8, 3):
        layout = {"tp": 8, "pcp": 2, "dcp": dcp, "replicas": 1}
        yield InvalidSpec(f"dcp {dcp} of tp 8 and pcp 2", latent(2, layout), "rejected")
    for tp, dcp in ((8, 4), (8, 8)):
        layout = {"tp": tp, "dcp": dcp, "replicas": 1}
        yield InvalidSpec(
            f"dcp {dcp} beyond the copies of 4 heads, tp {tp}", routed(1, layout), "rejected"
        )


def _stages() -> Iterator[InvalidSpec]:
    for stages in ([20, 20, 20, 19], [21, 21, 21, 21], [80], [40, 40], [27, 27, 26], [1, 1, 1, 1]):
        layout = {"tp": 2, "pp": 4, "stage_layers": stages, "replicas": 1}
        yield InvalidSpec(f"stages {stages}", dense(1, layout), "rejected")
    for pp in (96, 112, 128):
        layout = {"tp": 1, "pp": pp, "replicas": 1}
        yield InvalidSpec(f"{pp} stages of 80 layers", dense(16, layout), "silent")


def _limits() -> Iterator[InvalidSpec]:
    for length in (131_073, 200_000, 999_999):
        yield InvalidSpec(f"length {length}", dense(1, {"tp": 8}, max_model_len=length), "rejected")
    for seqs, tokens in ((2048, 1024), (512, 256), (300, 200)):
        job = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens}
        yield InvalidSpec(
            f"{tokens} tokens for {seqs} requests", dense(1, {"tp": 8}, **job), "rejected"
        )
    bare = {"tp": 1, "pp": 1, "replicas": 1}
    yield InvalidSpec("70b on one GPU", dense(1, bare), "later")
    for tp in (1, 2):
        tree = latent(1, {"tp": tp, "pp": 1, "dp": 1, "replicas": 1, "ep": "off"})
        yield InvalidSpec(f"v3 on {tp} GPUs", tree, "later")
    tree = spec("llama-3.1-70b", {"base": "dgx-h100", "gpus_per_node": 2}, layout={"tp": 2})
    tree["job"] |= {"max_model_len": 131_072}
    yield InvalidSpec("a context that does not fit", tree, "later")
    args = {
        "--no-such-flag": "rejected",
        "--tensor-parallel-size=4": "silent",
        "-dp=2": "silent",
        "--headless": "silent",
        "--seed=x": "rejected",
        "--load-format=nothing": "silent",
        "--kv-cache-dtype=fp4x": "rejected",
        "--block-size=7": "silent",
        "--distributed-executor-backend=nothing": "rejected",
    }
    for word, outcome in args.items():
        tree = dense(1, {"tp": 8, "replicas": 1}) | {"launch": {"args": [word]}}
        if word != "--load-format=nothing":
            yield InvalidSpec(f"argument {word}", tree, outcome)  # type: ignore[arg-type]


def _blocks() -> Iterator[InvalidSpec]:
    for tp in (32, 64):
        tree = latent(tp // 8, {"tp": tp, "ep": "on", "replicas": 1})
        yield InvalidSpec(f"blocks of v3 over tp {tp}", tree, "later")
    for tp in (4, 8):
        job = {"precision": "fp8", "max_model_len": 4096}
        layout = {"tp": tp, "ep": "off", "replicas": 1}
        tree = spec("qwen3-30b-a3b", "hgx-h200", 1, job=job, layout=layout)
        yield InvalidSpec(f"blocks of experts of 768 over tp {tp}", tree, "later")
    for tp in (2, 4, 8):
        tree = spec("qwen2.5-72b", "hgx-h200", job={"precision": "int4"}, layout={"tp": tp})
        yield InvalidSpec(f"groups of 29568 over tp {tp}", tree, "later")
