"""Architecture of a row of a wide table: from the catalog, a table of facts, or the row itself."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Model
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec

ALIASES = {"gpt-3-175b": "gpt3-175b"}
"""Name in the sources -> catalog name."""
ModelMatch = tuple[str, int | None, ModelSpec | None]
"""(name, layers if they differ from the named model, dimensions if the catalog lacks the model)."""


class Architectures:
    """Architecture facts by the names that rows use. Without a table only the rows' own values
    count."""

    def __init__(self, path: Path | None) -> None:
        """Read ``path``, a table of architecture facts with one model per row."""
        self._library = Library(None)
        self._names = set(self._library.names("models"))
        self._facts: dict[str, dict[str, str]] = {}
        if path is not None:
            with path.open(encoding="utf-8", newline="") as file:
                self._facts = {row["name"]: row for row in csv.DictReader(file)}

    def is_unknown_hybrid(self, name: str) -> bool:
        """Return True if the catalog lacks the model and some layers are neither attention nor MLP.

        The table of facts has no columns for such layers.
        """
        kind = self._facts.get(name, {}).get("kind", "")
        named = "hybrid" in kind or name.startswith("Nemotron-H")
        return named and _catalog_name(name) not in self._names

    def mtp(self, name: str) -> int:
        """Return the number of multi-token-prediction layers that the model is trained with."""
        return _parse_int(self._facts.get(name, {}).get("mtp_layers")) or 0

    def model(self, row: dict[str, str]) -> ModelMatch | None:
        """Return name and dimensions of the row's model, or None if they cannot be determined."""
        name, layers = _catalog_name(row["model"]), _parse_int(row["layers"])
        if name in self._names:
            entry = self._library.entry("models", name)
            if entry["hidden"] == _parse_int(row["hidden"]) or not row["hidden"]:
                return name, (None if layers in (None, entry["layers"]) else layers), None
        facts = self._facts.get(row["model"])
        spec = _from_facts(facts, layers) if facts else self._guess_dimensions(row)
        return None if spec is None else (row["model"], None, spec)

    def _guess_dimensions(self, row: dict[str, str]) -> ModelSpec | None:
        """Return the variant (gated or not, tied or not) whose parameter count is nearest to the
        stated one."""
        stated = float(row["params_b"] or 0) * 1e9
        if not row["hidden"] or (row["experts"] and not row["moe_ffn"]):
            return None
        best: tuple[float, ModelSpec] | None = None
        # Rows state widths but neither gating nor tying; the parameter count reveals them.
        for gated, tied in product((True, False), (False, True)):
            spec = _from_row(row, gated, tied)
            model = resolve_model(spec, self._library, Sink())
            if isinstance(model, Model):
                miss = abs(params.total_params(model) - stated) if stated else 0.0
                if best is None or miss < best[0]:
                    best = (miss, spec)
        return best[1] if best else None


def _catalog_name(name: str) -> str:
    """Return the name in the spelling of the catalog."""
    plain = name.lower().replace("_", "-")
    return ALIASES.get(plain, plain)


def _from_row(row: dict[str, str], gated: bool, tied: bool) -> ModelSpec:
    experts = None
    if row["experts"]:
        experts = {
            "count": _parse_int(row["experts"]),
            "top_k": _parse_int(row["topk"]),
            "size": _parse_int(row["moe_ffn"]),
        }
    return _complete_spec(
        name=row["model"],
        layers=_parse_int(row["layers"]),
        hidden=_parse_int(row["hidden"]),
        ffn=_parse_int(row["ffn_hidden"]) or 0,
        heads=_parse_int(row["heads"]),
        kv_heads=_parse_int(row["kv_heads"]) or _parse_int(row["heads"]),
        head_dim=_parse_int(row["head_dim"]),
        vocab=_parse_int(row["vocab"]),
        gated=gated,
        tied_embeddings=tied,
        norm="rmsnorm" if gated else "layernorm",
        experts=experts,
    )


def _from_facts(facts: dict[str, str], layers: int | None) -> ModelSpec:
    gated, bias = facts["glu_mlp"] != "0", facts["linear_bias"] == "1"
    latent = None
    if facts["mla_kv_rank"]:
        latent = {
            "q_lora_rank": _parse_int(facts["mla_q_rank"]) or None,
            "kv_lora_rank": _parse_int(facts["mla_kv_rank"]),
            "qk_nope_dim": _parse_int(facts["mla_qk_nope"]),
            "qk_rope_dim": _parse_int(facts["mla_qk_rope"]),
            "v_dim": _parse_int(facts["mla_v_dim"]),
        }
    return _complete_spec(
        name=facts["name"],
        layers=layers or _parse_int(facts["layers"]),
        hidden=_parse_int(facts["hidden"]),
        ffn=_parse_int(facts["ffn"]) or 0,
        heads=_parse_int(facts["heads"]),
        kv_heads=None if latent else _parse_int(facts["kv_heads"]),
        head_dim=None if latent else _parse_int(facts["head_dim"]),
        vocab=_parse_int(facts["vocab"]),
        gated=gated,
        mlp_bias=bias,
        qkv_bias=bias or facts["linear_bias"].startswith("attn"),
        attention_output_bias=bias,
        tied_embeddings=facts["tied_embeddings"] == "1",
        norm="rmsnorm" if facts["norm"] == "rmsnorm" else "layernorm",
        latent=latent,
        experts=_expert_fields(facts),
    )


def _expert_fields(facts: dict[str, str]) -> dict[str, Any] | None:
    if not facts["experts"]:
        return None
    shared = (_parse_int(facts["shared_experts"]) or 0) * (_parse_int(facts["shared_ffn"]) or 0)
    return {
        "count": _parse_int(facts["experts"]),
        "top_k": _parse_int(facts["topk"]),
        "size": _parse_int(facts["moe_ffn"]),
        "shared_size": shared,
        "first_dense_layers": _parse_int(facts["first_k_dense"]) or 0,
        "every": _parse_int(facts["moe_layer_step"]) or 1,
    }


def _complete_spec(**dims: Any) -> ModelSpec:
    """Return a complete model from its dimensions. Position tables do not affect the scored
    figures."""
    given = {key: value for key, value in dims.items() if value is not None}
    tree = {"family": "other", "position": {"kind": "rope", "max_positions": 1 << 20}, **given}
    return ModelSpec.model_validate_json(json.dumps(tree))


def _parse_int(text: str | None) -> int | None:
    return int(float(text)) if text else None
