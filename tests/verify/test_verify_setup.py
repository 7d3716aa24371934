"""Directives of a site, set-up commands and inherited variables are read back from the scripts."""

from __future__ import annotations

from functools import cache

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.verify.verify_plan import verify_artifacts
from tests import compiled
from tests.compiled import Files, Spec, changed, messages_of, planned

SITE = {
    "constraint": "a100&ib",
    "exclude": "n[1-3]",
    "nodelist": "n9",
    "array": "1-4%1",
    "comment": "the x",
    "mail": {"user": "a@b.c"},
    "extra": ["--gres=lustre:1", "--nice"],
}
LAUNCH = {
    "setup": ["module load cuda/12", "export FOO=1 # don't", "set -u"],
    "env": {"KEY": {"from": "environment"}, "NCCL_IB_TIMEOUT": {"from": "environment"}, "A": "b"},
    "slurm": SITE,
}
TRAINING = {
    "parc": 1,
    "name": "site",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "pp": 1},
    "emit": ["megatron", "slurm", "torchrun"],
    "launch": LAUNCH,
}
SERVING = {
    "parc": 1,
    "name": "site",
    "model": "mixtral-8x7b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 1024, "output_tokens": 128, "concurrency": 8},
        "max_model_len": 4096,
    },
    "layout": {"tp": 8, "pp": 2, "ep": "on"},
    "emit": ["slurm", "vllm"],
    "launch": LAUNCH,
}
JOB, ORDER = "slurm/job.sbatch", "slurm/order_hosts.sh"
LAUNCHER, SERVER = "torchrun/launch.sh", "vllm/serve.sh"
LINES = 'export "$name"\n'
EDITS = [
    (JOB, "--constraint=", "--constraint=v"),
    (JOB, '--exclude="n[1-3]"', "--exclude=n1"),
    (JOB, "--nodelist=n9", "--nodelist=n8"),
    (JOB, "--array=1-4%1", "--array=1-4"),
    (JOB, '--comment="the x"', "--comment=x"),
    (JOB, "--mail-user=a@b.c", "--mail-user=x@b.c"),
    (JOB, "--mail-type=END,FAIL", "--mail-type=ALL"),
    (JOB, "--gres=lustre:1", "--gres=lustre:2"),
    (JOB, "#SBATCH --nice\n", ""),
    (JOB, ".%A_%a.out", ".%j.out"),
    (JOB, "in KEY NCCL_IB_TIMEOUT;", "in KEY;"),
    (ORDER, "SLURM_GPUS SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"),
    (ORDER, "SLURM_GPU_BIND ", ""),
    (JOB, "gpus=8", "gpus=1"),
    (ORDER, " -ge $gpus ]]", " -ge 1 ]]"),
    (JOB, "submitted=${submitted%%$'\\n'*}", "submitted="),
]
LAUNCHER_EDITS = [
    ("module load cuda/12\n", "module load cuda/11\n"),
    ("module load cuda/12\n", ""),
    ("export FOO=1 # don't\n", "export FOO=2 # don't\n"),
    ("set -u # end of launch.setup\n", "true\nset -u # end of launch.setup\n"),
    ("set -u # end of launch.setup\n", ""),
    ("set +u # launch.setup", "true # launch.setup"),
    ("in KEY NCCL_IB_TIMEOUT;", "in NCCL_IB_TIMEOUT;"),
    ("in KEY NCCL_IB_TIMEOUT;", "in KEY NCCL_IB_TIMEOUT PATH;"),
    (LINES, ""),
    ("export A=b\n", "export A=b KEY=secret\n"),
    ("export A=b\n", "export A=b\nexport KEY=secret\n"),
    ("export A=b\n", "export A=b\nexport NCCL_IB_TIMEOUT=22\n"),
]


@cache
def emitted(serving: bool) -> Files:
    return files_of_plan(SERVING if serving else TRAINING)


def files_of_plan(spec: Spec) -> Files:
    plan, sink = planned(spec)
    assert plan is not None, messages_of(sink)
    return compiled.emitted(plan)


def findings(files: Files) -> list[str]:
    """Return the codes of the verification without checksums."""
    sink = Sink()
    verify_artifacts({path: text for path, text in files.items() if path != "parc.lock"}, sink)
    return [found.code.removeprefix("PARC-") for found in sink.diagnostics]


@pytest.mark.parametrize("serving", [False, True])
def test_scripts_of_a_plan_with_all_fields_are_verified(serving: bool) -> None:
    assert findings(emitted(serving)) == []


@pytest.mark.parametrize(
    ("serving", "file", "old", "new"),
    [
        *((False, *edit) for edit in EDITS),
        *((False, LAUNCHER, *edit) for edit in LAUNCHER_EDITS),
        *((True, SERVER, *edit) for edit in LAUNCHER_EDITS),
    ],
)
def test_each_edit_is_named(serving: bool, file: str, old: str, new: str) -> None:
    files = emitted(serving)
    assert files[file].count(old) >= 1
    assert findings({**files, file: files[file].replace(old, new, 1)}) != []


@pytest.mark.parametrize("serving", [False, True])
def test_a_foreign_command_before_the_launch_is_named(serving: bool) -> None:
    plain = changed(SERVING if serving else TRAINING, {"launch": {}})
    files = files_of_plan(plain)
    file = SERVER if serving else LAUNCHER
    block = "set +u # launch.setup\ntrue\nset -u # end of launch.setup\n"
    text = files[file].replace("set -euo pipefail\n", f"set -euo pipefail\n{block}", 1)
    assert findings({**files, file: text}) != []


def test_no_file_contains_more_than_the_name_of_an_inherited_variable() -> None:
    """The spec itself cannot contain a value, so that no file can."""
    for text in emitted(False).values():
        assert "KEY=" not in text
