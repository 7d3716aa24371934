"""The model and the samples of an emitted accelerate/train.py, in one process of plain torch.

    python plain_accelerate.py FOLDER

FOLDER holds what PARC emitted. Where it has a configuration of DeepSpeed, its schedule is followed.
Prints ``step N loss X`` as train.py does. Imports neither PARC nor pytest.
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
    from train import JOB, Sequences

    model = model_of(folder / "deepspeed/ds_config.json")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=JOB["learning_rate"], betas=(0.9, 0.95), weight_decay=0.1
    )
    schedule = schedule_of(folder / "deepspeed/ds_config.json", optimizer)
    samples = Sequences(JOB["steps"])
    for step in range(JOB["steps"]):
        first = step * JOB["global_batch"]
        numbers = range(first, first + JOB["global_batch"])
        tokens = torch.stack([samples[number]["input_ids"] for number in numbers])
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), JOB["max_norm"])
        optimizer.step()
        if schedule is not None:
            schedule.step()
        optimizer.zero_grad()
        print(f"step {step + 1} loss {loss.item():.6f} ", flush=True)


def model_of(config: Path) -> Any:
    """The model with the weights that the run starts from.

    Under ZeRO-3 transformers leaves the initialisation of torch out and draws its own alone.
    """
    from train import build
    from transformers import initialization

    stage = json.loads(config.read_text())["zero_optimization"]["stage"] if config.exists() else 0
    if stage < 3:
        return build()
    with initialization.no_init_weights():
        model = build()
    model.initialize_weights()
    return model


def schedule_of(config: Path, optimizer: Any) -> Any:
    """DeepSpeed's learning rates; None where a constant one is meant."""
    if not config.exists():
        return None
    from deepspeed.runtime.lr_schedules import WarmupCosineLR

    return WarmupCosineLR(optimizer, **json.loads(config.read_text())["scheduler"]["params"])


if __name__ == "__main__":
    main()
