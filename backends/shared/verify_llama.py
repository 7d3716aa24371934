"""Decisions that every Llama implies: the features of a model that such a program cannot build."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.verifier import Decision

LLAMA = {
    "problem.model.norm": "rmsnorm",
    "problem.model.norms_per_layer": 2,
    "problem.model.final_norm": True,
    "problem.model.mtp_layers": 0,
    "problem.model.left_out": "",
    "problem.model.linear": None,
    "problem.model.mamba": None,
    "problem.model.pattern": "",
    "problem.model.experts": None,
    "problem.model.attention.latent": None,
    "problem.model.attention.output_bias": False,
    "problem.model.attention.qk_norm": "none",
    "problem.model.attention.window": None,
    "problem.model.attention.sinks": False,
    "problem.model.attention.gate": False,
    "problem.model.ffn.gated": True,
    "problem.model.ffn.activation": "silu",
    "problem.model.ffn.bias": False,
    "problem.model.position.kind": "rope",
    "problem.model.position.percent": 1,
}
"""Path of the plan -> its value for a decoder with RMSNorm, gated MLP and rotary positions."""
UNUSED_IN_LLAMA = {
    "problem.model.name": "label in reports",
    "problem.model.family": "the other fields describe the same model",
    "problem.model.source": "records the origin of the numbers",
    "problem.model.attention.full_attention_every": "only relevant with a window",
    "problem.model.position.mscale": "only relevant with yarn",
    "problem.model.position.mscale_all_dim": "only relevant with yarn",
}
"""Path of the plan -> the reason why no file of such a program contains it."""


def llama_decisions(file: str) -> Iterator[Decision]:
    """Yield the features of the model that the program ``file`` builds for all settings."""
    return (Decision(path, value, file) for path, value in LLAMA.items())
