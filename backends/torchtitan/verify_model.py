"""Settings of the model that ``torchtitan/parc_titan.py`` builds or gets from the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.shared.verify_torch import LLAMA, llama_model_settings
from parc.backends.torchtitan.verify_module import CALLED, MODULE, CodeExpression
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.emitted_settings import EmittedSettings, translate_name

SIZES = {
    "dim": "hidden",
    "n_layers": "layers",
    "n_heads": "attention.heads",
    "n_kv_heads": "attention.kv_heads",
    "head_dim": "attention.head_dim",
    "hidden_dim": "ffn.size",
    "vocab_size": "vocab",
    "norm_eps": "norm_epsilon",
    "enable_weight_tying": "tied_embeddings",
}
"""Setting of ``SIZES`` -> field of the model."""
SCALINGS = {"llama": "llama3"}
FIELDS = ("layers", "hidden", "attention.heads", "attention.kv_heads", "ffn.size", "vocab")
EXPERT_FIELDS = ("experts.count", "experts.top_k", "experts.size", "experts.shared_size")
DENSE_FLAVORS = {
    ("qwen3", "0.6B"): (28, 1024, 16, 8, 3072, 151936),
    ("qwen3", "1.7B"): (28, 2048, 16, 8, 6144, 151936),
    ("qwen3", "4B"): (36, 2560, 32, 8, 9728, 151936),
    ("qwen3", "8B"): (36, 4096, 32, 8, 12288, 151936),
    ("qwen3", "14B"): (40, 5120, 40, 8, 17408, 151936),
    ("qwen3", "32B"): (64, 5120, 64, 8, 25600, 151936),
}
"""(module, flavor) in torchtitan's registry -> the values of ``FIELDS``."""
EXPERT_FLAVORS = {
    ("qwen3", "30B-A3B"): (48, 2048, 32, 4, 0, 151936, 128, 8, 768, 0),
    ("qwen3", "235B-A22B"): (94, 4096, 64, 4, 0, 151936, 128, 8, 1536, 0),
    ("deepseek_v3", "16B"): (27, 2048, 16, None, 10944, 102400, 64, 6, 1408, 2816),
    ("deepseek_v3", "236B"): (60, 5120, 128, None, 12288, 102400, 160, 6, 1536, 3072),
    ("deepseek_v3", "671B"): (61, 7168, 128, None, 18432, 129280, 256, 8, 2048, 2048),
}
"""(module, flavor) -> the values of ``FIELDS`` and ``EXPERT_FIELDS``; None: not applicable.

Latent attention has no heads of keys."""
QWEN3 = {
    "attention.head_dim": 128,
    "attention.qk_norm": "head",
    "attention.qkv_bias": False,
    "norm_epsilon": 1e-6,
    "position.base": 1000000,
    "position.scaling": "none",
}
"""Features of all models in the module qwen3 that differ from those of Llama."""
DEEPSEEK = {
    "attention.head_dim": 192,
    "attention.latent.kv_lora_rank": 512,
    "attention.latent.qk_nope_dim": 128,
    "attention.latent.qk_rope_dim": 64,
    "attention.latent.v_dim": 128,
    "attention.qkv_bias": False,
    "position.base": 10000,
    "position.kind": "yarn",
    "position.original_max_positions": 4096,
    "position.scaling": "yarn",
    "position.scaling_factor": 40,
}
"""Features of all models in the module deepseek_v3 that differ from those of Llama."""
ROUTER = ("score_function", "pre_softmax", "groups", "group_top_k", "scaling_factor")
ROUTERS = {
    ("qwen3", "30B-A3B"): (0, None, "softmax", False, 1, 1, 1),
    ("qwen3", "235B-A22B"): (0, None, "softmax", False, 1, 1, 1),
    ("deepseek_v3", "16B"): (1, None, "softmax", True, 1, 1, 1),
    ("deepseek_v3", "236B"): (1, 1536, "softmax", True, 8, 3, 16),
    ("deepseek_v3", "671B"): (3, 1536, "sigmoid", False, 8, 4, 2.5),
}
"""(module, flavor) -> first layers without experts, q_lora_rank, and the values of ``ROUTER``.

A router that normalizes the weights of the chosen experts (route_norm) equals a softmax after the
choice. Source: torchtitan 0.3.0, models/qwen3/__init__.py, models/deepseek_v3/__init__.py."""
TIED = ("0.6B", "1.7B", "4B")
"""Flavors of qwen3 with tied embeddings."""


