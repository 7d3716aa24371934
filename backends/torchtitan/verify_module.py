"""Reader of ``torchtitan/parc_titan.py``: its settings, its model, and its other code.

The module is parsed, never executed. Its settings are the keywords of the calls ``SIZES = dict()``,
``ROPE = dict()`` and ``Trainer.Config()``, and the model that the function ``run`` uses. All other
code is the same in every module that PARC emits, up to eight variants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.shared.verify_torch import LLAMA, llama_model_settings
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.program_code import parse_program
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_settings import EmittedSettings, translate_name

MODULE = "torchtitan/parc_titan.py"
STAGES = "parallelism.module_fqns_per_model_part"
"""Setting with the modules of each pipeline stage."""
LOAD = "checkpoint.initial_load_path"
"""Setting with the folder from which the run starts."""
CALLED = "called"
"""Name of the setting that contains the function or class of a call."""
_TABLES = {"SIZES": "model", "ROPE": "rope"}
"""Variable of the module -> section of the settings."""
_REGISTRY = "model_registry"
_MODELS = "torchtitan.models."
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


@frozen
class CodeExpression:
    """Value that is an expression, not a literal."""

    source: str

    def __repr__(self) -> str:
        """Return the Python source of the expression, as findings show it."""
        return self.source


@frozen
class TitanModule:
    """Content of the emitted module."""

    settings: EmittedSettings
    code: ast.Module
    """The module with None in the place of each setting."""

    @property
    def variant(self) -> str:
        """Name of the code that a module with these settings must have.

        The code depends on whether the model is registered, whether there are pipeline stages, and
        whether the run starts from a checkpoint.
        """
        registered = f"spec.{CALLED}" in self.settings and "spec.flavor" in self.settings
        kind = "registry" if registered else "sizes"
        parts = {" stages": f"{STAGES}.{CALLED}", " loads": LOAD}
        there = (part for part, setting in parts.items() if setting in self.settings)
        return f"{MODULE} {kind}{''.join(there)}"


def read_module(text: str) -> TitanModule:
    """Return the content of the emitted module: its settings, and its code without the settings.

    Raises:
        MalformedFileError: the text is not a Python module with a function run that returns a call.
    """
    module = parse_program(MODULE, text)
    lines: dict[str, int] = {}
    try:
        tree = dict(_take_settings(module, lines))
    except (RecursionError, MemoryError):
        raise MalformedFileError(MODULE, 1, "the code is nested too deeply") from None
    if "config" not in tree:
        raise MalformedFileError(MODULE, 1, "no function run returns a Trainer.Config")
    config = tree.pop("config")
    tree |= config if isinstance(config, dict) else {"config": config}
    return TitanModule(EmittedSettings(MODULE, tree, lines), module)


def _take_settings(module: ast.Module, lines: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """Yield (section, settings of this section), and replace these settings in ``module`` by None.

    The line of each setting is stored in ``lines``.
    """
    for node in module.body:
        name = _assigned_name(node)
        if name in _TABLES and isinstance(node, ast.Assign):
            yield _TABLES[name], _parse_setting(node.value, _TABLES[name], lines)
            node.value = _ast_of_none()
        elif isinstance(node, ast.ImportFrom) and _imports_registry(node):
            lines["registry"] = node.lineno
            yield "registry", (node.module or "").removeprefix(_MODELS)
            node.module = _MODELS
        elif isinstance(node, ast.FunctionDef) and node.name == "run":
            yield from _take_run_settings(node, lines)


def _take_run_settings(
    function: ast.FunctionDef, lines: dict[str, int]
) -> Iterator[tuple[str, Any]]:
    for node in function.body:
        if isinstance(node, ast.Assign) and _assigned_name(node) == "spec":
            lines["spec"] = node.lineno
            yield "spec", _model_and_flavor(node.value)
            node.value = _ast_of_none()
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            # A keyword that is also a section would hide it, but Trainer.Config has none.
            yield "config", _parse_setting(node.value, "", lines)
            node.value = _ast_of_none()


def _model_and_flavor(node: ast.expr) -> dict[str, Any]:
    """Return the name of the function that provides the model, and its argument, as settings.

    The argument is the name of the model in torchtitan's registry; models built from sizes have
    none.
    """
    if isinstance(node, ast.Call) and not node.keywords:
        called = {CALLED: CodeExpression(ast.unparse(node.func))}
        if len(node.args) == 1:
            return called | {"flavor": _parse_literal(node.args[0])}
        if not node.args:
            return called
    return {CALLED: CodeExpression(ast.unparse(node))}


def _parse_setting(node: ast.expr, path: str, lines: dict[str, int]) -> Any:
    """Return the value of the expression ``node``.

    A literal has its own value. A call becomes a mapping of its function and its arguments. Any
    other expression is returned as its source code. The line of each setting is stored in
    ``lines``.
    """
    lines.setdefault(path, node.lineno)
    if not isinstance(node, ast.Call) or ast.unparse(node) == "float('inf')":
        return _parse_literal(node)
    names = [word.arg for word in node.keywords]
    if None in names or len(set(names)) != len(names):
        return CodeExpression(ast.unparse(node))
    found: dict[str, Any] = {CALLED: CodeExpression(ast.unparse(node.func))}
    for number, argument in enumerate(node.args):
        found[str(number)] = _parse_literal(argument)
    for word in node.keywords:
        place = f"{path}.{word.arg}".lstrip(".")
        lines[place] = word.value.lineno
        found[str(word.arg)] = _parse_setting(word.value, place, lines)
    return found


def _parse_literal(node: ast.expr) -> Any:
    if ast.unparse(node) == "float('inf')":
        return float("inf")
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return CodeExpression(ast.unparse(node))
    # A display such as {"a": 1} would be flattened like a section.
    return CodeExpression(ast.unparse(node)) if isinstance(value, dict | set) else value


def _assigned_name(node: ast.stmt) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else []
    one = targets[0] if len(targets) == 1 else None
    return one.id if isinstance(one, ast.Name) else ""


def _imports_registry(node: ast.ImportFrom) -> bool:
    return [one.name for one in node.names] == [_REGISTRY]


def _ast_of_none() -> ast.expr:
    return ast.Constant(value=None, lineno=1, col_offset=0)


def read_model_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the features of the model that the module builds or gets from torchtitan's registry."""
    if "spec.flavor" in settings:
        yield from _registry_model_settings(settings)
        return
    yield from settings.require(f"spec.{CALLED}", CodeExpression("model"))
    yield from settings.require(f"model.{CALLED}", CodeExpression("dict"))
    yield from settings.require(f"rope.{CALLED}", CodeExpression("dict"))
    yield from llama_model_settings(MODULE)
    yield DerivedSetting("problem.model.attention.qkv_bias", False, MODULE)
    for setting, field in SIZES.items():
        yield settings.derive_from(f"problem.model.{field}", f"model.{setting}")
    yield from _rotary_settings(settings)


