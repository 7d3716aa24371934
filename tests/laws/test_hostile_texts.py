"""Tests that each text of a spec is either refused, or safe in all emitted files.

``PARC_FUZZ`` sets the number of (field, text, targets) triples; the default is a small sample.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import random
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.compiler.spec.reading.scalars import quoted_scalar
from parc.compiler.spec.schema import spec_schema
from tests import compiled
from tests.compiled import Files
from tests.verify.edits import findings

COUNT = int(os.environ.get("PARC_FUZZ", "10"))
REFUSED = "\x00\x01\x07\x0b\x0c\x0e\x1b\x1f\r\x7f\x80\x85\x9f\u2028\u2029\ufffe\uffff"
"""Characters that parsers of the emitted formats treat differently: control characters, and line
breaks other than the newline."""
TEXTS = (
    "a'b\"c`d$(touch INJECTED)e\\f;g&h|i>j",
    "a\n---\nb: [c\n'''\n\"\"\"\nEOF\n",
    "\ufeff# {{ x }} %s {% y %} ${HOME} !z",
    *(f"a{one}b" for one in REFUSED),
)
TRAIN: dict[str, Any] = {
    "parc": 1,
    "name": "texts",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"steps": 10, "global_batch": 64, "sequence_length": 4096},
    "launch": {"kubernetes": {"image": "a:1"}, "program": "train.py"},
}
SERVE: dict[str, Any] = {
    **{key: TRAIN[key] for key in ("parc", "name", "model", "cluster")},
    "job": {"kind": "serve", "traffic": {"input_tokens": 100, "output_tokens": 100}},
    "launch": {"kubernetes": {"image": "a:1"}},
    "layout": {"tp": 8},
}
LAUNCHERS = ["kubernetes", "preflight", "rankmap", "slurm", "torchrun"]
TARGETS: tuple[tuple[dict[str, Any], list[str]], ...] = (
    *((TRAIN, [*LAUNCHERS, name]) for name in ("megatron", "deepspeed", "fsdp", "torchtitan")),
    ({**TRAIN, "launch": {}}, ["megatron-bridge", "slurm"]),
    (TRAIN, ["accelerate", "deepspeed", "rankmap", "slurm"]),
    (SERVE, ["kubernetes", "rankmap", "slurm", "vllm"]),
    (SERVE, ["rankmap", "ray", "vllm"]),
)


def text_fields(schema: Any, root: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted path, kind) of the text fields in a JSON Schema: text, list, values or keys."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from text_fields(root["$defs"][name], root, path)
        return
    branches = [schema[name] for name in ("then", "else") if name in schema]
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *branches):
        yield from text_fields(option, root, path)
    if schema.get("type") == "string" and "enum" not in schema:
        yield path, "text"
    items, others = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, dict) and items.get("type") == "string" and "enum" not in items:
        yield path, "list"
    choices = others.get("anyOf", (others,)) if isinstance(others, dict) else ()
    if any(one.get("type") == "string" for one in choices):
        yield path, "values"
        yield path, "keys"
    for name, one in schema.get("properties", {}).items():
        yield from text_fields(one, root, f"{path}.{name}" if path else name)


def value_of(kind: str, text: str) -> Any:
    """Return the value of a field of ``kind`` that contains ``text``."""
    return {"text": text, "list": [text], "values": {"NAME": text}, "keys": {text: "1"}}[kind]


def with_value(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return ``spec`` with ``value`` at ``path``; a name above it becomes ``base`` of a mapping."""
    tree = copy.deepcopy(spec)
    *parents, last = path.split(".")
    place = tree
    for name in parents:
        below = place.get(name, {})
        place[name] = below if isinstance(below, dict) else {"base": below}
        place = place[name]
    place[last] = value
    return tree


FIELDS = sorted(set(text_fields(spec_schema(), spec_schema())))


def triples() -> list[tuple[tuple[str, str], str, int]]:
    """Return a sample of the triples, the same in every run."""
    found = [
        (field, text, target)
        for field in FIELDS
        for text in TEXTS[:3]
        for target in range(len(TARGETS))
    ]
    return random.Random(3).sample(found, min(COUNT, len(found)))


@pytest.mark.parametrize("character", REFUSED)
def test_a_character_that_formats_treat_differently_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="control character or line break"):
        quoted_scalar(f"a{character}b")


def test_fields_of_all_sections_are_tried() -> None:
    paths = {path for path, _ in FIELDS}
    assert {"name", "job.load_dir", "job.checkpoint", "launch.env", "launch.args"} <= paths
    assert {"launch.kubernetes.image", "launch.slurm.account", "launch.program"} <= paths


def test_texts_are_refused_or_safe_in_every_format() -> None:
    emitted = 0
    for (path, kind), text, target in triples():
        base, targets = TARGETS[target]
        tree = with_value(base | {"emit": targets}, path, value_of(kind, text))
        plan, sink = compiled.planned(tree)
        if plan is None or sink.failed():
            assert sink.diagnostics, (path, text)
            continue
        files = compiled.emitted(plan)
        emitted += 1
        assert not [one for one in findings(files) if "PARC-A1" not in one], (path, text)
        for file, content in files.items():
            assert_readable(file, content, files)
    assert emitted or COUNT < 100


def assert_readable(file: str, content: str, files: Files) -> None:
    """Assert that the parser of a file's format accepts it."""
    suffix = file.rpartition(".")[2]
    if suffix in ("json", "lock"):
        json.loads(content)
    elif suffix in ("yaml", "yml"):
        for document in YAML(typ="safe", pure=True).load_all(content):
            data = document.get("data", {}) if isinstance(document, dict) else {}
            for path, text in data.items():
                same = next((one for one in files if one.replace("/", ".") == path), None)
                assert same is None or files[same] == text, file
    elif suffix == "toml":
        tomllib.loads(content)
    elif suffix == "py":
        ast.parse(content)
    elif suffix in ("sh", "sbatch"):
        run = subprocess.run(["bash", "-n"], input=content, text=True, capture_output=True)
        assert run.returncode == 0, (file, run.stderr)
