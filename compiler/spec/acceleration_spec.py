"""Models of optional features of a service: ``job.speculative``."""

from __future__ import annotations

from typing import Literal

from parc.compiler.spec.base import Count, StrictModel
from parc.compiler.spec.layout_spec import Auto
from parc.compiler.spec.units import Percent


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
