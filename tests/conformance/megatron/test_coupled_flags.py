"""Megatron rejects every combination of flags that PARC reports, and accepts the corrected one."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.capabilities import VERSIONS
from parc.backends.megatron.couplings.coupled_flags import COUPLINGS, TORCH_FSDP
from parc.backends.megatron.couplings.refused_combinations import REFUSED
from parc.backends.megatron.launch_files.launch_flags import read_launch
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.versions import is_in_range
from parc.compiler.tools.lint.flag_rules import FlagCoupling
from parc.compiler.tools.lint.script import read_script
from tests.conformance.megatron.cases import megatron_verdicts
from tests.lint.scripts import EXPERTS, MEGATRON, edited

pytestmark = pytest.mark.conformance
ROWS = (*REFUSED, *(row for row in COUPLINGS if row.flag == TORCH_FSDP))
VALUES = {
    "--cpu-offloading-num-layers": "2",
    "--moe-shared-expert-intermediate-size": "1536",
    "--moe-expert-capacity-factor": "1.0",
    "--moe-router-group-topk": "2",
    "--moe-router-num-groups": "8",
    "--lr-warmup-iters": "10",
    "--lr-warmup-fraction": "0.1",
    "--lr-decay-iters": "100",
    "--train-samples": "1000",
    "--train-iters": "1000",
    "--recompute-granularity": "selective",
    "--num-layers-per-virtual-pipeline-stage": "4",
    "--fp8-format": "hybrid",
}
"""Values of the flags that need one and that no row limits."""
WITH = {
    "--moe-shared-expert-overlap": {"--moe-shared-expert-intermediate-size": "1536"},
    "--overlap-param-gather": {"--overlap-grad-reduce": ""},
    "--overlap-param-gather-with-optimizer-step": {"--ckpt-format": "torch"},
    "--overlap-moe-expert-parallel-comm": {
        "--expert-model-parallel-size": "4",
        "--expert-tensor-parallel-size": "1",
        "--moe-token-dispatcher-type": "alltoall",
        "--num-layers-per-virtual-pipeline-stage": "4",
    },
    "--distribute-saved-activations": {
        "--recompute-granularity": "full",
        "--recompute-method": "uniform",
        "--recompute-num-layers": "1",
    },
    "--first-last-layers-bf16": {"--fp8-format": "hybrid"},
}
"""Flags that a flag needs for other reasons than a row of the table."""
ALWAYS = {
    **{"--vocab-size": "32000", "--tokenizer-type": "NullTokenizer", "--mock-data": ""},
    **{"--train-iters": "1000", "--lr": "1e-4", "--eval-iters": "0"},
}
EXPERT_FLAGS = ("--delay-wgrad-compute", "moe_act", "shared_experts")
"""Flags, and modules that are recomputed, of a model with experts."""
Flags = dict[str, str]


def base_flags(experts: bool) -> Flags:
    """Return the flags of the correct script of the lint tests, with values."""
    script = edited(MEGATRON, (EXPERTS,) if experts else ())
    flags = read_launch(read_script(script, "run.sh")).flags
    return {flag.name: " ".join(word.text for word in flag.values) for flag in flags} | ALWAYS


def corrected(flag: str, value: str) -> Flags:
    """Return the flags of a script with ``flag`` that satisfies all rows about it."""
    found = base_flags(flag in EXPERT_FLAGS or flag.startswith("--moe") or value in EXPERT_FLAGS)
    found[flag] = value or VALUES.get(flag, "")
    found |= WITH.get(flag, {})
    if flag == "--recompute-modules":
        found["--recompute-granularity"] = "selective"
    if flag == "--recompute-granularity" and value == "full":
        found |= {"--recompute-method": "uniform", "--recompute-num-layers": "1"}
    for row in ROWS:
        if row.flag != flag or row.value not in ("", value):
            continue
        for name in row.needs[:1]:
            found = found | WITH.get(name, {}) | {name: found.get(name, VALUES.get(name, ""))}
        found |= {name: values[0] for name, values in row.limits}
        found = {name: found[name] for name in found if name not in row.excludes}
    return found


def broken(row: FlagCoupling) -> list[Flags]:
    """Return one script per part of ``row``, which breaks only this part."""
    sound = corrected(row.flag, row.value)
    cases = []
    if row.needs:
        cases.append({name: sound[name] for name in sound if name not in row.needs})
    for name in row.excludes:
        cases.append(sound | WITH.get(name, {}) | {name: VALUES.get(name, "")})
    for name, values in row.limits:
        wrong = {"--pipeline-model-parallel-size": "2", "--expert-model-parallel-size": "2"}
        others = [one for one in rows_of_known_flags(PACKAGE)[name].get("choices", [])]
        bad = wrong.get(name) or next(one for one in others if one not in values)
        cases.append(sound | {name: bad})
    return cases


def case(name: str, flags: Flags) -> dict[str, Any]:
    argv = [word for flag, value in flags.items() for word in (flag, *value.split())]
    connections = "8" if TORCH_FSDP in flags else "1"
    return {
        "name": name,
        "argv": argv,
        "world_size": 32,
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": connections},
        "arch": 9,
        "ranks": [0],
        "any_exception": True,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_megatron_stops_at_every_broken_row_and_accepts_the_corrected_flags(version: str) -> None:
    known = rows_of_known_flags(PACKAGE)
    rows = [
        row
        for row in ROWS
        if is_in_range(version, known[row.flag].get("since"), known[row.flag].get("until"))
    ]
    sound = {f"{row.flag} {row.value}": corrected(row.flag, row.value) for row in rows}
    wrong = {
        f"{row.flag} {row.value} {number} {part}": flags
        for number, row in enumerate(rows)
        for part, flags in enumerate(broken(row))
    }
    cases = [case(name, flags) for name, flags in (sound | wrong).items()]
    verdicts = megatron_verdicts(cases, version)
    assert {name: verdicts[name]["error"] for name in sound if not verdicts[name]["accepted"]} == {}
    assert [name for name in wrong if verdicts[name]["accepted"]] == []
