"""A job of Megatron that starts again continues its own run, even if it began with another one."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from parc.backends.megatron.launch_files.import_arguments import read_megatron_args
from parc.compiler.diagnostics import Sink
from tests.backends.stage import Stage
from tests.compiled import files_of, plan_of, verification_codes

MARKER = "latest_checkpointed_iteration.txt"


def spec_of(target: str = "megatron", **job: Any) -> dict[str, Any]:
    return {
        **{"parc": 1, "name": "base", "model": "llama-3-8b", "emit": [target, "torchrun"]},
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 4096, "global_batch": 64, "precision": "bf16", **job},
    }


def test_a_pretraining_run_loads_the_other_folder_until_it_has_a_checkpoint(stage: Stage) -> None:
    own = stage.root / "own 'runs'"
    stage.emit(plan_of(spec_of(load_dir="/base", checkpoint_dir=str(own))), "--load /base")
    assert stage.run("torchrun/launch.sh").returncode == 0
    own.mkdir()
    (own / MARKER).write_text("20")
    done = stage.run("torchrun/launch.sh")
    assert done.returncode == 0, done.stderr
    first, second = stage.calls()
    assert first[-2:] == ["--load", "/base"]
    assert second[-4:] == ["--load", "/base", "--load", str(own)]


@pytest.mark.parametrize(
    ("job", "flags"),
    [
        ({"checkpoint_dir": "/own"}, ["--load /own"]),
        ({"load_dir": "/base"}, ["--load /base", "--exit-on-missing-checkpoint"]),
        (
            {"kind": "finetune", "load_dir": "/base", "checkpoint_dir": "/own"},
            ["--load /own", "--pretrained-checkpoint /base"],
        ),
        ({"kind": "finetune", "load_dir": "/base"}, ["--pretrained-checkpoint /base"]),
        ({"load_dir": "/own", "checkpoint_dir": "/own"}, ["--load /own"]),
    ],
)
def test_the_flags_name_the_own_and_the_other_folder(job: dict[str, Any], flags: list[str]) -> None:
    files = files_of(spec_of(**job))
    loads = ("--load ", "--pretrained", "--finetune", "--exit-on")
    lines = [line.strip() for line in files["megatron/args.sh"].splitlines()]
    assert [line for line in lines if line.startswith(loads)] == flags
    assert MARKER not in files["torchrun/launch.sh"]


def test_an_edited_or_missing_line_that_resumes_is_reported() -> None:
    files = files_of(spec_of(load_dir="/base", checkpoint_dir="/own"))
    script = files["torchrun/launch.sh"]
    (line,) = [one for one in script.splitlines(keepends=True) if MARKER in one]
    for changed in (script.replace(line, ""), script.replace("(--load /own)", "(--load /base)")):
        assert verification_codes(files | {"torchrun/launch.sh": changed})


def test_the_bridge_gets_both_folders() -> None:
    files = files_of(spec_of("megatron-bridge", load_dir="/base", checkpoint_dir="/own"))
    config = files["megatron-bridge/config.yaml"]
    assert '  load: "/base"' in config
    assert '  save: "/own"' in config
    assert "choose_checkpoint(config.checkpoint)" in files["megatron-bridge/pretrain.py"]


@pytest.mark.parametrize(
    ("saved", "load", "chosen"),
    [
        ((), "/own", "/own"),  # the first start of a run without a base
        (("/base",), "/base", "/base"),
        (("/base", "/own"), "/base", "/own"),
        (("/own",), "/base", "/own"),
        (("/hugging-face",), "/hugging-face", "/hugging-face"),
        ((), "/base", None),
    ],
)
def test_the_program_of_the_bridge_chooses_its_own_checkpoint_first(
    saved: tuple[str, ...], load: str, chosen: str | None
) -> None:
    text = files_of(spec_of("megatron-bridge"))["megatron-bridge/pretrain.py"]
    (function,) = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "choose_checkpoint"
    ]
    names: dict[str, Any] = {
        "CheckpointConfig": object,
        "checkpoint_exists": lambda path: path in saved and path != "/hugging-face",
        "is_hf_checkpoint_dir": lambda path: path in saved and path == "/hugging-face",
    }
    exec(ast.unparse(function), names)
    config = SimpleNamespace(save="/own", load=load)
    if chosen is None:
        with pytest.raises(SystemExit, match="/base contains no checkpoint"):
            names["choose_checkpoint"](config)
        return
    names["choose_checkpoint"](config)
    assert config.load == chosen


def test_a_pretrained_checkpoint_is_imported_as_the_base_of_fine_tuning() -> None:
    files = files_of(spec_of(kind="finetune", load_dir="/base", checkpoint_dir="/own"))
    fragment = read_megatron_args(files["megatron/args.sh"], "args.sh", Sink())
    assert fragment is not None
    job = fragment.spec["job"]
    assert (job["kind"], job["load_dir"], job["checkpoint_dir"]) == ("finetune", "/base", "/own")