def _rotary_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the settings of rotary positions, with torchtitan's defaults for omitted settings."""
    yield settings.derive_from("problem.model.attention.head_dim", "rope.dim")
    yield settings.derive_from("problem.model.position.base", "rope.theta", 10000.0)
    longest = settings.get("rope.max_seq_len")
    enough = longest == settings.get("training.seq_len")
    yield settings.derive(
        "problem.model.position.max_positions",
        longest,
        "rope.max_seq_len",
        # PARC emits the sequence length if the model has fewer positions.
        lambda plan: enough and plan < longest,
    )
    scaling = settings.get("rope.scaling", "none")
    kind = translate_name(SCALINGS, scaling)
    yield settings.derive("problem.model.position.scaling", kind, "rope.scaling")
    if kind == "llama3":
        for setting, field, default in (
            ("scaling_factor", "scaling_factor", 8.0),
            ("original_max_position_embeddings", "original_max_positions", 8192),
        ):
            path = f"problem.model.position.{field}"
            yield settings.derive_from(path, f"rope.{setting}", default)


def _registry_model_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the sizes and other features of the model that the module gets from the registry."""
    yield from settings.require(f"spec.{CALLED}", CodeExpression("model_registry"))
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
            yield settings.derive(f"problem.model.{field}", value, "spec.flavor")


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
