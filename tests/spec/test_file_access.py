"""A spec reads only files below its folder, and diagnostics show only words of these files."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from click.testing import CliRunner

from parc.compiler import api
from parc.compiler.cli import main
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.render import render
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import read_source
from tests.diagnostics.test_every_code import HERE as DIAGNOSTICS

SECRET = "hunter2-BEGIN-PRIVATE"
CONTENTS = {
    "passwd": f"root:{SECRET}:0:0:root:/bin/bash\nme:{SECRET}:1:1::/bin/sh\n",
    "key": f"-----BEGIN {SECRET}-----\n{SECRET}\n\t{SECRET}: @{SECRET}\n",
    "environment": f"export TOKEN={SECRET}\nPASSWORD='{SECRET}'\n",
    "ini": f"[default]\naws_secret_access_key = {SECRET}\n",
    "yaml": f"users:\n- name: me\n  password: {SECRET}\n  {SECRET}\n",
    "json": json.dumps({"auths": {"registry": {"auth": SECRET}}, "model_type": {"a": SECRET}}),
    "broken-json": f'{{"auth": {SECRET}}}',
    "kubeconfig": f"apiVersion: v1\nusers:\n- user: {{token: {SECRET}}}\n",
    "directive": f"%YAML {SECRET}\n---\na: {SECRET}\n",
    "netrc": f"machine example.com login me password {SECRET}\n",
    "host-line": f"SwitchName=a Nodes=n1\n# {SECRET}\nNodeName=x password {SECRET}\n",
}
FIELDS = {
    "model": "model: {path}.json",
    "topology": "cluster: {{node: dgx-h100, topology: {path}.json}}",
    **{
        kind: f"cluster: {{{{node: dgx-h100, topology: {{path}}.json, topology_format: {kind}}}}}"
        for kind in ("slurm-topology", "scontrol-nodes", "nvidia-smi-topo", "ibnetdiscover", "aws")
    },
    "calibration": "cluster: {{node: dgx-h100, nodes: 1, calibration: {path}.json}}",
    "site": "site: ./{path}.yaml",
    "node": "cluster: {{node: ./{path}.yaml, nodes: 1}}",
    "gpu": "cluster: {{node: dgx-h100, gpu: ./{path}.yaml, nodes: 1}}",
    "fabric": "cluster: {{node: dgx-h100, fabric: ./{path}.yaml, nodes: 1}}",
    "generation": "cluster: {{node: dgx-h100, nodes: 1, "
    "gpu: {{base: h100-sxm-80gb, generation: ./{path}.yaml}}}}",
}


def spec(section: str) -> str:
    """Return a spec with ``section`` instead of its default model or cluster."""
    sections = {"model": "model: llama-3-8b", "cluster": "cluster: {node: dgx-h100, nodes: 1}"}
    sections[section.split(":")[0]] = section
    job = "job: {sequence_length: 8192, global_batch: 64}"
    return "\n".join(["parc: 1", "name: a", *sections.values(), job, ""])


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("field", FIELDS)
def test_the_text_of_a_file_that_a_spec_names_is_not_printed(
    field: str, content: str, tmp_path: Path
) -> None:
    for ending in ("json", "yaml"):
        (tmp_path / f"secret.{ending}").write_text(CONTENTS[content], "utf-8")
    (tmp_path / "spec.yaml").write_text(spec(FIELDS[field].format(path="secret")), "utf-8")
    sink = Sink()
    assert plan_spec(read_source(str(tmp_path / "spec.yaml")), (), sink) is None or content in (
        "host-line",
    )
    for style in ("text", "json", "sarif", "github"):
        assert SECRET not in render([sink], style)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("kind", ["topology", "slurm-topology", "hf-config", "nccl-tests"])
def test_an_importer_does_not_print_the_text_of_another_file(
    kind: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(CONTENTS[content], "utf-8")
    found = CliRunner().invoke(main, ["import", kind, str(tmp_path / "file")])
    assert SECRET not in found.output


def folders(tmp_path: Path) -> Path:
    """Return the path of a spec, in whose parent folder there is a model that it names."""
    config = (DIAGNOSTICS / "K05" / "config.json").read_text("utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "config.json").write_text(config, "utf-8")
    (tmp_path / "specs").mkdir()
    path = tmp_path / "specs" / "spec.yaml"
    path.write_text(spec("model: ../models/config.json"), "utf-8")
    return path


COMMANDS = {
    "check": ["check", "SPEC"],
    "compile": ["compile", "SPEC", "-o", "OUT"],
    "estimate": ["estimate", "SPEC"],
    "search": ["search", "SPEC"],
    "replan": ["replan", "SPEC", "--drain", "node001", "--dry-run"],
    "diff": ["diff", "SPEC", "SPEC"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_limits_a_spec_to_its_folder_or_the_root(command: str, tmp_path: Path) -> None:
    path = folders(tmp_path)
    words = {"SPEC": str(path), "OUT": str(tmp_path / "out")}
    arguments = [words.get(word, word) for word in COMMANDS[command]]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 1
    assert "PARC-I11" in refused.output
    assert "--root" in refused.output
    assert "PARC-I11" not in CliRunner().invoke(main, [*arguments, "--root", str(tmp_path)]).output


def test_a_symbolic_link_counts_as_its_target(tmp_path: Path) -> None:
    path = folders(tmp_path)
    (path.parent / "linked").symlink_to(tmp_path / "models")
    (path.parent / "own").mkdir()
    (path.parent / "inside.json").symlink_to(path.parent / "own" / "config.json")
    (path.parent / "own" / "config.json").write_text(
        (tmp_path / "models" / "config.json").read_text("utf-8"), "utf-8"
    )
    path.write_text(spec("model: linked/config.json"), "utf-8")
    assert [found.code for found in api.check(path)] == ["PARC-I11"]
    path.write_text(spec("model: ./inside.json"), "utf-8")
    assert "PARC-I11" not in [found.code for found in api.check(path)]


def test_a_file_outside_is_refused_in_the_same_way_if_it_does_not_exist(tmp_path: Path) -> None:
    path = folders(tmp_path)
    path.write_text(spec("model: /nowhere/at/all.json"), "utf-8")
    assert [found.code for found in api.check(path)] == ["PARC-I11"]


def test_a_mapping_and_standard_input_are_limited_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folders(tmp_path)
    monkeypatch.chdir(path.parent)
    mapping = {
        "parc": 1,
        "name": "a",
        "model": "../models/config.json",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 8192, "global_batch": 64},
    }
    assert [found.code for found in api.check(mapping)] == ["PARC-I11"]
    assert "PARC-I11" not in [found.code for found in api.check(mapping, root=tmp_path)]
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(path.read_bytes())))
    sink = Sink()
    plan_spec(read_source("-"), (), sink)
    assert [found.code for found in sink.diagnostics] == ["PARC-I11"]
