"""A spec with a site file means the same as the spec with the settings of the file written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import Problem
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.launch_spec import KubernetesSpec, SlurmSpec
from parc.compiler.spec.reading.source import SpecSource
from tests.compiled import Spec, changed
from tests.laws.field_pairs import values_of

SPEC: Spec = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
}
NODE = {"cluster.node": "dgx-h100"}


def resolve(folder: Path, spec: Spec, **sites: Any) -> tuple[Problem | None, Sink]:
    """Return the problem and the findings of ``spec``, next to one file per site."""
    for name, site in sites.items():
        (folder / f"{name}.yaml").write_text(json.dumps(changed({}, site)), "utf-8")
    sink = Sink()
    problem = resolve_spec(SpecSource("spec.yaml", json.dumps(spec), folder), (), sink)
    assert problem is None or isinstance(problem, Problem)
    return problem, sink


def completed(folder: Path, changes: Spec, **sites: Any) -> Problem:
    """Return the problem of the spec with ``changes`` and the site file ``a.yaml``."""
    problem, sink = resolve(folder, changed({**SPEC, "site": "a.yaml"}, changes), **sites)
    assert problem is not None, [one.finding.message for one in sink.diagnostics]
    return problem


def only_finding(folder: Path, changes: Spec, **sites: Any) -> Diagnostic:
    """Return the only finding of the spec with ``changes`` and the site file ``a.yaml``."""
    _, sink = resolve(folder, changed({**SPEC, "site": "a.yaml"}, changes), **sites)
    (found,) = sink.diagnostics
    return found


SETTINGS: Spec = {
    "cluster.fabric": "roce-400g",
    "cluster.price_per_gpu_hour": 2.0,
    "cluster.storage": {"write_gb_per_s": 100.0},
    "launch.env": {"A": "1", "TOKEN": {"from": "environment"}},
    "launch.network_interface": "eth0",
    "launch.setup": ["ulimit -l unlimited"],
    **{
        f"launch.{section}.{name}": values[0]
        for section, model in (("slurm", SlurmSpec), ("kubernetes", KubernetesSpec))
        for name, field in model.model_fields.items()
        if name != "container_mounts"
        and (values := values_of(f"launch.{section}.{name}", field.rebuild_annotation()))
    },
    "versions": {"slurm": "24.11"},
}


def test_settings_of_a_site_file_are_those_of_the_spec(tmp_path: Path) -> None:
    plain, _ = resolve(tmp_path, changed(SPEC, {**NODE, **SETTINGS}))
    assert plain is not None
    assert plain.launch.slurm.partition
    assert completed(tmp_path, {}, a={**NODE, **SETTINGS}) == plain


def test_values_of_the_spec_take_precedence_and_commands_of_the_site_run_first(
    tmp_path: Path,
) -> None:
    site = {
        **NODE,
        "modules": ["cuda/12", "a b"],
        "launch.setup": ["site"],
        "launch.env": {"A": "site", "B": "site"},
        "launch.slurm": {"partition": "site", "account": "site"},
    }
    own = {
        "launch.setup": ["own"],
        "launch.env": {"A": "own"},
        "launch.slurm": {"partition": "own", "account": None},
    }
    launch = completed(tmp_path, own, a=site).launch
    assert launch.setup == ("module load cuda/12", "module load 'a b'", "site", "own")
    assert launch.env == (("A", "own"), ("B", "site"))
    assert (launch.slurm.partition, launch.slurm.account) == ("own", None)


def test_modules_are_for_jobs_without_a_container_and_mounts_for_jobs_with_one(
    tmp_path: Path,
) -> None:
    site = {**NODE, "modules": ["cuda"], "launch.slurm.container_mounts": ["/fsx:/fsx"]}
    bare = completed(tmp_path, {}, a=site).launch
    assert (bare.setup, bare.slurm.container_mounts) == (("module load cuda",), ())
    boxed = completed(tmp_path, {"launch.slurm.container_image": "i"}, a=site).launch
    assert (boxed.setup, boxed.slurm.container_mounts) == ((), ("/fsx:/fsx",))


@pytest.mark.parametrize(
    ("cluster", "hosts", "gpu"),
    [
        ({}, 1, "h200-sxm-141gb"),
        ({"nodes": 2}, 2, "h200-sxm-141gb"),
        ({"node": "dgx-a100", "nodes": 2}, 2, "a100-sxm-80gb"),
        ("dgx-superpod-a100", 140, "a100-sxm-80gb"),
    ],
)
def test_hosts_of_the_spec_replace_those_of_the_site(
    tmp_path: Path, cluster: Any, hosts: int, gpu: str
) -> None:
    racks = [{"name": "r", "nodes": "n1"}]
    site = {"cluster": {"node": "dgx-h100", "gpu": "h200-sxm-141gb", "racks": racks}}
    problem = completed(tmp_path, {"cluster": cluster, "job.global_batch": 480}, a=site)
    assert (problem.cluster.gpus // 8, problem.cluster.gpu.name) == (hosts, gpu)


def test_folders_complete_paths_of_the_spec(tmp_path: Path) -> None:
    site = {**NODE, "folders": {"checkpoints": "/ckpt", "data": "/data", "cache": "/cache"}}
    job = {"job.data": ["$data/pile", "/own"], "job.load_dir": "$checkpoints/base"}
    problem = completed(tmp_path, job, a=site)
    assert problem.job.data == ("/data/pile", "/own")
    assert (problem.job.load_dir, problem.job.checkpoint_dir) == ("/ckpt/base", "/ckpt/run")
    assert problem.launch.env == (("HF_HOME", "/cache/huggingface"),)


def test_a_base_is_relative_to_the_site_file_and_has_the_lowest_precedence(
    tmp_path: Path,
) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/b.yaml").write_text("base: c.yaml\nlaunch: {slurm: {qos: b}}\n", "utf-8")
    (tmp_path / "sites/c.yaml").write_text(
        "base: slurm-pyxis-efa\nlaunch: {slurm: {qos: c, account: c}}\n", "utf-8"
    )
    problem = completed(tmp_path, {}, a={"base": "sites/b.yaml"})
    assert (problem.launch.slurm.qos, problem.launch.slurm.account) == ("b", "c")
    assert problem.cluster.fabric.kind == "efa"


def test_findings_point_into_the_site_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("cluster:\n  node: dgx-h100\n  fabric: none\n", "utf-8")
    found = only_finding(tmp_path, {})
    assert (found.code, found.path) == ("PARC-K01", "cluster.fabric")
    assert found.span is not None
    assert (found.span.file, found.span.line, found.span.column) == ("a.yaml", 3, 11)


@pytest.mark.parametrize(
    ("site", "code", "line"),
    [
        ("modul: [cuda]\n", "X01", 1),
        ("modules: cuda\n", "X02", 1),
        ("launch:\n  slurm: {signal: 5x}\n", "X07", 2),
        ("[]", "X26", 1),
        ("a: [", "X06", 1),
        ("base: a.yaml\n", "X26", 1),
        ("base: missing.yaml\n", "K07", 1),
        ("base: slurm\n", "K01", 1),
    ],
)
def test_mistakes_in_a_site_file_are_reported(
    tmp_path: Path, site: str, code: str, line: int
) -> None:
    (tmp_path / "a.yaml").write_text(site, "utf-8")
    found = only_finding(tmp_path, {})
    assert (found.code, found.span and found.span.line) == (f"PARC-{code}", line)


def test_a_path_below_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    found = only_finding(tmp_path, {"job.data": ["$data/x"]}, a=NODE)
    assert (found.code, found.path) == ("PARC-X26", "job.data[0]")
