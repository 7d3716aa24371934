"""Search for a model in torchtitan's registry, and for model features that torchtitan lacks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.shared.torch.emitted_program import (
    routes_to_train,
    why_not_in_transformers,
)
from parc.backends.shared.unsupported_features import (
    hybrid_model_features,
    unsupported_model_features,
    unusual_features,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.frozen import frozen


@frozen
class Flavor:
    """A model with the name ``name`` in the registry of ``torchtitan.models.<module>``."""

    module: str
    name: str
    positions: int
    """Longest supported sequence, in tokens."""


@cache
def _flavor_table() -> dict[str, dict[str, Any]]:
    """Return ``flavors.yaml``, which lists the models in torchtitan's registry by model family.

    The row of a family contains torchtitan's Python module, the longest sequence, and the sizes and
    the other features of each registered model ("flavor").
    """
    text = (files("parc.backends.torchtitan") / "flavors.yaml").read_text("utf-8")
    tree: dict[str, dict[str, Any]] = parse_table(text)
    return tree


def find_registered_flavor(model: Model) -> Flavor | None:
    """Return the model in torchtitan's registry that equals ``model``; None if there is none."""
    flavor = _find_flavor_of_size(model)
    return None if flavor is None or _changed_features(model, flavor) else flavor


def _find_flavor_of_size(model: Model) -> Flavor | None:
    """Return the model in torchtitan's registry with the family and the sizes of ``model``.

    Return None if the registry has no such model. Other features of the models may differ.
    """
    entry = _flavor_table().get(model.family)
    if entry is None or model.mtp_layers or model.left_out:
        return None
    if any(hybrid_model_features(model)) or any(unusual_features(model)):
        return None
    if model.experts is not None and model.experts.latent_size:
        return None
    have = _model_sizes(model)
    for name, sizes in entry["flavors"].items():
        if all(have[key] == value for key, value in sizes.items()):
            return Flavor(entry["module"], name, entry["positions"])
    return None


def _model_sizes(model: Model) -> dict[str, int | bool]:
    """Return the sizes of ``model`` that are compared with torchtitan's models, by name."""
    experts = model.experts
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.attention.heads,
        "kv_heads": model.attention.kv_heads,
        "ffn": model.ffn.size,
        "vocab": model.vocab,
        "tied": model.tied_embeddings,
        "experts": experts.count if experts else 0,
        "top_k": experts.top_k if experts else 0,
        "expert": experts.size if experts else 0,
        "shared": experts.shared_size if experts else 0,
        "dense": model.dense_layers,
    }


def _changed_features(model: Model, flavor: Flavor) -> dict[str, tuple[Any, Any]]:
    """Return (spec field -> (value in ``model``, value in ``flavor``)) for different features."""
    entry = _flavor_table()[model.family]
    fixed = entry["features"] | entry.get("further", {}).get(flavor.name, {})
    values = {path: (_model_field(model, path), value) for path, value in fixed.items()}
    changed = {_spec_field(path): pair for path, pair in values.items() if pair[0] != pair[1]}
    if _model_field(model, "experts.router_bias") == "parameter":
        changed["model.experts.router_bias"] = ("parameter", "buffer")
    return changed


def _model_field(model: Model, path: str) -> Any:
    """Return the field ``path`` of ``model``; None if the section of the field is absent."""
    found: Any = model
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _spec_field(path: str) -> str:
    """Return the field of the spec that sets the field ``path`` of the IR type ``Model``."""
    renamed = {"attention.output_bias": "attention_output_bias", "ffn.bias": "mlp_bias"}
    plain = path.removeprefix("attention.").removeprefix("ffn.")
    return f"model.{renamed.get(path, plain)}"


def paths_of_unknown_model(model: Model) -> tuple[str, ...]:
    """Return the spec fields that cause the finding of ``explain_unknown_model``."""
    flavor = _find_flavor_of_size(model)
    return (*(_changed_features(model, flavor) if flavor else ()), "model")


def missing_model_features(model: Model) -> tuple[str, ...]:
    """Return descriptions of the features of ``model`` that torchtitan cannot build.

    The result is empty if torchtitan has the model in its registry.
    """
    if find_registered_flavor(model) is not None:
        return ()
    found = [part for part in unsupported_model_features(model) if part != "tied embeddings"]
    if model.attention.qkv_bias:
        found.append("biases on queries, keys and values")
    if model.position.scaling == "linear":
        found.append("linear scaling of positions")
    return tuple(found)


FIXED_BY_FLAVOR = (
    *("position.scaling_factor", "position.original_max_positions"),
    *("position.mscale", "position.mscale_all_dim"),
)
"""Fields of ``model`` that a registered model defines, and that ``flavors.yaml`` may lack."""


