"""A mutated file of another tool is imported and linted with a result or findings.

There is no traceback, no file without a result, and no file that takes more than 10 CPU seconds.
PARC_FUZZ=10000 sets the number of files; the default keeps the suite fast.
"""

from __future__ import annotations

import os
import random
from time import process_time

import pytest

from parc.compiler.diagnostics import Sink, SpecPositions
from parc.compiler.diagnostics.render import render
from parc.compiler.tools.importers.format_fragment import fragment_yaml
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.compiled import emitted as emitted_files
from tests.compiled import example
from tests.laws.damage import OF_FILES, damaged
from tests.laws.test_mutated_specs import time_limit
from tests.lint import scripts
from tests.samples import sample_of
from tests.topology.test_readers import CASES

COUNT = int(os.environ.get("PARC_FUZZ", "60"))
SECONDS = 10
SCRIPTS = tuple(
    text
    for name, text in sorted(vars(scripts).items())
    if name.isupper() and isinstance(text, str) and "\n" in text
)
EXAMPLES = ("gpt2-small", "llama-3-70b", "llama-2-70b-serve")
FACTS = (LintOptions(), LintOptions(model="llama-3-8b", cluster="dgx-h100", gpus=16))


def seeds() -> list[tuple[str, str]]:
    """Return (format, text) of files to mutate; the format is empty for files that are linted."""
    found = [(case["kind"], case["given"]) for case in CASES]
    found += [("", text) for text in SCRIPTS]
    for name in EXAMPLES:
        files = emitted_files(example(name))
        found += [("", text) for path, text in files.items() if path.endswith((".sh", ".sbatch"))]
    return found


def outcome(kind: str, text: str, dice: random.Random) -> str:
    """Import ``text`` as ``kind`` or as a detected format, and lint it; return what was found."""
    with time_limit(SECONDS):
        linted, skipped = lint_text(text, "file", dice.choice(FACTS))
        render([linted], dice.choice(("text", "json", "sarif", "github")))
        assert all(one.reason for one in skipped)
        sink = Sink(SpecPositions("file", lines={"file": tuple(text.splitlines())}))
        found = import_files(kind or "auto", [(text, "file")], sink)
        if found is not None:
            fragment_yaml(found.fragment, found.kinds, sink)
        render([sink], dice.choice(("text", "json", "sarif", "github")))
    assert found is not None or sink.failed(), "no fragment and no finding"
    return "imported" if found is not None and not sink.failed() else "refused"


def test_a_mutated_file_gives_a_fragment_or_findings() -> None:
    files, outcomes = seeds(), {"imported": 0, "refused": 0}
    for seed in range(COUNT):
        dice = random.Random(seed)
        kind, text = dice.choice(files)
        text = damaged(text, [text for _, text in files], OF_FILES, dice)
        kind = kind if dice.random() < 0.8 else dice.choice(files)[0]
        try:
            outcomes[outcome(kind, text, dice)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}\n{text[:3000]}") from error
    assert outcomes["imported"] > COUNT // 20
    assert outcomes["refused"] > COUNT // 10


@pytest.mark.parametrize("start", ['{"a": ', "[", '{"zero_optimization": {"stage": 3}, "a": ['])
def test_deeply_nested_json_is_reported(start: str) -> None:
    text = start + start[-6:] * 5000
    assert outcome("", text, random.Random(0)) == "refused"
    assert lint_text(text, "file", LintOptions())[0].failed()


@pytest.mark.parametrize("piece", sample_of(["\n", "<<E\n", "$(", "(", '"', "A+=(x)\n"], 3))
def test_a_repeated_piece_of_a_script_is_read_in_linear_time(piece: str) -> None:
    seconds = []
    for length in (4_000, 16_000):
        text = scripts.SBATCH + piece * (length // len(piece)) + "\n"
        start = process_time()
        with time_limit(60):
            lint_text(text, "file", LintOptions())
            import_files("sbatch", [(text, "file")], Sink())
        seconds.append(process_time() - start)
    # 4 for linear time and 16 for quadratic time.
    assert seconds[1] / seconds[0] < 9


REPEATED_COMMANDS = {
    "variable": ("A=torchrun\n", "$A\n", 10_000),
    "srun": ("", "srun torchrun --nnodes 1 train.py\n", 2000),
    "number of hosts": ("N=2\n", "torchrun --nnodes $N --master_addr a train.py\n", 2000),
    "visible GPUs": ("export CUDA_VISIBLE_DEVICES=0\n", "torchrun --nproc_per_node 2 t.py\n", 2000),
}


@pytest.mark.parametrize("case", sample_of(REPEATED_COMMANDS, 2))
def test_the_script_is_not_searched_again_for_each_command(case: str) -> None:
    start, line, count = REPEATED_COMMANDS[case]
    head = scripts.SBATCH if case in ("variable", "srun") else ""
    with time_limit(2):
        lint_text(head + start + line * count, "file", LintOptions())


MANY = range(2500)
UNKNOWN = (
    scripts.MEGATRON.rstrip() + "".join(f" --tensor-model-parallel-siz{one}" for one in MANY),
    scripts.VLLM.rstrip() + "".join(f" --tensor-parallel-siz{one}" for one in MANY),
    '{"train_batch_size": 8, ' + ", ".join(f'"gradient_clip{one}": 1' for one in MANY) + "}",
)


@pytest.mark.parametrize("text", UNKNOWN, ids=["megatron", "vllm", "deepspeed"])
def test_thousands_of_unknown_names_are_linted_in_seconds(text: str) -> None:
    with time_limit(4):
        assert lint_text(text, "file", LintOptions())[0].failed("warning")


def test_a_file_of_thousands_of_hosts_is_read_in_seconds() -> None:
    rows = [f'{{"InstanceId": "i-{one}", "NetworkNodes": ["a", "b"]}}' for one in range(2000)]
    text = '{"Instances": [' + ",\n".join(rows) + "]}"
    assert outcome("aws", text, random.Random(0)) == "imported"
