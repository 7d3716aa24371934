"""Fixes of parallel sizes: once applied, they lead to no further error of the same flag."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from parc.compiler.diagnostics import Diagnostic
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import EXPERTS, MEGATRON, PP, TP, edited
from tests.samples import sample_of

SIZES = {"--num-layers": 32, "--num-attention-heads": 32, "--num-query-groups": 8, TP: 4, PP: 2}
OPTIONS = LintOptions()


def _script(sizes: dict[str, int], text: str = MEGATRON) -> str:
    """Return the script with other ``sizes``; a size that it lacks is appended."""
    for flag, size in sizes.items():
        if re.search(rf"{flag} \d+", text):
            text = re.sub(rf"{flag} \d+", f"{flag} {size}", text)
        else:
            text = text.replace("    --bf16\n", f"    --bf16 {flag} {size}\n")
    return text


@cache
def _errors(script: str) -> list[Diagnostic]:
    sink, _ = lint_text(script, "run.sh", OPTIONS)
    return [one for one in sink.diagnostics if one.severity == "error"]


def _fixed(script: str, fix: str) -> str:
    flag, value = fix.split()
    return re.sub(rf"{flag} \d+", f"{flag} {value}", script)


def _check_fixes(script: str) -> int:
    """Apply each fix that sets a number; return the number of such fixes."""
    settings = [one for one in _errors(script) if re.fullmatch(r"--\S+ \d+", one.finding.fix)]
    for found in settings:
        fix = found.finding.fix
        after = _errors(_fixed(script, fix))
        flag = fix.split()[0]
        remaining = [one for one in after if one.path == flag or one.finding.fix.startswith(flag)]
        assert [(one.code, one.finding.message) for one in remaining] == [], fix
        assert (found.code, found.path) not in {(one.code, one.path) for one in after}
    return len(settings)


def test_stages_that_divide_the_layers_also_divide_the_gpus() -> None:
    # 30 layers are divisible by pp 5, but 16 GPUs are not divisible by tp 2 x pp 5.
    sizes = {"--nnodes": 2, "--num-layers": 30, TP: 2, PP: 4}
    (found,) = _errors(_script(sizes))
    assert found.finding.fix == f"{PP} 2"
    assert found.finding.help == "valid pp: 1, 2"
    (found,) = _errors(_script({**sizes, PP: 5}))
    assert found.finding.fix == f"{PP} 2"
    assert found.finding.help == "valid pp with tp 2 and cp 1: 1, 2"


def test_a_fix_that_works_stays_as_it_is() -> None:
    (found,) = _errors(edited(MEGATRON, (("--global-batch-size 128", "--global-batch-size 130"),)))
    assert found.finding.fix == "--global-batch-size 132"


@pytest.mark.parametrize("seed", sample_of(range(40), 20))
def test_fixes_of_random_layouts_lead_to_no_error_of_the_same_flag(seed: int) -> None:
    choose = random.Random(seed)
    sizes = {
        "--nnodes": choose.choice((1, 2, 3, 4, 6)),
        "--num-layers": choose.choice((24, 28, 30, 32, 36, 40)),
        "--num-attention-heads": choose.choice((24, 32, 40)),
        "--num-query-groups": choose.choice((4, 8)),
        TP: choose.choice((1, 2, 3, 4, 6, 8)),
        PP: choose.choice((1, 2, 3, 4, 5, 6, 8)),
        "--context-parallel-size": choose.choice((1, 1, 2, 3)),
        "--global-batch-size": choose.choice((64, 96, 100, 128)),
    }
    experts = choose.random() < 0.3
    text = edited(MEGATRON, (EXPERTS,)) if experts else MEGATRON
    if experts:
        sizes["--expert-model-parallel-size"] = choose.choice((1, 2, 4, 6, 8))
    script = _script(sizes, text)
    for _ in range(len(sizes)):
        if not _check_fixes(script):
            break
        fixes = [one.finding.fix for one in _errors(script)]
        script = _fixed(script, next(fix for fix in fixes if re.fullmatch(r"--\S+ \d+", fix)))
    assert not _check_fixes(script), "the fixes form a loop"


def test_the_random_layouts_have_fixes() -> None:
    wrong = [{PP: pp, "--num-layers": layers} for pp in (3, 5, 7) for layers in (30, 32)]
    assert sum(_check_fixes(_script(one)) for one in wrong) >= 6
