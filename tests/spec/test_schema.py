import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.reading.yaml_tree import read_tree
from parc.compiler.spec.schema import FieldDoc, all_fields, schema_text, spec_schema

GOOD = """\
parc: 1
name: run
model: {base: llama-3-70b, layers: 4}
cluster: {gpu: {memory: 80 GB}, node: dgx-h100, racks: [{name: a, nodes: ["a[1-2]"]}]}
job: {sequence_length: 8192, global_batch: {tokens: 16Mi}}
goals: {memory_headroom: 8%}
layout: {tp: 8, pp: auto, recompute: {granularity: full}, zero_stage: 1}
launch: {slurm: {signal: 5m}}
"""


def is_valid(text: str) -> bool:
    tree = read_tree(text, "spec.yaml", Sink())
    assert tree is not None
    return Draft202012Validator(spec_schema()).is_valid(tree.value)


def test_the_committed_schema_is_current():
    written = (files("parc.schemas") / "spec.schema.json").read_text("utf-8")
    assert written == schema_text(), "run `make schemas`"


def test_the_schema_is_a_schema_of_draft_2020_12():
    Draft202012Validator.check_schema(json.loads(schema_text()))
    assert "$id" not in spec_schema()


def test_every_property_has_hover_text_and_no_mapping_is_open():
    schema = spec_schema()
    mappings = schema["$defs"].values()
    for mapping in mappings:
        assert mapping["additionalProperties"] is False
        for name, prop in mapping["properties"].items():
            assert prop.get("description"), name
            assert "title" not in prop


def test_the_schema_accepts_what_the_loader_accepts():
    assert is_valid(GOOD)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tp: 8", 'tp: "8"'),
        ("tp: 8", "tp: 0"),
        ("tp: 8", "tq: 8"),
        ("8%", "8 GB"),
        ("5m", "5 moons"),
        ("name: run", "name: ../run"),
        ("parc: 1", "parc: 2"),
        ("granularity: full", "granularity: fully"),
    ],
)
def test_the_schema_rejects_what_the_loader_rejects(right, wrong):
    assert not is_valid(GOOD.replace(right, wrong))


@pytest.mark.parametrize(
    ("path", "type_", "default"),
    [
        ("layout.tp", "a whole number of at least 1 or auto", "auto"),
        ("goals.memory_headroom", "a percentage, like 8%, or a fraction such as 0.08", 0.02),
        ("cluster.racks[].nodes", "text or a list of strings", None),
        ("launch.master_port", "a whole number from 1 to 65535", 29500),
        ("versions", "a mapping of names to text", None),
    ],
)
def test_a_field_is_described_by_its_path(path, type_, default):
    doc = all_fields()[path]
    assert (doc.path, doc.type, doc.default) == (path, type_, default)


def test_every_field_of_the_schema_is_in_the_table():
    def count(doc: FieldDoc) -> Any:
        return doc.description

    assert all(count(doc) for doc in all_fields().values())
    for name in ("Spec", "ServingSpec"):
        top = spec_schema()["$defs"][name]["properties"]
        assert set(top) == {path for path in all_fields() if "." not in path}


def test_the_kind_of_job_selects_the_keys_of_the_schema():
    serve = "{kind: serve, traffic: {input_tokens: 9, output_tokens: 9}}"
    text = "parc: 1\nname: run\nmodel: x\ncluster: y\njob: " + serve + "\n"
    assert is_valid(text)
    assert is_valid(text + "goals: {ttft: 300ms}\nlayout: {replicas: 2}\n")
    assert not is_valid(text + "layout: {vpp: 2}\n")
    assert not is_valid(GOOD.replace("tp: 8", "replicas: 2"))
