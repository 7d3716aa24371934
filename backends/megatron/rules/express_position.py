"""Positions and routers that Megatron's command line cannot say."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Model

LATENT_ORIGINAL = 4096
"""original_max_position_embeddings of MLATransformerConfig, which has no flag."""
YARN_SINCE = (0, 19)


def cannot_say(message: str, label: str, legal: str, model: Model) -> Finding:
    """A finding about a model that no flag describes; ``legal`` is what flags describe."""
    return Finding(
        message=message,
        label=label,
        help=f"Megatron can say: {legal}",
        fix="choose a model that Megatron can say, or change these fields under model:",
        causes=(Cause("model", f"from {model.source}"),),
    )


def position_faults(model: Model, version: str) -> Iterator[tuple[str, str, Finding]]:
    """What no flag says about positions: code, spec path, finding."""
    position = model.position
    if position.kind in ("rope", "yarn") and position.base != int(position.base):
        yield (
            "E04",
            "model.position.base",
            cannot_say(
                f"the rotary base {position.base} is not a whole number",
                "--rotary-base takes a whole number",
                "whole numbers",
                model,
            ),
        )
    if position.scaling == "linear" and position.scaling_factor != int(position.scaling_factor):
        yield (
            "E04",
            "model.position.scaling_factor",
            cannot_say(
                f"the linear rope scaling {position.scaling_factor} is not a whole number",
                "--rotary-seq-len-interpolation-factor takes a whole number",
                "whole numbers",
                model,
            ),
        )
    if (message := _yarn_fault(model, version)) is not None:
        yield (
            "E04",
            "model.position",
            cannot_say(
                message,
                f"original_max_positions {position.original_max_positions}, Megatron {version}",
                "YaRN in latent attention from 4096 positions; elsewhere from version 0.19 on",
                model,
            ),
        )
    plain = position.kind in ("rope", "none") or model.attention.latent is not None
    if model.mtp_layers and (not plain or _is_yarn(model)):
        yield (
            "E05",
            "model.mtp_layers",
            cannot_say(
                f"{model.mtp_layers} MTP layers with {position.kind} positions",
                f"position.kind {position.kind}, must be rope or none",
                "MTP with rope or without positions",
                model,
            ),
        )


def _is_yarn(model: Model) -> bool:
    """YaRN outside latent attention is a position type of its own, which MTP refuses."""
    return model.attention.latent is None and _scales_by_yarn(model)


def _scales_by_yarn(model: Model) -> bool:
    return "yarn" in (model.position.kind, model.position.scaling)


def _yarn_fault(model: Model, version: str) -> str | None:
    """What no flag says about YaRN: its first context length."""
    if not _scales_by_yarn(model):
        return None
    original = model.position.original_max_positions
    if model.attention.latent is not None:
        wrong = original != LATENT_ORIGINAL
        return f"YaRN from {original} positions in latent attention has no flag" if wrong else None
    old = parse_version(version) < YARN_SINCE
    return f"YaRN without latent attention has no flags in Megatron-LM {version}" if old else None


def router_faults(model: Model) -> Iterator[tuple[str, str, Finding]]:
    """What no flag says about the router."""
    experts = model.experts
    if experts is None or experts.router_bias != "buffer" or experts.score_function == "sigmoid":
        return
    yield (
        "E06",
        "model.experts.router_bias",
        cannot_say(
            f"{model.name} balances its experts by a bias, but scores them by softmax",
            f"router_bias buffer, score_function {experts.score_function}",
            "a load-balancing bias with sigmoid scores",
            model,
        ),
    )
