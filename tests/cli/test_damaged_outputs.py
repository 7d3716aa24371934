"""Damaged output files give a diagnostic or a usage error, never a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cli.specs import parc, write_spec

JUNK = (b"", b"\x00", b"\xff\xfe", b"[]", b"{}", b'{"problem": {}}', b"rank\n", b"=(", b"=(')\n")
ROUNDS = 20
"""Number of damages per file and seed."""
FILES = (
    *("plan.json", "rankmap.csv", "rankmap.json", "megatron/args.sh", "slurm/hostfile"),
    *("slurm/job.sbatch", "torchrun/launch.sh", "parc.lock"),
)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    out = folder / "out"
    assert parc("compile", write_spec(folder), "-o", str(out)).exit_code == 0
    return out


def damaged(text: bytes, chance: random.Random) -> bytes:
    """Return junk, or ``text`` truncated, with one changed byte, or with two lines swapped."""
    kind, at = chance.randrange(4), chance.randrange(len(text))
    if kind == 0:
        return chance.choice(JUNK)
    if kind == 1:
        return text[:at]
    if kind == 2:
        return text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]
    lines = text.splitlines(keepends=True)
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


@pytest.mark.parametrize("seed", ["", pytest.param("2", marks=pytest.mark.conformance)])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_reported_without_a_crash(output: Path, name: str, seed: str) -> None:
    path = output / name
    whole = path.read_bytes()
    chance = random.Random(name + seed)
    try:
        for _ in range(ROUNDS):
            path.write_bytes(damaged(whole, chance))
            verified = parc("verify", str(output), "--fail-on", "warning")
            compared = parc("diff", str(output), str(output))
            assert verified.exit_code == (path.read_bytes() != whole), path.read_bytes()[:200]
            assert compared.exit_code in (0, 2), path.read_bytes()[:200]
    finally:
        path.write_bytes(whole)
    assert parc("verify", str(output)).exit_code == 0
