"""Programs of many model families and strategies reach the losses of one process.

By default, one family runs. ``PARC_CONFORMANCE_FAMILIES=all`` runs all families of
tiny_families.yaml, which takes about 25 s of CPU time per family, and ``=llama,opt`` these two.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.conformance.tool_checkers import family_verdicts
from tests.conformance.torch.test_accelerate_runs import set_fp32
from tests.conformance.torch.test_transformers_runs import REFERENCE, SIZES, losses, write_files

pytestmark = pytest.mark.conformance
FAMILIES: dict[str, dict[str, Any]] = parse_table(
    Path(__file__).with_name("tiny_families.yaml").read_text("utf-8")
)
STRATEGIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "DDP": ("fsdp", {"zero_stage": 0}, "DDP"),
    "FSDP2": ("fsdp", {"zero_stage": 3}, "DDP"),
    "HSDP": ("fsdp", {"zero_stage": 3, "dp_shard": 2}, "DDP"),
    "ZeRO-1": ("deepspeed", {"zero_stage": 1}, "ZeRO-1"),
    "ZeRO-2": ("deepspeed", {"zero_stage": 2}, "ZeRO-1"),
    "ZeRO-3": ("deepspeed", {"zero_stage": 3}, "ZeRO-3"),
}
"""Strategy -> (target, pins of the layout, strategy whose model and data one process trains)."""
CHOSEN = os.environ.get("PARC_CONFORMANCE_FAMILIES", "gpt2")


def config_of(family: str) -> dict[str, Any]:
    """Return the tiny config of a family; a key with the value null is not in it."""
    whole = SIZES | {"tie_word_embeddings": False} | FAMILIES[family] | {"model_type": family}
    return {key: value for key, value in whole.items() if value is not None}


def emitted_case(family: str, strategy: str, folder: Path) -> dict[str, Any]:
    """Write the files of a strategy, and return the case of family_ranks.py that trains with
    them.
    """
    target, layout, _ = STRATEGIES[strategy]
    folder.mkdir(parents=True)
    job = {"warmup_steps": 2} if target == "deepspeed" else {}
    spec: dict[str, Any] = {"job": job, "layout": layout, "emit": [target]}
    spec["launch"] = {"program": "transformers"}  # fsdp has a program of its own for many models
    write_files(config_of(family), spec, folder)
    case = {"family": family, "ranks": 4}
    if target == "fsdp":
        words = ["--device", "cpu", "--dtype", "fp32"]
        return case | {"program": str(folder / "fsdp/train.py"), "arguments": words}
    config = folder / "deepspeed/ds_config.json"
    set_fp32(config)
    words = ["--deepspeed", "--deepspeed_config", str(config)]
    return case | {"program": str(folder / "deepspeed/hf_train.py"), "arguments": words}


@pytest.mark.parametrize("family", FAMILIES if CHOSEN == "all" else CHOSEN.split(","))
def test_every_strategy_reaches_the_losses_of_one_process(family: str, tmp_path: Path) -> None:
    cases = {one: emitted_case(family, one, tmp_path / one) for one in STRATEGIES}
    alone = {"family": family, "ranks": 1, "program": str(REFERENCE)}
    for one in sorted({same for _, _, same in STRATEGIES.values()}):
        folder = Path(cases[one]["program"]).parent
        cases[f"{one} alone"] = alone | {"arguments": [str(folder)]}
    verdicts = dict(zip(cases, family_verdicts([*cases.values()]), strict=True))
    found = {name: losses(one.get("output", "")) for name, one in verdicts.items()}
    print(json.dumps({family: found}))
    stopped = [f"{name}: {one['error']}" for name, one in verdicts.items() if "error" in one]
    assert not stopped
    for strategy, (_, _, same) in STRATEGIES.items():
        wanted = found[f"{same} alone"]
        assert len(set(wanted)) == 3, "the weights change"
        assert found[strategy] == pytest.approx(wanted, abs=2e-6), strategy
