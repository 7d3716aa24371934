"""Position encodings and routers that Megatron's command line cannot express."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, CodedFinding, Finding
from parc.compiler.ir import Model

ROUNDING = 1e-6
"""Largest relative change of the rotary base that counts as rounding. It changes no angle by more
than 0.001 radians within 16,384 positions."""
LLAMA3_ORIGINAL = 8192
"""Original context length with --use-rope-scaling: a constant of RotaryEmbedding in Megatron-Core
(rotary_pos_embedding.py, _apply_scaling)."""
LATENT_ORIGINAL = 4096
"""``original_max_position_embeddings`` of MLATransformerConfig, which has no flag."""
# First version with --yarn-original-max-position-embeddings.
YARN_SINCE = (0, 19)
NO_FLAG = {
    "longrope": "each frequency has a factor of its own",
    "dynamic": "sequences longer than max_positions change the rotary base",
}
"""Scaling of rotary positions that no flag sets -> its description."""


def explain_inexpressible(
    message: str, label: str, supported: str, model: Model, *, fix: str = ""
) -> Finding:
    """Return the finding that Megatron has no flag for a feature of ``model``.

    ``supported`` is a text that lists the alternatives with a flag. ``fix`` is an edit that changes
    the model only slightly, or "" if there is no such edit.
    """
    return Finding(
        message=message,
        label=label,
        help=f"Megatron supports: {supported}",
        fix=fix or "choose a model that Megatron supports, or change these fields under model:",
        causes=(Cause("model", f"from {model.source}"),),
    )


def inexpressible_positions(model: Model, version: str) -> Iterator[CodedFinding]:
    """Yield a finding for each setting of positions that no flag can express.

    Positions are position embeddings, such as rotary embeddings with YaRN scaling.
    """
    position = model.position
    if position.kind in ("rope", "yarn") and position.base != int(position.base):
        yield CodedFinding(
            "E04",
            "model.position.base",
            explain_inexpressible(
                f"the rotary base {position.base} is not an integer",
                "--rotary-base accepts only integers",
                "integers",
                model,
                fix=f"model.position.base: {round(position.base)}"
                if abs(position.base - round(position.base)) < ROUNDING * position.base
                else "",
            ),
        )
    yield from _inexpressible_scaling(model)
    if (message := _explain_inexpressible_yarn(model, version)) is not None:
        yield CodedFinding(
            "E04",
            "model.position",
            explain_inexpressible(
                message,
                f"original_max_positions {position.original_max_positions}, Megatron {version}",
                "YaRN with 4096 original positions in latent attention; in other attention from "
                "version 0.19 on",
                model,
            ),
        )
    plain = position.kind in ("rope", "none") or model.attention.latent is not None
    if model.mtp_layers and (not plain or _has_yarn_position_type(model)):
        yield CodedFinding(
            "E05",
            "model.mtp_layers",
            explain_inexpressible(
                f"Megatron cannot build MTP layers with {position.kind} positions",
                f"position.kind {position.kind}, must be rope or none",
                "MTP with rope or without positions",
                model,
            ),
        )


def _inexpressible_scaling(model: Model) -> Iterator[CodedFinding]:
    """Yield findings for a scaling of rotary positions other than YaRN that no flag can express."""
    position = model.position
    if position.scaling == "linear" and position.scaling_factor != int(position.scaling_factor):
        yield CodedFinding(
            "E04",
            "model.position.scaling_factor",
            explain_inexpressible(
                f"the linear rope scaling {position.scaling_factor} is not an integer",
                "--rotary-seq-len-interpolation-factor accepts only integers",
                "integers",
                model,
            ),
        )
    if position.scaling == "llama3" and position.original_max_positions != LLAMA3_ORIGINAL:
        yield CodedFinding(
            "E04",
            "model.position.original_max_positions",
            explain_inexpressible(
                "Megatron has no flag for llama3 scaling with an original context length of "
                f"{position.original_max_positions} tokens",
                f"--use-rope-scaling assumes {LLAMA3_ORIGINAL} tokens",
                f"llama3 scaling from {LLAMA3_ORIGINAL} positions",
                model,
            ),
        )
    if position.scaling in NO_FLAG:
        yield CodedFinding(
            "E04",
            "model.position.scaling",
            explain_inexpressible(
                f"Megatron has no flag for {position.scaling} scaling of positions",
                NO_FLAG[position.scaling],
                "llama3, linear and YaRN scaling",
                model,
            ),
        )


def _has_yarn_position_type(model: Model) -> bool:
    """Return True if Megatron's position type is "yarn": YaRN without latent attention.

    Megatron cannot build MTP layers with this type.
    """
    return model.attention.latent is None and _uses_yarn(model)


def _uses_yarn(model: Model) -> bool:
    return "yarn" in (model.position.kind, model.position.scaling)


def _explain_inexpressible_yarn(model: Model, version: str) -> str | None:
    """Return a message if no flag can express the model's YaRN settings, else None."""
    if not _uses_yarn(model):
        return None
    original = model.position.original_max_positions
    if model.attention.latent is not None:
        wrong = original != LATENT_ORIGINAL
        text = (
            f"Megatron has no flag for YaRN in latent attention with an original context length of "
            f"{original} tokens"
        )
        return text if wrong else None
    old = parse_version(version) < YARN_SINCE
    return f"YaRN without latent attention has no flags in Megatron-LM {version}" if old else None


def inexpressible_routers(model: Model) -> Iterator[CodedFinding]:
    """Yield a finding for each router setting that no flag can express."""
    experts = model.experts
    if experts is None or experts.router_bias != "buffer" or experts.score_function == "sigmoid":
        return
    yield CodedFinding(
        "E06",
        "model.experts.router_bias",
        explain_inexpressible(
            f"{model.name} balances its experts by a bias, but scores them by softmax",
            f"router_bias buffer, score_function {experts.score_function}",
            "a load-balancing bias with sigmoid scores",
            model,
        ),
    )
