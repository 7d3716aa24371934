"""Where the run of job.json starts: its own newest checkpoint, else job.load_dir, else random weights."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PLAN = json.loads(Path(__file__).with_name("job.json").read_text("utf-8"))
SAVE, LOAD = PLAN["checkpoint_dir"], PLAN["load_dir"]  # empty: none
FINETUNE = PLAN["kind"] == "finetune"
ADAPTERS = PLAN.get("lora") is not None  # only LoRA adapters are trained and saved
EXPORT = "adapter" if ADAPTERS else "hugging-face"  # folder of the trained weights


@dataclass(frozen=True)
class Start:
    """Checkpoint that the run loads before its first step."""

    checkpoint: str = ""  # empty: the weights are random, or those of pretrained_weights()
    weights_only: bool = False  # the run begins at step 0 with a new optimizer
    resumes: bool = False  # the checkpoint is one of this run

    def check_steps(self, done: int, steps: int) -> None:
        """Exit if the checkpoint of another run has as many steps as this run."""
        if done >= steps and not self.resumes:
            raise SystemExit(
                f"job.load_dir: {self.checkpoint} has {done} steps, so a run of {steps} steps would do nothing. "
                "Increase job.steps, or set job.kind: finetune to start at step 0"
            )


def pretrained_weights() -> str:
    """Return the folder or the hub repository of weights in the format of Hugging Face; "" if none.

    A finished run has such weights in the folder hugging-face of its checkpoints.
    """
    folders = (LOAD, f"{LOAD}/hugging-face") if FINETUNE else (LOAD,)
    found = [one for one in folders if LOAD and Path(one, "config.json").is_file()]
    if found:
        return found[0]
    is_repository = re.fullmatch(r"\w[\w.-]*/[\w.-]+", LOAD) and not Path(LOAD).exists()
    return LOAD if is_repository else ""


def find_start(
    newest: Callable[[str], str | None],
    files: str,
    *,
    reads_pretrained: bool = True,
    reads_weights: bool = True,
) -> Start:
    """Return what the run loads; exit if job.load_dir has nothing that the program can start from.

    ``newest`` returns the newest checkpoint in a folder, and ``files`` describes it. The program reads
    the format of Hugging Face if ``reads_pretrained``, and the weights of a checkpoint without its
    optimizer if ``reads_weights``.
    """
    own = newest(SAVE) if SAVE else None
    reads_weights = reads_weights and not ADAPTERS  # checkpoints name the weights without adapters
    if own and (pretrained_weights() or not ADAPTERS):  # checkpoints of adapters lack frozen weights
        return Start(own, resumes=True)
    if not LOAD or (reads_pretrained and pretrained_weights()):
        return Start()
    if pretrained_weights():
        raise SystemExit(
            f"job.load_dir: {LOAD} has weights in the format of Hugging Face, which this program cannot "
            "read. Set launch.program: transformers in the spec"
        )
    base = newest(LOAD)
    if base and (reads_weights or not FINETUNE):
        return Start(base, weights_only=FINETUNE)
    valid = ["weights in the format of Hugging Face (config.json)"] if reads_pretrained else []
    valid += [f"a checkpoint ({files})"] if reads_weights or not FINETUNE else []
    raise SystemExit(f"job.load_dir: {LOAD} does not contain {' or '.join(valid)}")
