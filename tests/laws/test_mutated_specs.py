"""A mutated spec gives a plan or diagnostics, but never a traceback or a hang.

PARC_FUZZ=10000 sets the number of specs; the default keeps the suite fast.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.render.text import render_text
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.reading.source import Source

ROOT = Path(__file__).parents[2]
SEEDS = ("gpt2-small", "mixtral-8x7b", "llama-3-70b", "deepseek-v3")
COUNT = int(os.environ.get("PARC_FUZZ", "250"))
SECONDS = 20

SCALARS = (
    *("0", "-1", "1", "3", "7", "1e308", "-0.0", ".nan", ".inf", "10000000000000000000000000"),
    *("true", "null", "~", "''", '"8"', "[]", "{}", "[1, 2]", "{a: 1}", "auto", "8%", "300ms"),
    *("16M", "80 GB", "2026-01-01", "0x10", "1_000", "$(touch x)", "'a b'", "é", "*x", "&x 1"),
    *("!!python/object:os.system x", "r[01-99999999]", "n[5-1]", "n[1-", "../../etc/passwd"),
    *("llama-3-8b", "dgx-a100", "Et*3|(tt|)*29,m|L", "|", "serve", "fp8", "nvfp4", "4096"),
)
KEYS = ("tp", "layout", "model", "racks", "nodes", "experts", "base", "position", "unknown", "<<")


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Fail instead of hanging. CPU seconds of this process count, so that a busy machine does not
    matter.
    """

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutate(text: str, dice: random.Random) -> str:
    """Apply one to four random edits of values, keys, lines or characters."""
    lines = text.splitlines()
    for _ in range(dice.randint(1, 4)):
        index = dice.randrange(len(lines))
        line = lines[index]
        match dice.randrange(7):
            case 0 if ":" in line:
                lines[index] = line.split(":")[0] + ": " + dice.choice(SCALARS)
            case 1 if ":" in line:
                indent = line[: len(line) - len(line.lstrip())]
                lines[index] = f"{indent}{dice.choice(KEYS)}: {line.split(':', 1)[1]}"
            case 2:
                del lines[index]
                lines = lines or [""]
            case 3:
                lines.insert(index, lines[dice.randrange(len(lines))])
            case 4 if line:
                at = dice.randrange(len(line))
                lines[index] = line[:at] + chr(dice.randrange(1, 0x2FF)) + line[at + 1 :]
            case 5:
                lines[index] = "  " + line
            case _:
                name, value = dice.choice(KEYS), dice.choice(SCALARS)
                lines.insert(index, f"{' ' * (2 * dice.randrange(3))}{name}: {value}")
    return "\n".join(lines) + "\n"


def outcome(text: str, emit: bool) -> str:
    """Return ``plan`` or ``refused``; anything else fails."""
    sink = Sink()
    with time_limit(SECONDS):
        plan = plan_spec(Source("fuzz.yaml", text, None), (), sink)
        if plan is not None and emit:
            emit_plan(plan, sink)
        render_text(sink.diagnostics, sink.positions)
    assert plan is not None or sink.failed(), "no plan and no word"
    return "plan" if plan else "refused"


def test_a_mutated_spec_gives_a_plan_or_diagnostics() -> None:
    texts = [(ROOT / "examples" / name / "spec.yaml").read_text("utf-8") for name in SEEDS]
    outcomes = {"plan": 0, "refused": 0}
    for seed in range(COUNT):
        dice = random.Random(seed)
        text = mutate(dice.choice(texts), dice)
        try:
            outcomes[outcome(text, emit=seed % 10 == 0)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}\n{text}") from error
    assert outcomes["plan"] > COUNT // 50
    assert outcomes["refused"] > COUNT // 4
