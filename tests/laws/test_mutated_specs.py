"""A mutated spec gives a plan or diagnostics, but never a traceback or a hang.

PARC_FUZZ=10000 sets the number of specs; the default keeps the suite fast.
"""

from __future__ import annotations

import json
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
from parc.compiler.spec.annotations import model_of
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec as TrainingSpec
from tests.laws.damage import OF_SPECS, damaged
from tests.laws.field_pairs import SERVING, TRAINING, fields_of, placed, values_of

ROOT = Path(__file__).parents[2]
SEEDS = ("gpt2-small", "mixtral-8x7b", "llama-3-70b", "deepseek-v3")
COUNT = int(os.environ.get("PARC_FUZZ", "100"))
SECONDS = 10

ODD: tuple[Any, ...] = (
    *(0, 1, 3, 7, 1000, -1, 2**31, 2**63, 10**30, 0.0, 0.5, 1e-300, 1e308, "", " ", "a b", "8%"),
    *("300ms", "16M", "80GB", True, False, None, [], {}, [1, 2], ["a"], {"only": [3]}, "auto"),
    *({"min": 9, "max": 2}, {"tokens": "4Mi"}, "n[1-4]", "n[1-100000]", "$(x)", "x" * 3000),
)
"""Values for fields of any type."""
FIELDS = {False: tuple(fields_of(TrainingSpec)), True: tuple(fields_of(ServingSpec))}


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


def with_other_fields(dice: random.Random) -> str:
    """Return a spec with one to three fields set, mostly to values that are valid alone."""
    serving = dice.random() < 0.3
    spec = dice.choice(SERVING if serving else TRAINING)
    for _ in range(dice.choice((1, 1, 2, 3))):
        path, annotation = dice.choice(FIELDS[serving])
        values = values_of(path, annotation) if model_of(annotation) is None else ()
        spec = placed(spec, path, dice.choice(values if dice.random() < 0.8 and values else ODD))
    return json.dumps(spec, indent=1)


def outcome(text: str, emit: bool) -> str:
    """Return ``plan`` or ``refused``; anything else fails."""
    sink = Sink()
    with time_limit(SECONDS):
        plan = plan_spec(SpecSource("fuzz.yaml", text, None), (), sink)
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
        if seed % 2:
            text = with_other_fields(dice)
        else:
            text = damaged(dice.choice(texts), texts, OF_SPECS, dice)
        try:
            outcomes[outcome(text, emit=seed % 10 == 0)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}\n{text}") from error
    assert outcomes["plan"] > COUNT // 50
    assert outcomes["refused"] > COUNT // 4