def report_changed_flavor(model: Model, sink: Sink) -> None:
    """Report fields of ``model`` that the spec changes without effect (E14).

    If torchtitan's registry has a model with the same sizes, torchtitan uses that model, which
    already defines these fields.
    """
    if find_registered_flavor(model) is None or not sink.positions.is_path_in_spec("model.base"):
        return
    for path in (f"model.{name}" for name in FIXED_BY_FLAVOR):
        if sink.positions.is_path_in_spec(path):
            finding = Finding(
                f"torchtitan does not use {path}",
                label=f"the registered model with the sizes of {model.name} defines this field",
                help="a model with other sizes, or of another family, is built from the spec",
                fix=f"remove {path}",
                targets=("torchtitan",),
            )
            sink.report("E14", finding, at=path, key=True)


def explain_unknown_model(problem: Problem) -> Finding:
    """Return the finding that torchtitan cannot build the model of ``problem``.

    The model is not in torchtitan's registry. torchtitan's general decoder cannot replace it,
    because that decoder lacks some features of the model.
    """
    model = problem.model
    flavor = _find_flavor_of_size(model)
    if flavor is not None:
        return _explain_changed_features(problem, flavor)
    names = [
        f"{family}: {', '.join(entry['flavors'])}" for family, entry in _flavor_table().items()
    ]
    # Without its prediction layers the model may be supported: suggest that edit rather than
    # another framework.
    mtp = model.mtp_layers and not missing_model_features(_without_mtp_layers(model))
    *others, last = missing_model_features(model)
    return Finding(
        message=f"torchtitan has no model with the sizes of {model.name}",
        label="a model outside of torchtitan's registry cannot have "
        f"{', '.join(others)}{' or ' if others else ''}{last}",
        help=f"valid models: plain decoders of any size; {'; '.join(names)}"
        f"{_name_other_program(problem)}",
        fix=f"model: {{base: {model.name}, mtp_layers: 0}}" if mtp else _other_framework(problem),
        targets=("torchtitan",),
    )


SHARDED = ("tp", "cp", "pp", "vpp", "ep", "etp")
"""Sizes of ``layout`` by which the program with transformers cannot shard a model."""


def _sharded_sizes(problem: Problem) -> list[str]:
    """Return the spec fields that split the model along any axis except data parallelism."""
    return [f"layout.{name}" for name in SHARDED if (getattr(problem.pins, name) or 1) > 1]


def _other_framework(problem: Problem) -> str:
    """Return the edit that selects the framework which trains the model; "" if there is none."""
    if not why_not_in_transformers(problem.model) and not _sharded_sizes(problem):
        return "emit: [fsdp]"
    return "emit: [megatron]" if _megatron_can_train(problem) else ""


def _megatron_can_train(problem: Problem) -> bool:
    """Return True if Megatron has no rule that every layout of the model violates."""
    from parc.backends.registry import framework

    other = framework("megatron")
    versions = (("megatron", other.default_version),)
    moved = replace(problem, framework="megatron", versions=versions)
    whole = Layout.__new__(Layout)  # rules that read no field of a layout
    return not any(not rule.reads and rule.broken(moved, whole) for rule in other.rules(moved))


def _name_other_program(problem: Problem) -> str:
    """Return the end of a help text that names the program which builds the model, if any."""
    if why_not_in_transformers(problem.model):
        if _megatron_can_train(problem):
            return ""
        return f"; {routes_to_train(problem.model)[0]}"
    sizes = _sharded_sizes(problem)
    without = f", without {', '.join(sizes)}" if sizes else ""
    return f"; fsdp trains {problem.model.name} with the library transformers{without}"


def _explain_changed_features(problem: Problem, flavor: Flavor) -> Finding:
    """Return the finding that the model has the sizes of ``flavor``, but not all its features."""
    model = problem.model
    changed = _changed_features(model, flavor)
    values = {
        path: (_spec_text(mine), _spec_text(value)) for path, (mine, value) in changed.items()
    }
    path, (_, value) = next(iter(values.items()))
    return Finding(
        message=f"torchtitan's {flavor.module} {flavor.name} has the sizes of {model.name}, "
        "but other features",
        label="; ".join(f"{path} is {mine}, not {value}" for path, (mine, value) in values.items()),
        help="torchtitan takes all features of a registered model from its registry"
        f"{_name_other_program(problem)}",
        fix=f"{path}: {value}" if len(values) == 1 else _other_framework(problem),
        targets=("torchtitan",),
    )


def _spec_text(value: Any) -> str:
    """Return ``value`` as YAML writes it."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _without_mtp_layers(model: Model) -> Model:
    """Return a copy of ``model`` that has no multi-token prediction layers."""
    return replace(model, mtp_layers=0)
