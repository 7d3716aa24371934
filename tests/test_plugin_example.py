"""``examples/plugin`` is built as a wheel, installed, and used through the command line."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.parc_process import run_parc
from tests.project_files import ROOT, imported, syntax_tree

EXAMPLE = ROOT / "examples" / "plugin"
SPEC = EXAMPLE / "llama-3.1-70b.yaml"
SOURCE = EXAMPLE / "src" / "parc_minserve"
SCRIPT = "minserve/serve.sh"
CONSTANTS = "parc_minserve/constants.yaml"
Parc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel of the example is installed."""
    work = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(
        EXAMPLE, work / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(work)]
    subprocess.run([*build, str(source)], check=True, capture_output=True, text=True)
    (wheel,) = work.glob("*.whl")
    with ZipFile(wheel) as archive:  # a wheel of pure Python is installed by unpacking it
        archive.extractall(work / "site")
    return work / "site"


def runner(site: Path) -> Parc:
    """Return a function that runs ``parc`` with the packages in ``site`` installed."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        done = run_parc(*words, cwd=site.parent, packages=site)
        done.stdout += done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def parc(site: Path) -> Parc:
    """The command line with the example installed."""
    return runner(site)


@pytest.fixture(scope="module")
def out(site: Path, parc: Parc) -> Path:
    """The output of the example's spec, which no test may change."""
    done = parc("compile", SPEC, "-o", site.parent / "out")
    assert done.returncode == 0, done.stdout
    assert "PARC-" not in done.stdout
    return site.parent / "out"


def estimate(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "plan.json").read_text("utf-8"))["estimate"]
    return found


def test_the_wheel_is_listed_by_parc_backends_without_a_finding(parc: Parc) -> None:
    listed = parc("backends", "--format", "json")
    assert listed.returncode == 0, listed.stdout
    records = {one["name"]: one for one in json.loads(listed.stdout)["backends"]}
    assert records["minserve"] == {
        "about": "one script that starts Minserve, an invented serving engine, on each host.",
        "default_version": "0.2",
        "framework": True,
        "jobs": ["serve"],
        "name": "minserve",
        "versions": ["0.1", "0.2"],
    }


def test_its_plan_is_compiled_and_verified(parc: Parc, out: Path) -> None:
    table = (out / "rankmap.csv").read_text("utf-8").splitlines()
    assert table[0].endswith("replica,dp,pp,cp,tp")
    assert table[9].startswith("8,1,r01n02,0,0,")
    assert table[9].endswith(",0,1,0,0,0")
    done = parc("verify", out)
    assert (done.returncode, done.stdout[:3]) == (0, "OK:")


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (
            "tensor-parallel 8 -> tensor-parallel 4",
            "error[PARC-A07]: engine 0 of minserve/serve.sh starts 16 ranks, must start each",
        ),
        (
            "(r01n01 r01n02) -> (r01n02 r01n01)",
            "error[PARC-A02]: hosts are r01n02 r01n01 in minserve/serve.sh",
        ),
        ("--first-rank 8 -> --first-rank 0", "error[PARC-A05]: 8 ranks of rankmap.csv differ"),
        ("--max-requests 256 -> --max-requests 8", "error[PARC-A14]: limits.max_num_seqs"),
        ("common=( -> shared=(", "error[PARC-A04]: minserve/serve.sh cannot be read"),
    ],
)
def test_damage_to_its_script_is_reported(
    parc: Parc, out: Path, tmp_path: Path, damage: str, finding: str
) -> None:
    old, new = damage.split(" -> ")
    text = (out / SCRIPT).read_text("utf-8")
    assert text.count(old) == 1
    damaged = shutil.copytree(out, tmp_path / "out")
    (damaged / SCRIPT).write_text(text.replace(old, new), encoding="utf-8")
    done = parc("verify", damaged)
    assert done.returncode == 1
    assert finding in done.stdout


def test_its_script_has_no_findings_and_planted_mistakes_have_one_each(
    parc: Parc, out: Path, tmp_path: Path
) -> None:
    text = (out / SCRIPT).read_text("utf-8")
    mistakes = {
        "D02": ("  --tensor-parallel 8\n", "  --tensor-parallel 3\n"),
        "F01": ("  --max-length 32768\n", "  --max-lenght 32768\n"),
        "F03": ("  --max-length 32768\n", "  --max-length long\n"),
    }
    files = {code: tmp_path / f"{code}.sh" for code in mistakes}
    for code, (old, new) in mistakes.items():
        files[code].write_text(text.replace(old, new), encoding="utf-8")
    facts = ("--cluster", "hgx-h100", "--gpus", "16", "--format", "json")
    done = parc("lint", out / SCRIPT, *files.values(), *facts)
    assert done.returncode == 1
    found = json.loads(done.stdout)["diagnostics"]
    lines = {code: text[: text.index(old)].count("\n") + 1 for code, (old, _) in mistakes.items()}
    assert [(one["code"], one["file"], one["span"]["line"]) for one in found] == [
        (f"PARC-{code}", str(files[code]), lines[code]) for code in mistakes
    ]


