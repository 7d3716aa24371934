"""The emitted data.py reads every sequence of every file once before it repeats any."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.compiled import files_of

TARGETS = {"fsdp": "config", "accelerate": "job", "deepspeed": "train"}
LENGTH, BATCH, ROWS = 17, 8, 24
"""Tokens per sequence with its label, sequences per step, sequences per file."""


class Tokens(list[int]):
    """Stand-in for a tensor of token ids."""

    def __getitem__(self, at: Any) -> Any:
        return Tokens(super().__getitem__(at))

    def long(self) -> tuple[int, ...]:
        return tuple(self)


def read_sequence(
    target: str, folder: Path, data: list[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Return the function of data.py that reads a sequence, with files of numbered tokens."""
    names = [word for word in data if word.startswith("/")]
    spec = {
        **{"parc": 1, "name": "data", "model": "llama-3-8b", "emit": [target, "torchrun"]},
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": LENGTH - 1, "global_batch": BATCH, "data": data},
        "layout": {"tp": 1, "cp": 1},
    }
    if names[0].endswith(".jsonl"):
        spec["job"]["tokenizer_model"] = "/tokenizer"
    emitted = files_of(spec)
    for name in ("data.py", f"{TARGETS[target]}.json"):
        (folder / name).write_text(emitted[f"{target}/{name}"], "utf-8")
    torch = ModuleType("torch")
    vars(torch).update(Tensor=tuple, tensor=lambda ids: Tokens(ids).long(), cuda=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", torch)
    sequence = runpy.run_path(str(folder / "data.py"))["sequence"]

    def tokens_of(path: str) -> Tokens:
        first = names.index(path) * 10**6
        return Tokens(range(first, first + ROWS * LENGTH + 5))

    def text_rows(path: str) -> list[dict[str, Tokens]]:
        whole = tokens_of(path)
        return [{"ids": whole[at * LENGTH : (at + 1) * LENGTH]} for at in range(ROWS)]

    sequence.__globals__.update(tokens_of=tokens_of, text_rows=text_rows)
    return sequence


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
@pytest.mark.parametrize("files", [1, 2, 3, 4])
def test_an_epoch_has_every_sequence_of_every_file_once(
    target: str, suffix: str, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"/data/{number}{suffix}" for number in range(files)]
    sequence = read_sequence(target, tmp_path, names, monkeypatch)
    found = Counter(sequence(number, 10**9) for number in range(files * ROWS))
    wanted = {
        tuple(range(first + at * LENGTH, first + (at + 1) * LENGTH))
        for first in range(0, files * 10**6, 10**6)
        for at in range(ROWS)
    }
    assert set(found) == wanted
    assert set(found.values()) == {1}
    for step in range(files * ROWS // BATCH):  # all sequences of a step are from one file
        numbers = range(step * BATCH, (step + 1) * BATCH)
        assert {sequence(number, 10**9)[0] // 10**6 for number in numbers} == {step % files}


@pytest.mark.parametrize("target", TARGETS)
def test_weights_are_the_shares_of_the_steps_that_read_each_file(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ["0.7", "/data/web", "0.2", "/data/code", "0.1", "/data/math"]
    sequence = read_sequence(target, tmp_path, data, monkeypatch)
    files = [sequence(step * BATCH, 10**9)[0] // 10**6 for step in range(100)]
    assert [files.count(file) for file in range(3)] == [70, 20, 10]
    for steps in range(1, 100):
        for file, share in enumerate((0.7, 0.2, 0.1)):
            assert abs(files[:steps].count(file) - share * steps) < 1
    first = [number for number in range(100 * BATCH) if files[number // BATCH] == 1][:ROWS]
    starts = [sequence(number, 10**9)[0] - 10**6 for number in first]
    assert starts == [at * LENGTH for at in range(ROWS)]
