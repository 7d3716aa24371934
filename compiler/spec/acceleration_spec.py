"""Models of optional features of a service: ``speculative``, ``lora`` and ``kv_offload``."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Count, StrictModel
from parc.compiler.spec.layout_spec import Auto
from parc.compiler.spec.units import Gigabytes, Percent


class SpeculativeSpec(StrictModel):
    """Speculative decoding: a cheap draft proposes tokens, and each step verifies all of them."""

    method: Literal["mtp", "eagle", "eagle3", "draft-model", "ngram"]
    """Source of the draft tokens: the multi-token-prediction layer of the checkpoint (mtp), a
    trained head (eagle, eagle3), a small model (draft-model), or repetitions of the prompt
    (ngram)."""
    tokens: Count = 3
    """Number of draft tokens per request and step."""
    acceptance: Percent | Auto = "auto"
    """Percentage of the draft tokens that the model accepts if it has accepted all tokens before
    them. auto is 85% for mtp, 75% for eagle3, 65% for eagle and draft-model, and 40% for ngram;
    measure it with your requests, because it depends on them."""
    checkpoint: str | None = None
    """Checkpoint of the draft: a repository on a model hub, or a folder that exists on all hosts.
    Required for eagle, eagle3 and draft-model."""
    model: str | None = None
    """Architecture of the small model of draft-model: an entry of the catalog, or the path of a
    config.json."""


class LoraSpec(StrictModel):
    """LoRA adapters that the engine applies to the model, each for the requests that name it."""

    adapters: dict[str, str]
    """Name of each adapter in requests -> its checkpoint: a repository on a model hub, or a folder
    that exists on all hosts: {sql: /models/sql-adapter}."""
    active: Count | Auto = "auto"
    """Maximum number of adapters that the requests of one step use, and that GPU memory stores.
    auto stores all adapters."""
    rank: Count = 16
    """Largest rank of the adapters. vLLM supports only 1, 8, 16, 32, 64, 128, 256, 320 and 512."""


class KvOffloadSpec(StrictModel):
    """Copies of the KV cache in host memory, from which prefixes are loaded again."""

    size: Gigabytes
    """Host memory for the copies per data-parallel rank, over all of its GPUs: 200GB."""
    prefix_hit: Percent = 0.0
    """Percentage of the tokens of each prompt that are found in host memory, in addition to those
    in GPU memory (traffic.prefix_hit). With a trace, PARC simulates both memories instead."""
