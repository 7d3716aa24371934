"""The causal language model of job.json, built by the library transformers (5.0 or newer)."""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from start import ADAPTERS, pretrained_weights
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

PLAN = json.loads(Path(__file__).with_name("job.json").read_text("utf-8"))
MODEL = PLAN["model"]
SIZES = {"num_hidden_layers": "layers", "hidden_size": "hidden", "vocab_size": "vocab"}
STORED = torch.bfloat16 if ADAPTERS else torch.float32  # format of weights; adapters are fp32
BALANCE = MODEL.get("aux_loss_coefficient", 0.0)  # weight of the load balance of experts


def model_config() -> PreTrainedConfig:
    """Return the config of the model; exit if it is not the model of the plan."""
    if "source" not in MODEL:  # a Llama with the sizes of the spec
        return LlamaConfig(**MODEL, use_cache=False)
    source = pretrained_weights() or MODEL["source"]
    if source.endswith(".json"):  # relative to the folder of the spec, in or above this folder
        folders = (Path.cwd(), *Path(__file__).resolve().parents)
        source = next((str(one / source) for one in folders if (one / source).is_file()), source)
    if "family" in MODEL:  # the config names a class that only the repository contains, a copy of this one
        values = PreTrainedConfig.get_config_dict(source)[0] | {"model_type": MODEL["family"]}
        config = AutoConfig.for_model(**values)
    else:
        config = AutoConfig.from_pretrained(source).get_text_config()
    for name, key in SIZES.items():
        if getattr(config, name) != MODEL[key]:
            found = getattr(config, name)
            raise SystemExit(f"{source} has {name} {found}, but the plan has {MODEL[key]}")
    config.use_cache = False
    if BALANCE and hasattr(config, "output_router_logits"):
        config.output_router_logits = True
    return config


def build_model(dtype: torch.dtype = STORED) -> nn.Module:
    """Return the model on the current device; on the device meta it needs no memory."""
    return adapted(AutoModelForCausalLM.from_config(model_config(), dtype=dtype))


def pretrained_model(dtype: torch.dtype = STORED) -> nn.Module:
    """Return the model with the weights that job.load_dir names."""
    config, source = model_config(), pretrained_weights()
    return adapted(AutoModelForCausalLM.from_pretrained(source, config=config, dtype=dtype))


def adapted(model: PreTrainedModel) -> nn.Module:
    """Return ``model`` with the LoRA adapters of the plan, if it has any."""
    if not ADAPTERS:
        return model
    from adapters import add_adapters

    return add_adapters(model)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of sequences with one more token for the labels."""
    outputs = model(input_ids=tokens[:, :-1])
    loss = F.cross_entropy(outputs.logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    balance = getattr(outputs, "aux_loss", None)
    return loss if balance is None else loss + BALANCE * balance
