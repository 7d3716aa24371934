"""Layers that attend to selected or compressed keys in a Hugging Face config, for ``ModelSpec``."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.huggingface.config_keys import ConfigKeys
from parc.compiler.catalog.huggingface.layer_variants import (
    flags_per_layer,
    group_by_shape,
    layer_indexes,
    leading_dense_layers,
)


def read_shared_indexers(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the field ``layer_variants`` of a model whose layers can share the selected keys.

    The config key ``indexer_types`` lists ``full`` for layers with an indexer, and ``shared`` for
    layers that attend to the keys which the indexer of an earlier layer selected. Configs for
    engines have a pattern of letters or an interval instead (transformers 5.23,
    configuration_glm_moe_dsa.py, configuration_hy_v4.py).
    """
    types, layers = keys.value("indexer_types"), model_fields["layers"]
    pattern = keys.value("index_topk_pattern")
    if types is None and isinstance(pattern, str):
        types = [_INDEXER_LETTERS.get(letter, letter) for letter in pattern]
    if types is not None:
        keys.mark_as_read(("index_skip_topk_offset", "index_topk_freq"))
    else:
        types = pattern or _indexer_types_by_interval(keys, model_fields)
    if not isinstance(types, list) or len(types) != layers or not _are_types(types):
        message = f"indexer_types must list full or shared for each of the {layers} layers"
        keys.add_note("K03", "indexer_types", message)
        return {}
    shared = [layer for layer, name in enumerate(types, start=1) if name == "shared"]
    return {"layer_variants": [{"layers": shared, "indexer": "shared"}]} if shared else {}


def _are_types(types: list[Any]) -> bool:
    return all(one in ("full", "shared") for one in types)


_INDEXER_LETTERS = {"F": "full", "S": "shared"}


def _indexer_types_by_interval(keys: ConfigKeys, model_fields: dict[str, Any]) -> list[str]:
    """Return the type of the indexer of each layer, from the interval of those with an own one.

    Layers before the offset have one, and then every n-th layer. By default, all layers have one;
    in models with residual streams (HY-V4) layers 1, 2, 6, 10, ... have one.
    """
    hyper = "residual_streams" in model_fields
    every = keys.optional_whole_number("index_topk_freq") or (4 if hyper else 1)
    given = keys.value("index_skip_topk_offset") is not None
    offset = keys.whole_number("index_skip_topk_offset", least=0) if given else 2
    return [
        "shared" if max(layer - offset + 1, 0) % every else "full"
        for layer in layer_indexes(model_fields["layers"])
    ]


def read_block_sparse_layers(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``indexer``, ``layer_variants`` and ``experts`` of MiniMax-M3.

    An indexer selects blocks of keys in some layers, and the first layers have a dense MLP. Hub
    configs list these layers as numbers in ``sparse_attention_config`` and ``moe_layer_freq``,
    those of transformers as names (transformers 5.23, configuration_minimax_m3_vl.py).
    """
    layers = model_fields["layers"]
    sparse = flags_per_layer(keys, ("layer_types", "minimax_m3_sparse"), _SPARSE_LAYERS, layers)
    routed = flags_per_layer(keys, ("mlp_layer_types", "sparse"), "moe_layer_freq", layers)
    fields: dict[str, Any] = {}
    if routed is not None:
        fields = leading_dense_layers(keys, model_fields, routed)
        if fields["experts"]["first_dense_layers"]:
            fields["ffn"] = keys.whole_number("dense_intermediate_size")
    # Read even without sparse layers: the class writes its defaults into every config.
    heads, head_dim, block, blocks = (
        keys.optional_whole_number(f"sparse_attention_config.{old}") or keys.whole_number(new)
        for old, new in _INDEX_SIZES.items()
    )
    if sparse is None or not any(sparse):
        return fields
    indexer = {"heads": heads, "head_dim": head_dim, "top_k": block * blocks}
    fields["indexer"] = indexer | {"head_weights": False}
    full = [layer for layer, one in enumerate(sparse, start=1) if not one]
    return fields | ({"layer_variants": [{"layers": full, "indexer": "none"}]} if full else {})


_INDEX_SIZES = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
}
"""Key in ``sparse_attention_config`` of hub configs -> key in configs of transformers."""
_SPARSE_LAYERS = "sparse_attention_config.sparse_attention_freq"


_COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
_RATES = {_COMPRESSED[0]: 4, _COMPRESSED[1]: 128}
"""Layer type -> tokens per compressed entry by default (configuration_deepseek_v4.py)."""


def read_compressed_layers(keys: ConfigKeys, model_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``low_rank``, ``residual_streams`` and ``layer_variants`` of DeepSeek-V4.

    Some layers compress keys and values: those with an indexer few tokens with overlap, the others
    many tokens. Hub configs list the numbers of tokens in ``compress_ratios``, those of
    transformers list names in ``layer_types`` (transformers 5.23, configuration_deepseek_v4.py).
    """
    layers = model_fields["layers"]
    rates = {
        name: keys.optional_whole_number(f"compress_rates.{name}")
        or keys.optional_whole_number(old)
        or _RATES[name]
        for name, old in zip(_COMPRESSED, ("compress_rate_csa", "compress_rate_hca"), strict=True)
    }
    types = _compressed_layer_types(keys, layers)
    shapes: list[dict[str, Any]] = []
    for name in types:
        shape: dict[str, Any] = {} if name == _COMPRESSED[0] else {"indexer": "none"}
        if name in rates:
            shape["compression"] = {"rate": rates[name], "overlap": name == _COMPRESSED[0]}
        shapes.append(shape)
    fields: dict[str, Any] = {
        "low_rank": {
            "queries": keys.whole_number("q_lora_rank"),
            "output": keys.whole_number("o_lora_rank"),
            "output_groups": keys.whole_number("o_groups"),
        },
        "residual_streams": keys.whole_number("hc_mult"),
        "window": keys.whole_number("sliding_window"),
        "layer_variants": group_by_shape(shapes),
    }
    if _COMPRESSED[0] not in types:  # no layer has the indexer that the config describes
        fields["indexer"] = None
        for one in fields["layer_variants"]:
            one.pop("indexer", None)
    return fields


def _compressed_layer_types(keys: ConfigKeys, layers: int) -> list[str]:
    """Return the type of each layer of DeepSeek-V4.

    By default, the first two layers compress heavily, and then both types of compression alternate.
    """
    types, ratios = keys.value("layer_types"), keys.value("compress_ratios")
    names = {0: "sliding_attention"} | {rate: name for name, rate in _RATES.items()}
    key = "layer_types"
    if types is None and isinstance(ratios, list):
        key, types = "compress_ratios", [names.get(one, "?") for one in ratios]
    if types is None:
        few, many = _COMPRESSED
        return [few if layer > 1 and layer % 2 else many for layer in layer_indexes(layers)]
    # The lists of hub configs end with the types of multi-token-prediction layers.
    known = isinstance(types, list) and not {str(one) for one in types} - {*names.values()}
    if not known or len(types) < layers:
        message = f"{key} must list one type for each of the {layers} layers"
        keys.add_note("K03", key, message, f"valid values: {', '.join(map(str, names.values()))}")
        return []
    return [str(one) for one in types[:layers]]
