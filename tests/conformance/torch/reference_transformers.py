"""Train the transformers model of an emitted folder in one process of plain torch.

    python reference_transformers.py FOLDER

FOLDER contains hf_model.py and data.py. Trains three steps of eight sequences with the optimizer of
test_transformers_runs.py, at a constant learning rate or with the schedule of a DeepSpeed config in
FOLDER. Prints ``step N loss X`` as the emitted programs do. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import hf_model
    import torch
    from data import PLAN, sequence

    torch.manual_seed(PLAN["seed"])
    folder = Path(sys.argv[1])
    model = built(hf_model, folder / "ds_config.json")
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3
    )
    schedule = schedule_of(folder / "ds_config.json", optimizer)
    for step in range(3):
        total = 0.0
        # Sequence by sequence, because a micro-batch balances its own experts.
        for number in range(8 * step, 8 * step + 8):
            loss = hf_model.loss_of(model, sequence(number, model.config.vocab_size)[None])
            (loss / 8).backward()
            total += loss.item() / 8
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step + 1} loss {total:.6f} ", flush=True)


def built(hf_model: Any, config: Path) -> Any:
    """Return the model with the weights that the run starts from.

    Under ZeRO-3 transformers skips torch's initialization and draws only its own. It gathers one
    module at a time, so that a module cannot set the weights of its children, which are empty then.
    """
    if config.exists() and json.loads(config.read_text())["zero_optimization"]["stage"] == 3:
        from transformers import initialization

        with initialization.no_init_weights():
            model = hf_model.build_model()
        for one in model.modules():
            if hasattr(one, "_init_weights"):
                one._init_weights = without_children(one._init_weights)
        model.initialize_weights()
        model.tie_weights()  # no_init_weights left it out
        return model
    model = hf_model.build_model()
    if hasattr(hf_model, "initialize"):
        hf_model.initialize(model)
    return model


def without_children(initialize: Any) -> Any:
    """Return ``initialize`` for modules whose children have empty weights during the call."""

    def initialize_alone(module: Any) -> None:
        own = {id(one) for one in module.parameters(recurse=False)}
        hidden = [(one, one.data) for one in module.parameters() if id(one) not in own]
        for weight, values in hidden:
            weight.data = values.new_empty(0)
        initialize(module)
        for weight, values in hidden:
            weight.data = values

    return initialize_alone


def schedule_of(config: Path, optimizer: Any) -> Any:
    """Return DeepSpeed's learning-rate schedule, or else a constant learning rate."""
    if config.exists():
        from deepspeed.runtime.lr_schedules import WarmupLR

        return WarmupLR(optimizer, **json.loads(config.read_text())["scheduler"]["params"])
    from torch.optim.lr_scheduler import ConstantLR

    return ConstantLR(optimizer, factor=1.0)


if __name__ == "__main__":
    main()
