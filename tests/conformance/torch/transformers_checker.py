"""Count the trained parameters of the model that transformers builds from a config.

    python transformers_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "config": {...}}, with the content of a config.json. A verdict adds "parameters",
and "facts" of the config with its defaults: rotary base and share, longest context, epsilon of the
norms, window, layers without a window, experts per token; null if a class has no such field.
"numbers" are the whole numbers of the config with its defaults.
If the case has "tp", a verdict adds "parameters_on_rank": those of one of tp ranks after the own
tensor-parallel plan of the model was applied.
The class of the text part of a multi-modal model has no output projection; it is added here.

Runs under the Python that has torch and transformers; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Verdict, answer_cases, import_before_forks


def check(case: Case, verdict: Verdict) -> None:
    """Read the config, build the model, and count."""
    import torch
    from transformers import AutoConfig

    written = dict(case["config"])
    verdict["stage"] = "config"
    config = AutoConfig.for_model(written.pop("model_type"), **written)
    verdict["facts"] = facts(config)
    values = config.to_dict().items()
    verdict["numbers"] = {key: value for key, value in values if type(value) is int}
    verdict["stage"] = "model"
    with torch.device("meta"):
        model, head = built(config)
    trained = (weight for weight in model.parameters() if weight.requires_grad)
    verdict["parameters"] = head + sum(weight.numel() for weight in trained)
    if "tp" in case:
        verdict["stage"] = "split"
        verdict["parameters_on_rank"] = parameters_on_rank(model, case["tp"])


def parameters_on_rank(model: Any, tp: int) -> int:
    """Return the number of parameters of one of ``tp`` ranks; no rank communicates."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=tp)
    mesh = init_device_mesh("cpu", (tp,), mesh_dim_names=("tp",))
    apply_tensor_parallelism(model, mesh)
    model.tie_weights()
    whole = (one for one in model.parameters() if one.requires_grad)
    return sum(getattr(one, "_local_tensor", one).numel() for one in whole)


EPSILON = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")


def facts(config: Any) -> dict[str, Any]:
    """Return the settings other than shapes that PARC reads too."""
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    epsilons = [getattr(config, key, None) for key in EPSILON]
    types = getattr(config, "layer_types", None) or []
    visited = getattr(config, "num_experts_per_tok", None)
    return {
        "base": rope.get("rope_theta"),
        "percent": rope.get("partial_rotary_factor"),
        "max_positions": getattr(config, "max_position_embeddings", None),
        "norm_epsilon": next((epsilon for epsilon in epsilons if epsilon), None),
        "window": getattr(config, "sliding_window", None) if "sliding_attention" in types else None,
        "full_layers": [n for n, kind in enumerate(types) if kind != "sliding_attention"] or None,
        "top_k": visited[0] if isinstance(visited, list) else visited,
    }


def built(config: Any) -> tuple[Any, int]:
    """Return the model, and the number of parameters of an output projection that it lacks."""
    from transformers import AutoModel, AutoModelForCausalLM

    if (
        config.model_type.endswith("_text")
        and type(config) not in AutoModelForCausalLM._model_mapping
        and type(config) in AutoModel._model_mapping
    ):
        tied = getattr(config, "tie_word_embeddings", False)
        head = 0 if tied else config.vocab_size * config.hidden_size
        return AutoModel.from_config(config), head
    if type(config) not in AutoModelForCausalLM._model_mapping:
        # A text part that only the class of the whole model builds, such as Step 3.5.
        module = import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
        name = type(config).__name__.replace("Config", "Model")
        owned = (one for one in vars(module).values() if is_model_of(one, config))
        model = getattr(module, name, None) or next(owned)
        return model(config), config.vocab_size * config.hidden_size
    return AutoModelForCausalLM.from_config(config), 0


def is_model_of(found: Any, config: Any) -> bool:
    """Return True if ``found`` is the class of the model with this config, without a head."""
    owned = getattr(found, "config_class", None) is type(config)
    return owned and found.__name__.endswith("Model") and "PreTrained" not in found.__name__


def module_of(case: Case) -> tuple[str, ...]:
    """Return the module of the model's class, which takes seconds to import and may belong to
    another family.
    """
    from transformers import CONFIG_MAPPING

    known = case["config"]["model_type"]
    config = CONFIG_MAPPING[known].__module__ if known in CONFIG_MAPPING else ""
    module = config.replace(".configuration_", ".modeling_")
    return (module,) if module and find_spec(module) else ()


def main() -> int:
    import_before_forks("torch", "transformers")
    return answer_cases(check, needs=module_of)


if __name__ == "__main__":
    sys.exit(main())
