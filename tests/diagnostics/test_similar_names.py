"""Similar names equal those of difflib, which compares each name in full."""

from __future__ import annotations

import random
from difflib import get_close_matches

import pytest

from parc.compiler.diagnostics.similar_names import close_matches

NAMES = [
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "sequence-parallel",
]
NAMES += ["max-model-len", "max-num-seqs", "tensor-parallel", "parallel-size-tensor", "size"]


def misspelled(name: str, draw: random.Random) -> str:
    """Return ``name`` with up to four letters changed or added."""
    letters = list(name)
    for _ in range(draw.randint(0, 4)):
        at = draw.randrange(len(letters))
        letters[at : at + draw.randint(0, 1)] = draw.choice("aeprst-")
    return "".join(letters)


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("cutoff", [0.4, 0.6, 0.85])
def test_the_similar_names_are_those_of_difflib(most: int, cutoff: float) -> None:
    draw = random.Random(most)
    for name in NAMES * 3:
        word = misspelled(name, draw)
        expected = get_close_matches(word, NAMES, most, cutoff)
        assert close_matches(word, NAMES, most, cutoff) == expected, word
