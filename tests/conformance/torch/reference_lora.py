"""Check LoRA adapters that an emitted program has trained, in one process with plain peft.

    python reference_lora.py train FOLDER STEPS
    python reference_lora.py evaluate FOLDER ADAPTER STEP

FOLDER contains hf_model.py and data.py. ``train`` trains the whole model in fp32 and prints ``step
N loss X`` as the programs do. ``evaluate`` loads the base model and the saved adapter with peft
alone, and prints one JSON object: the settings, tensors and formats of the adapter, and the loss on
the batch of STEP (counted from 0) without and with the adapter. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path.insert(0, sys.argv[2])
    if sys.argv[1] == "train":
        train(int(sys.argv[3]))
    else:
        evaluate(sys.argv[3], int(sys.argv[4]))


def mean_loss(model: Any, step: int) -> Any:
    """Return the mean loss of the batch of a step."""
    import hf_model
    from data import PLAN, sequence

    size = PLAN["global_batch"]
    rows = range(step * size, (step + 1) * size)
    return sum(hf_model.loss_of(model, sequence(one, 128)[None]) / size for one in rows)


def train(steps: int) -> None:
    """Train without any sharding, from the adapters that the emitted program starts with."""
    import hf_model
    import torch
    import torch.distributed as dist
    from data import PLAN

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with torch.device("meta"):
        model = hf_model.build_model()
    model.to_empty(device="cpu")
    hf_model.initialize(model)
    model.train().to(torch.float32)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(
        trained,
        lr=PLAN["learning_rate"],
        betas=(PLAN["adam_beta1"], PLAN["adam_beta2"]),
        eps=PLAN["adam_epsilon"],
        weight_decay=PLAN["weight_decay"],
    )
    for step in range(steps):
        loss = mean_loss(model, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, PLAN["max_norm"])
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1} loss {loss.item():.6f} ", flush=True)


def evaluate(folder: str, step: int) -> None:
    """Print what plain peft makes of a saved adapter."""
    import torch
    from data import PLAN
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(PLAN["load_dir"], dtype=torch.float32).eval()
    with torch.no_grad():
        before = mean_loss(base, step).item()
        adapted = PeftModel.from_pretrained(base, folder).eval()
        after = mean_loss(adapted, step).item()
    saved = load_file(Path(folder, "adapter_model.safetensors"))
    loaded = {
        name.replace(".default.", "."): one
        for name, one in adapted.state_dict().items()
        if "lora_" in name
    }
    config = json.loads(Path(folder, "adapter_config.json").read_text())
    found = {
        "settings": [config["r"], config["lora_alpha"], sorted(config["target_modules"])],
        "base": config["base_model_name_or_path"],
        "tensors": sorted(saved),
        "missing": sorted(set(loaded) ^ set(saved)),
        "formats": sorted({str(one.dtype) for one in saved.values()}),
        "untrained": [name for name, one in saved.items() if not one.any()],
        "before": before,
        "after": after,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
