"""Checkpoints of DeepSpeed's engine: where the run starts, and when it saves."""

from pathlib import Path

from deepspeed import DeepSpeedEngine
from start import PLAN, SAVE, Start, find_start


def newest(folder: str) -> str | None:
    """Return ``folder`` if it has checkpoints; DeepSpeed names the newest one in the file latest."""
    return folder if Path(folder, "latest").is_file() else None


def start_of_run(reads_pretrained: bool) -> Start:
    """Return what the run loads; exit if it has nothing to start from."""
    return find_start(newest, "a folder with the file latest", reads_pretrained=reads_pretrained)


def load(engine: DeepSpeedEngine, start: Start) -> None:
    """Load a checkpoint into the engine, which also sets its number of steps."""
    if start.weights_only:
        weights = {"load_module_only": True, "load_optimizer_states": False}
        engine.load_checkpoint(start.checkpoint, load_lr_scheduler_states=False, **weights)
    elif start.checkpoint:
        engine.load_checkpoint(start.checkpoint)
    start.check_steps(engine.global_steps, PLAN["steps"])


def save_if_due(engine: DeepSpeedEngine, step: int) -> None:
    """Save a checkpoint after every interval, and after the last step."""
    if SAVE and (step % PLAN["checkpoint"]["interval"] == 0 or step == PLAN["steps"]):
        engine.save_checkpoint(SAVE)
