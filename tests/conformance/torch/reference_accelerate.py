"""Train the model of an emitted accelerate/train.py on its samples, in one process of plain torch.

    python reference_accelerate.py FOLDER

FOLDER contains the files that PARC emitted for the optimizer of test_accelerate_runs.py. If it has
a DeepSpeed config, that file's learning-rate schedule is used. Prints ``step N loss X`` as
train.py does. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder / "accelerate"))
    import torch
    from hf_model import loss_of
    from train import JOB, Sequences

    model = model_of(folder / "deepspeed/ds_config.json")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.02, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3
    )
    schedule = schedule_of(folder / "deepspeed/ds_config.json", optimizer)
    samples = Sequences(JOB["steps"], model.config.vocab_size)
    for step in range(JOB["steps"]):
        first = step * JOB["global_batch"]
        numbers = range(first, first + JOB["global_batch"])
        loss = loss_of(model, torch.stack([samples[number] for number in numbers]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step + 1} loss {loss.item():.6f} ", flush=True)


def model_of(config: Path) -> Any:
    """Return the model with the weights that the run starts from.

    Under ZeRO-3 transformers skips torch's initialization and draws only its own.
    """
    from train import build
    from transformers import initialization

    stage = json.loads(config.read_text())["zero_optimization"]["stage"] if config.exists() else 0
    if stage < 3:
        return build()
    with initialization.no_init_weights():
        model = build()
    model.initialize_weights()
    model.tie_weights()  # no_init_weights left it out
    return model


def schedule_of(config: Path, optimizer: Any) -> Any:
    """Return DeepSpeed's learning-rate schedule, or else one step of warm-up and a linear decay
    over the remaining steps.
    """
    if config.exists():
        from deepspeed.runtime.lr_schedules import WarmupDecayLR

        return WarmupDecayLR(optimizer, **json.loads(config.read_text())["scheduler"]["params"])
    from torch.optim.lr_scheduler import LambdaLR
    from train import JOB

    decay = JOB["steps"] - 1
    return LambdaLR(optimizer, lambda step: 1 - max(step - 1, 0) / decay)


if __name__ == "__main__":
    main()
