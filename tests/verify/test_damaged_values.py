"""Values of other types in emitted documents are reported, and never end in a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compiled import example_files
from tests.verify.edits import EDITS, SEED, findings

VALUES = (None, [], {}, "x", -1, 0, True, 1.5, 10**400, [None], {"a": 1}, ["a", [1]])
"""Values that a damaged document may have instead of any other."""
EXAMPLES = ("llama-3-8b-fsdp", "llama-3-70b", "llama-3-70b-kubernetes", "llama-2-70b-serve")


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of a JSON tree; of a list, those of the first three."""
    if path:
        yield path
    inside = tree.items() if isinstance(tree, dict) else ()
    for key, one in inside or (enumerate(tree[:3]) if isinstance(tree, list) else ()):
        yield from places(one, (*path, key))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("file", ["plan.json", "rankmap.json", "parc.lock"])
def test_a_value_of_another_type_is_reported_and_never_a_traceback(name: str, file: str) -> None:
    files = example_files(name)
    tree, dice = json.loads(files[file]), random.Random(SEED)
    known = list(places(tree))
    for path in dice.sample(known, min(EDITS, len(known))):
        damaged = copy.deepcopy(tree)
        inner = damaged
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = dice.choice(VALUES)
        findings(files | {file: json.dumps(damaged)})


def test_an_error_of_a_verifier_is_no_finding_if_no_file_was_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from parc.backends.rankmap.verify import RankmapVerifier

    def fail(*_: object) -> Iterator[Any]:
        raise TypeError("a mistake in PARC")

    files = example_files("llama-3-8b-fsdp")
    monkeypatch.setattr(RankmapVerifier, "derive_settings", fail)
    with pytest.raises(TypeError, match="a mistake in PARC"):
        findings(files)
    edited = findings(files | {"plan.json": files["plan.json"] + " "})
    assert edited == ["PARC-A04 plan.json cannot be read: a value is missing or has another type"]