def read_model_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the features of the model that the module builds or gets from torchtitan's registry."""
    if "spec.flavor" in settings:
        yield from _registry_model_settings(settings)
        return
    yield from settings.expect(f"spec.{CALLED}", CodeExpression("model"))
    yield from settings.expect(f"model.{CALLED}", CodeExpression("dict"))
    yield from settings.expect(f"rope.{CALLED}", CodeExpression("dict"))
    yield from llama_model_settings(MODULE)
    yield DerivedSetting("problem.model.attention.qkv_bias", False, MODULE)
    for setting, field in SIZES.items():
        yield settings.read(f"problem.model.{field}", f"model.{setting}")
    yield from _rotary_settings(settings)


def _rotary_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the settings of rotary positions, with torchtitan's defaults for omitted settings."""
    yield settings.read("problem.model.attention.head_dim", "rope.dim")
    yield settings.read("problem.model.position.base", "rope.theta", 10000.0)
    longest = settings.get("rope.max_seq_len")
    enough = longest == settings.get("training.seq_len")
    yield settings.decide(
        "problem.model.position.max_positions",
        longest,
        "rope.max_seq_len",
        # PARC emits the sequence length if the model has fewer positions.
        lambda plan: enough and plan < longest,
    )
    scaling = settings.get("rope.scaling", "none")
    kind = translate_name(SCALINGS, scaling)
    yield settings.decide("problem.model.position.scaling", kind, "rope.scaling")
    if kind == "llama3":
        for setting, field, default in (
            ("scaling_factor", "scaling_factor", 8.0),
            ("original_max_position_embeddings", "original_max_positions", 8192),
        ):
            path = f"problem.model.position.{field}"
            yield settings.read(path, f"rope.{setting}", default)


def _registry_model_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the sizes and other features of the model that the module gets from the registry."""
    yield from settings.expect(f"spec.{CALLED}", CodeExpression("model_registry"))
    key = (str(settings.get("registry")), str(settings.get("spec.flavor")))
    found: dict[str, Any] = {}
    if key in DENSE_FLAVORS:
        found = dict(zip(FIELDS, DENSE_FLAVORS[key], strict=True)) | {"experts": None}
        found["tied_embeddings"] = key[1] in TIED
    elif key in EXPERT_FLAVORS:
        found = dict(zip((*FIELDS, *EXPERT_FIELDS), EXPERT_FLAVORS[key], strict=True))
        found |= {"tied_embeddings": False, "experts.latent_size": 0}
    else:
        yield settings.unexpected_setting("spec.flavor")
    found |= _other_features(key, found)
    for field, value in found.items():
        # The features without a value, such as a window, are those that a model does not have.
        if value is not None or field not in FIELDS:
            yield settings.decide(f"problem.model.{field}", value, "spec.flavor")


def _other_features(key: tuple[str, str], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features of a registered model other than its sizes, by the name of the field.

    ``key`` is (module, name of the model in the registry). ``sizes`` contains the sizes.
    """
    if not sizes:
        return {}
    llama = {path.removeprefix("problem.model."): value for path, value in LLAMA.items()}
    found = llama | (QWEN3 if key[0] == "qwen3" else DEEPSEEK)
    if key not in ROUTERS:
        return found
    del found["experts"]
    dense, q_lora_rank, *router = ROUTERS[key]
    found |= {f"experts.{name}": value for name, value in zip(ROUTER, router, strict=True)}
    found |= {"experts.bias": False, "experts.shared_gate": False}
    found["experts.pattern"] = [layer >= dense for layer in range(sizes["layers"])]
    if key[0] != "qwen3":
        del found["attention.latent"]
        found["attention.latent.q_lora_rank"] = q_lora_rank
        found["attention.kv_heads"] = sizes["attention.heads"]
    return found
