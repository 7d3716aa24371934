"""Check emitted settings with the real ConfigContainer of Megatron-Bridge, on a CPU.

    python bridge_checker.py MEGATRON_FOLDER BRIDGE_FOLDER < cases.jsonl > verdicts.jsonl

A case: {"name", "config", "program", "overrides": [], "world_size", "env": {}, "arch": 9, "argv"}.
A verdict: {"name", "accepted", "stage", "error", "unread", "differences", "changed", "shape"}.

Stages:

    recipe     the emitted program builds the ConfigContainer
    validate   runtime_config_update, as pretrain calls it
    megatron   Megatron-LM builds its configs from ``argv``, the flags of the same plan

``unread`` lists settings that the container does not have, ``differences`` the fields of the
dataclasses of Megatron-Core whose values differ between the container and Megatron-LM, and
``changed`` those whose values change if the settings in ``"removed"`` are removed from the file.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

import absent_modules
from emulated_gpu import hardware, make_megatron_importable, read_docstrings_once, swapped
from megatron_checker import REJECTIONS, configure, parse, validate
from megatron_optimizer import precision_aware_optimizer

ABSENT = (
    *("transformer_engine", "transformer_engine_torch", "nvidia_resiliency_ext", "modelopt"),
    *("datasets", "webdataset", "wandb", "PIL", "tensorboard", "tensorflow", "megatron.energon"),
    "torch.utils.tensorboard",
)
"""Packages that Megatron-Bridge imports, but whose functions no check calls."""
GPUS = {8: "NVIDIA A100", 9: "NVIDIA H100", 10: "NVIDIA B200"}
Verdict = dict[str, Any]


def make_bridge_importable(folder: str) -> None:
    """Make Megatron-Bridge importable from ``folder``; call it after the same for Megatron-Core."""
    import megatron.core.utils  # noqa: F401  (before the stand-ins, which it would look for)

    absent_modules.any_name = _any_name
    absent_modules.install_absent_modules(*ABSENT)
    importlib.import_module("transformer_engine.pytorch.ops")
    sys.path.append(folder)
    sys.modules["megatron"].__path__.append(f"{folder}/megatron")
    # The loop of the training is not checked, and imports loggers and resilience.
    for name in ("pretrain", "gpt_step"):
        module = ModuleType(f"megatron.bridge.training.{name}")
        vars(module).update(pretrain=None, forward_step=None)
        sys.modules[module.__name__] = module


def _any_name(name: str) -> Any:
    if name == "__version__":
        return "2.19.0"
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda *_, **__: None})


def named_gpu(major: int) -> contextlib.AbstractContextManager[None]:
    """Give the emulated GPU a name, which Megatron-Bridge reads for its token dispatchers."""
    import torch

    device = SimpleNamespace(major=major, minor=0, name=GPUS.get(major, ""))
    return swapped([(torch.cuda, "get_device_properties", lambda *_, **__: device)])


def build(case: dict[str, Any], folder: Path) -> Any:
    """Return the container that the emitted program builds from the emitted settings."""
    settings, program = folder / "config.yaml", folder / "pretrain.py"
    settings.write_text(case["config"], "utf-8")
    program.write_text(case["program"], "utf-8")
    recipe = runpy.run_path(str(program))["recipe"]
    return recipe(str(settings), case.get("overrides", []))


def unread(case: dict[str, Any], container: Any) -> list[str]:
    """Return the settings of the file that are not fields of the container."""
    import yaml

    tree = yaml.safe_load(case["config"])
    found = []
    for section, values in tree.items():
        own = {one.name for one in dataclasses.fields(getattr(container, section))}
        found += [f"{section}.{name}" for name in values if name not in own]
    return found


def yaml_sections(case: dict[str, Any]) -> list[str]:
    """Return the sections of the settings, without the one that only changes other sections."""
    import yaml

    return [one for one in yaml.safe_load(case["config"]) if one != "comm_overlap"]


def without(case: dict[str, Any]) -> str:
    """Return the settings without those in ``case["removed"]``, numbers of lines."""
    lines = case["config"].splitlines()
    kept = [line for number, line in enumerate(lines, 1) if number not in case["removed"]]
    empty = [at for at, line in enumerate(kept) if not line.startswith((" ", "#"))]
    full = [at for at in empty if at + 1 < len(kept) and kept[at + 1].startswith(" ")]
    return "\n".join(line for at, line in enumerate(kept) if at not in empty or at in full) + "\n"


@precision_aware_optimizer()
def megatron_configs(case: dict[str, Any]) -> dict[str, Any]:
    """Return Megatron-LM's configs for the flags of the same plan."""
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    args = parse(case)
    validate(args)
    return {
        "model": configure(args),
        "optimizer": get_megatron_optimizer_config(args)[0],
        "ddp": get_megatron_ddp_config(args),
    }


def differences(container: Any, configs: dict[str, Any]) -> dict[str, list[str]]:
    """Return field -> (value in the container, value of Megatron-LM) for values that differ."""
    found = {}
    for section, config in configs.items():
        own = getattr(container, section)
        for field in dataclasses.fields(config):
            ours, theirs = (_shown(getattr(one, field.name, None)) for one in (own, config))
            if ours != theirs:
                found[f"{section}.{field.name}"] = [ours, theirs]
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(one) for one in value)}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if dataclasses.is_dataclass(value) or type(value).__module__.startswith("megatron"):
        return getattr(value, "name", None) or type(value).__name__
    return getattr(value, "__qualname__", None) or str(value)


def check(case: dict[str, Any]) -> Verdict:
    """Run the stages in order, up to the first that rejects the case."""
    verdict: Verdict = {"name": case["name"], "accepted": False, "stage": "recipe"}
    from megatron.bridge.training.config import runtime_config_update

    world = {"WORLD_SIZE": str(case["world_size"]), "RANK": "0", "LOCAL_RANK": "0"}
    before = dict(os.environ)
    os.environ.update({**case.get("env", {}), **world})
    try:
        with (
            hardware(case.get("arch", 9)),
            named_gpu(case.get("arch", 9)),
            contextlib.redirect_stdout(sys.stderr),
            tempfile.TemporaryDirectory() as folder,
        ):
            container = build(case, Path(folder))
            verdict["unread"] = unread(case, container)
            verdict["stage"] = "validate"
            runtime_config_update(container)
            verdict["shape"] = {
                "dp": container.data_parallel_size,
                "class": type(container.model).__name__,
                "train_iters": container.train.train_iters,
            }
            if "argv" in case:
                verdict["stage"] = "megatron"
                verdict["differences"] = differences(container, megatron_configs(case))
            if "removed" in case:
                verdict["stage"] = "removed"
                other = build(case | {"config": without(case)}, Path(folder))
                runtime_config_update(other)
                own = {name: getattr(container, name) for name in yaml_sections(case)}
                verdict["changed"] = differences(other, own)
        verdict.update(accepted=True, stage="")
    except REJECTIONS as rejection:
        verdict["error"] = f"{type(rejection).__name__}: {rejection}"[:500]
    finally:
        os.environ.clear()
        os.environ.update(before)
    return verdict


def main() -> int:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        make_megatron_importable(sys.argv[1])
        import megatron.training.arguments  # noqa: F401

        make_bridge_importable(sys.argv[2])
        import megatron.bridge.training.config  # noqa: F401
    read_docstrings_once()
    for line in sys.stdin:
        print(json.dumps(check(json.loads(line))), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