def test_its_script_is_imported_as_a_spec(parc: Parc, out: Path) -> None:
    done = parc("import", "auto", out / SCRIPT, "--format", "json")
    assert done.returncode == 0, done.stdout
    document = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert document["spec"]["layout"] == {"tp": 8, "dp": 2}
    assert document["spec"]["model"] == "meta-llama/Llama-3.1-70B-Instruct"
    assert document["spec"]["job"]["max_model_len"] == 32768
    assert document["spec"]["emit"] == ["minserve", "rankmap"]
    assert document["spec"]["launch"] == {"port": 8000}


def test_a_launch_setting_that_its_script_lacks_is_reported(parc: Parc, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    for launch, count in (("port: 9000", 0), ('setup: ["module load x"]', 1), ("omit: [--x]", 1)):
        text = SPEC.read_text("utf-8") + f"launch: {{{launch}}}\n"
        spec.write_text(text, encoding="utf-8")
        assert parc("check", spec).stdout.count("PARC-E13]") == count
    assert "no target of serving jobs uses it" in parc("check", spec).stdout
    done = parc("compile", spec, "--set", "launch.port=9000", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stdout
    assert "--port 9000" in (tmp_path / "out" / SCRIPT).read_text("utf-8")


def test_its_rules_and_undeclared_strategies_are_enforced(parc: Parc, tmp_path: Path) -> None:
    for layout, code, fix in (
        ("tp: 3", "D02", "layout.tp: 2"),
        ("pp: 2", "E08", "layout.pp: 1"),
        ("all2all: deepep_low_latency", "E08", "remove layout.all2all"),
    ):
        spec = tmp_path / "spec.yaml"
        text = re.sub(r"layout:\n(  .*\n)+", f"layout: {{{layout}}}\n", SPEC.read_text("utf-8"))
        spec.write_text(text, encoding="utf-8")
        done = parc("check", spec)
        assert done.returncode == 1
        assert re.findall(r"^error\[PARC-(\w+)\]", done.stdout, re.MULTILINE) == [code]
        assert f"= fix:  {fix}" in done.stdout


def test_number_formats_without_kernels_are_refused(parc: Parc) -> None:
    for setting, message in (
        ("job.kv_precision=fp16", "minserve has no kernels for fp16 KV cache"),
        ("job.precision=int4", "minserve has no kernels for int4 weights"),
    ):
        own = ("--set", "job.checkpoint=/models/own", "--set", "job.precision=bf16")
        done = parc("check", SPEC, *own, "--set", setting)
        assert done.returncode == 1
        assert message in done.stdout


def test_other_launchers_start_its_script(parc: Parc, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    launch = 'launch: {kubernetes: {image: "registry/minserve:0.2"}}\n'
    spec.write_text(SPEC.read_text("utf-8") + launch, encoding="utf-8")
    emit = "minserve,rankmap,slurm,kubernetes"
    out = tmp_path / "out"
    done = parc("compile", spec, "-o", out, "--emit", emit)
    assert done.returncode == 0, done.stdout
    assert 'bash "$PARC_DIR/minserve/serve.sh"' in (out / "slurm/job.sbatch").read_text("utf-8")
    pods = (out / "kubernetes/leaderworkerset.yaml").read_text("utf-8")
    assert "exec bash /parc/minserve/serve.sh" in pods
    assert "path: /ready" in pods
    assert "vllm" not in pods
    assert parc("verify", out).returncode == 0
    (out / SCRIPT).unlink()
    assert "PARC-A03" in parc("verify", out).stdout
    refused = parc("compile", spec, "-o", tmp_path / "ray", "--emit", "minserve,ray")
    assert "under Ray, the ranks of minserve cannot be bound to the planned hosts" in refused.stdout


def test_an_engine_without_constants_is_refused(site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / CONSTANTS).unlink()
    done = runner(copy)("compile", SPEC, "-o", tmp_path / "out")
    assert done.returncode == 1
    assert re.findall(r"^error\[PARC-(\w+)\]", done.stdout, re.MULTILINE) == ["V32"]
    assert "parc_minserve/constants.yaml does not exist" in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("launcher", "file"),
    [("slurm", "slurm/job.sbatch"), ("kubernetes", "kubernetes/leaderworkerset.yaml")],
)
def test_without_its_verifier_all_launchers_compile_with_a_warning(
    site: Path, tmp_path: Path, launcher: str, file: str
) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    declaration = copy / "parc_minserve" / "__init__.py"
    text = declaration.read_text("utf-8")
    assert '    verifier=".verify",\n' in text
    declaration.write_text(text.replace('    verifier=".verify",\n', ""), encoding="utf-8")
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    launch = 'launch: {kubernetes: {image: "registry/minserve:0.2"}}\n'
    spec.write_text(SPEC.read_text("utf-8") + launch, encoding="utf-8")
    run = runner(copy)
    done = run("compile", spec, "-o", out, "--emit", f"minserve,rankmap,{launcher}")
    assert done.returncode == 0, done.stdout
    assert "its plugin declares no verifier" in done.stdout
    assert "error[" not in done.stdout
    for packages in (run, runner(tmp_path / "nothing")):
        verified = packages("verify", out)
        assert verified.returncode == 1
        assert "PARC-A13" in verified.stdout
        assert "error[" not in verified.stdout
    (out / file).unlink()
    assert "PARC-A03" in run("verify", out).stdout, "a missing file is found without a verifier"


def test_its_own_constants_determine_the_estimate(
    parc: Parc, site: Path, out: Path, tmp_path: Path
) -> None:
    own = estimate(out)
    copy = shutil.copytree(site, tmp_path / "site")
    text = (copy / CONSTANTS).read_text("utf-8")
    slower = text.replace("step_seconds: 2.0e-3", "step_seconds: 7.0e-3")
    assert slower != text
    (copy / CONSTANTS).write_text(slower, encoding="utf-8")
    assert runner(copy)("compile", SPEC, "-o", tmp_path / "slower").returncode == 0
    added = estimate(tmp_path / "slower")["decode"]["host"] - own["decode"]["host"]
    assert added == pytest.approx(5.0e-3, rel=0.01)  # slower steps have more requests
    # dp 2 is for models with experts in vLLM, so that both engines plan two replicas of tp 8.
    layout = ("--set", "layout.dp=1", "--set", "layout.replicas=2")
    plans = []
    for engine in ("minserve", "vllm"):
        folder = tmp_path / engine
        done = parc("compile", SPEC, "-o", folder, "--emit", f"{engine},rankmap", *layout)
        assert done.returncode == 0, done.stdout
        plans.append(json.loads((folder / "plan.json").read_text("utf-8")))
    assert plans[0]["layout"] == plans[1]["layout"]
    for figure in ("ttft_seconds", "tpot_seconds", "tokens_per_second"):
        assert plans[0]["estimate"][figure] != plans[1]["estimate"][figure]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")
def test_its_script_starts_the_processes_of_a_host(parc: Parc, tmp_path: Path) -> None:
    checkpoint = "/models/it's $(touch hacked)"
    out = tmp_path / "out"
    done = parc(
        "compile",
        SPEC,
        "-o",
        out,
        "--set",
        f'job.checkpoint="{checkpoint}"',
        "--set",
        "job.precision=bf16",
    )
    assert done.returncode == 0, done.stdout
    program = tmp_path / "bin" / "minserve"
    program.parent.mkdir()
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$CUDA_VISIBLE_DEVICES" "$@" > words\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NODE_RANK": "1"}
    subprocess.run(["bash", str(out / SCRIPT)], cwd=tmp_path, env=environment, check=True)
    gpus, *words = (tmp_path / "words").read_text("utf-8").splitlines()
    assert gpus == "0,1,2,3,4,5,6,7"
    assert words[:3] == ["serve", "--model", checkpoint]
    assert words[-4:] == ["--first-rank", "8", "--head", "r01n01"]
    assert not (tmp_path / "hacked").exists()


def test_its_verifier_shares_no_code_with_its_emitter() -> None:
    own = [
        node.module or ""
        for node in ast.walk(syntax_tree(SOURCE / "verify.py"))
        if isinstance(node, ast.ImportFrom)
    ]
    assert [name for name in own if name.startswith("parc_minserve") or not name] == []
    seam = ("parc.backends.verifier", "parc.compiler.diagnostics", "parc.compiler.verify")
    assert [name for name in imported(SOURCE / "verify.py") if not name.startswith(seam)] == []


def test_its_readme_names_each_of_its_files() -> None:
    text = (EXAMPLE / "README.md").read_text("utf-8")
    files = [path for path in SOURCE.iterdir() if path.suffix in (".py", ".yaml")]
    assert [path.name for path in files if f"{path.name}`" not in text] == []
