"""Train the model of an emitted deepspeed folder in one process of plain torch.

    python reference_training.py FOLDER WORK_FOLDER

Uses model.py (for one rank), the samples of train.py and the numbers of ds_config.json, but not
DeepSpeed's engine. Prints ``step N loss X`` as train.py does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    settings, config = (
        json.loads((folder / name).read_text("utf-8")) for name in ("train.json", "ds_config.json")
    )
    samples = settings["topology"]["data"] * config["train_micro_batch_size_per_gpu"]
    samples *= config["gradient_accumulation_steps"]
    settings["topology"] = dict.fromkeys(settings["topology"], 1)
    settings["recompute"] = False
    alone = Path(sys.argv[2])
    for name in ("model.py", "train.py", "checkpoints.py", "start.py", "data.py"):
        (alone / name).write_text((folder / name).read_text("utf-8"), "utf-8")
    (alone / "train.json").write_text(json.dumps(settings), "utf-8")
    sys.path.insert(0, str(alone))
    train(config, settings["steps"], samples)


def train(config: dict, steps: int, samples: int) -> None:
    import torch
    from deepspeed.runtime.lr_schedules import WarmupCosineLR
    from model import TransformerModel
    from train import batch

    model = TransformerModel()
    params = dict(config["optimizer"]["params"])
    params.pop("torch_adam")
    optimizer = torch.optim.AdamW(model.parameters(), **params)
    schedule = WarmupCosineLR(optimizer, **config["scheduler"]["params"])
    for step in range(steps):
        loss, _ = model(*batch(step, samples, 0, "cpu"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(f"step {step + 1} loss {loss.item():.6f}", flush=True)
    loss, _ = model(*batch(0, samples, 0, "cpu"))
    print(f"trained weights, first batch: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
