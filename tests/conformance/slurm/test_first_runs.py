"""The first runs of docs/: from an empty folder to a job on a real Slurm, as the pages show them.

``--update-golden`` writes the new output into the pages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from parc.backends.kubernetes.backend import BACKEND as KUBERNETES
from tests.conformance.slurm.jobs import TORCHRUN, rank_map, started_ranks, wait_for_job
from tests.conformance.slurm.private_cluster import SlurmCluster
from tests.conformance.slurm.release import choose_release, reason_to_skip
from tests.conformance.tool_checkers import kubernetes_verdicts
from tests.docs.snippets import run_page
from tests.docs.test_snippets import CONFIG
from tests.project_files import ROOT, build_wheel

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
SHOWN = ("git", "hf", "pipx")
"""Programs that need a network."""
PAGES = ("docs/first-runs.md", "docs/sites.md")
RACKS = {"leaf1": ["gpu001", "gpu002"], "leaf2": ["gpu003", "gpu004"]}
MOST_SECONDS = 300
"""Limit for the commands of one section, including the job."""
MODULE = '#!/bin/bash\necho "module $*"\n'
SRUN = """#!/bin/bash
# Replaces pyxis, a plugin of srun: removes its options.
for word; do
  shift
  [[ $word == --container-* || $word == --no-container-* ]] || set -- "$@" "$word"
done
exec /usr/bin/srun "$@"
"""
KUBECTL = """#!/bin/bash
cat "$(dirname "$0")/nodes.json"
"""
HOME = "/shared/run"
"""Shown in the pages instead of the folder of the test."""


class Shell:
    """Shell of a user: PARC from its wheel, Slurm's commands, and stand-ins for other programs."""

    def __init__(self, cluster: SlurmCluster, bin_folder: Path) -> None:
        self.cluster, self.bin, self.jobs = cluster, bin_folder, 0

    def run(self, line: str) -> str:
        """Run a command line in the current folder; return its output after the job has ended."""
        program, submits = line.partition(" ")[0], " sbatch " in f" {line}"
        if submits:
            Path("pretrain_gpt.py").touch()  # of the checkout, or of the container
        elif program == "hf":
            Path("config.json").write_text(json.dumps(CONFIG), "utf-8")
        if program in SHOWN:
            return ""
        if line.startswith("kubectl apply"):
            return applied_objects(Path(line.rpartition(" ")[2]))
        path = f"{self.bin}:{os.environ['PATH']}"
        output = self.cluster.run("bash", "-c", line, cwd=Path.cwd(), PATH=path)
        if submits:
            self.finish(line, output)
        return output.replace(str(Path.cwd()), HOME)

    def finish(self, line: str, output: str) -> None:
        """Wait for the end of a job, and compare its ranks with the plan."""
        self.jobs += 1
        assert output == f"Submitted batch job {self.jobs}\n"
        log, status = wait_for_job(self.cluster, Path.cwd(), str(self.jobs))
        assert status == "0", log
        Path("out").symlink_to(Path(line.rpartition(" ")[2]).parents[1])
        assert Path("out/slurm/job.sbatch").read_text().count("\n") <= 90
        started, planned = started_ranks(Path.cwd()), rank_map(Path.cwd())
        if not Path("out/slurm/hostfile").exists():  # Slurm chooses the hosts
            started, planned = (
                [(rank, gpu) for rank, _, gpu in ranks] for ranks in (started, planned)
            )
        assert started == planned


def applied_objects(path: Path) -> str:
    """Return what ``kubectl apply`` prints, after a strict check of the objects in a file."""
    releases = list(KUBERNETES.versions) if os.environ.get("PARC_CONFORMANCE_KUBERNETES") else []
    trees = [json.loads(json.dumps(one)) for one in YAML(typ="safe").load_all(path.read_text())]
    cases = [{"name": one["kind"], "manifest": one, "releases": releases} for one in trees]
    wrong = [
        one for one in kubernetes_verdicts(cases) if not one["accepted"] or one["keys_ignored"]
    ]
    assert not wrong
    lines = []
    for one in trees:
        group = one["apiVersion"].partition("/")[0] if "/" in one["apiVersion"] else ""
        kind = ".".join(filter(None, (one["kind"].lower(), group)))
        lines.append(f"{kind}/{one['metadata']['name']} created\n")
    return "".join(lines)


def kubernetes_nodes() -> str:
    """Return the list of the hosts as Kubernetes nodes, with the labels of their racks."""
    nodes = []
    for rack, hosts in RACKS.items():
        for host in hosts:
            labels = {
                "kubernetes.io/hostname": host,
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.count": "8",
                "network.topology.nvidia.com/leaf": rack,
            }
            metadata = {"name": host, "labels": labels}
            status = {"allocatable": {"nvidia.com/gpu": "8", "rdma/rdma_shared_device_a": "63"}}
            nodes.append({"kind": "Node", "metadata": metadata, "status": status})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``parc`` of a wheel, and with the stand-ins."""
    work = tmp_path_factory.mktemp("tools")
    site, tools = work / "site", work / "bin"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(site), str(build_wheel(work))], check=True)
    start = "import sys; from parc.compiler.cli import main; sys.argv[0] = 'parc'; main()"
    parc = f'#!/bin/bash\nPYTHONPATH={site} exec {sys.executable} -c "{start}" "$@"\n'
    texts = {"parc": parc, "torchrun": TORCHRUN, "module": MODULE, "kubectl": KUBECTL, "srun": SRUN}
    tools.mkdir()
    for name, text in (texts | {"nodes.json": kubernetes_nodes()}).items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tools


@pytest.mark.parametrize("name", PAGES)
def test_the_first_runs_of_a_page_print_what_it_shows(
    name: str, bin_folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = ROOT / name
    text, new = page.read_text("utf-8"), []
    (tmp_path / "slurm").mkdir()
    release = choose_release("tree")
    with (
        SlurmCluster(tmp_path / "slurm", RACKS, *release, gpu_type="h100") as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        shell = Shell(cluster, bin_folder)
        for number, section in enumerate(text.split("\n## ")):
            folder = tmp_path / f"section{number}"
            folder.mkdir()
            patch.chdir(folder)
            start = time.monotonic()
            new.append(run_page(section, shell.run))
            seconds = time.monotonic() - start
            commands = section.count("\n$ ")
            print(f"{name}, section {number}: {commands} commands, {seconds:.0f} s")
            assert seconds < MOST_SECONDS
    if request.config.getoption("--update-golden"):
        page.write_text("\n## ".join(new), "utf-8")
    assert page.read_text("utf-8") == "\n## ".join(new), "run this test with --update-golden"
