"""Files of Megatron-Bridge: all settings are verified; impossible specs are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.backends.megatron.bridge.verify import CONFIG, VERIFIER
from parc.backends.registry import framework
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.verify.verify_settings import verify_settings
from tests.compiled import Files, Spec, example, example_files, files_of, messages_of, planned

EXAMPLE = "qwen3-30b-a3b-megatron-bridge"
LATENT: Spec = {
    "parc": 1,
    "name": "latent",
    "model": "deepseek-v2-lite",
    "cluster": {"node": "dgx-h100", "racks": [{"name": "r1", "nodes": ["h1", "h2"]}]},
    "job": {
        "sequence_length": 2048,
        "global_batch": 64,
        "kind": "finetune",
        "load_dir": "/start/${oc.env:HOME}",
        "checkpoint_dir": "/runs",
        "async_checkpoint": True,
        "data": ["/data/a", "/data/b"],
        "precision": "fp8",
        "fp8_recipe": "delayed",
        "lr_decay": "wsd",
        "moment_precision": "bf16",
    },
    "layout": {"tp": 2, "pp": 2, "ep": 2, "etp": 1, "recompute": "selective"},
    "launch": {
        "args": ["train.exit_interval=50"],
        "logging": {"wandb": "runs"},
        "profile": {"first_step": 5, "last_step": 6},
    },
    "emit": ["megatron-bridge", "rankmap"],
}
UNUSED_ALONE = {
    "optimizer.use_distributed_optimizer",  # the switch of ddp is sufficient
    "ddp.use_distributed_optimizer",  # the switch of optimizer is sufficient
    "ddp.overlap_grad_reduce",  # with ZeRO, comm_overlap replaces it
    "ddp.overlap_param_gather",
}
"""Settings whose change alone has no effect on the two files."""
PASSES = 4
"""Number of files with changed settings: each file has every fourth change, because it takes tens
of milliseconds to read one."""


@cache
def emitted(name: str) -> Files:
    return example_files(EXAMPLE) if name == "example" else files_of(LATENT)


def reported_lines(files: Files) -> set[int]:
    """Return the lines of the settings that the verifier reports."""
    plan, lines = json.loads(files["plan.json"]), set()
    for one in VERIFIER.derive_settings(files):
        sink = Sink()
        verify_settings(plan, [one], sink)
        lines |= {one.line} if sink.failed() else set()
    return lines


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    return [*value, 1] if isinstance(value, list) else f"{value}x"


def settings_of(text: str) -> Iterator[tuple[int, str, Any]]:
    """Yield (line, setting, value) for each setting of a file."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        name, _, word = line.strip().partition(": ")
        if line.startswith(" "):
            yield number, f"{section}.{name}", YAML(typ="safe").load(word)
        section = section if line.startswith(" ") else line.rstrip(":")


@pytest.mark.parametrize("name", ["example", "latent"])
def test_every_changed_setting_is_reported(name: str) -> None:
    files, elsewhere = emitted(name), []
    assert reported_lines(files) == set()
    settings = list(settings_of(files[CONFIG]))
    for turn in range(PASSES):
        edited = settings[turn::PASSES]
        found = reported_lines(with_changes(files, edited))
        elsewhere += [one for one in edited if one[0] not in found]
    # A setting that has an effect only together with others may be reported at their lines.
    assert len(elsewhere) < len(settings) / 5
    silent = {one[1] for one in elsewhere if not reported_lines(with_changes(files, [one]))}
    assert silent == UNUSED_ALONE


def with_changes(files: Files, edited: list[tuple[int, str, Any]]) -> Files:
    """Return the files with other values of the settings ``edited``."""
    lines = files[CONFIG].splitlines()
    for number, setting, value in edited:
        lines[number - 1] = f"  {setting.partition('.')[2]}: {json.dumps(changed(value))}"
    return {**files, CONFIG: "\n".join([*lines, ""])}


def test_an_added_setting_is_reported_at_its_line() -> None:
    files = emitted("example")
    text = files[CONFIG].replace("train:\n", "train:\n  rampup_batch_size: 8\n")
    line = text.splitlines().index("  rampup_batch_size: 8") + 1
    assert reported_lines({**files, CONFIG: text}) == {line}


def test_a_text_that_omegaconf_would_expand_is_escaped() -> None:
    assert '"/start/\\\\${oc.env:HOME}"' in emitted("latent")[CONFIG]


def test_the_launch_script_passes_the_settings_and_the_overrides() -> None:
    plan = example(EXAMPLE)
    assert isinstance(plan, Plan)
    command = framework("megatron-bridge").launch_command(plan)
    assert command.program == '"$here/../megatron-bridge/pretrain.py"'
    assert command.args == '--config-file "$here/../megatron-bridge/config.yaml"'


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nemotron-h-56b", "nemotron-h-56b has a layer pattern"),
        ("qwen3-next-80b-a3b", "qwen3-next-80b-a3b has linear attention"),
        ("gpt2-xl", "1024 learned positions, but Megatron-Bridge creates one per token"),
    ],
)
def test_models_that_the_program_cannot_build_are_refused(model: str, words: str) -> None:
    spec = LATENT | {"model": model, "job": {"sequence_length": 512, "global_batch": 64}}
    plan, sink = planned({**spec, "layout": {}, "launch": {}})
    assert plan is None
    (found,) = (one for one in sink.diagnostics if one.code == "PARC-E11")
    assert words in found.finding.message
    assert found.finding.fix == "emit: [megatron, preflight, rankmap, slurm, torchrun]"


def test_deepep_is_refused_on_a_gpu_for_which_megatron_bridge_stops() -> None:
    job = {"sequence_length": 2048, "global_batch": 64, "moe_dispatcher": "deepep"}
    cluster = {"node": "gb200-nvl72", "nodes": 2}
    plan, sink = planned({**LATENT, "job": job, "cluster": cluster, "layout": {}, "launch": {}})
    assert plan is None
    assert "Megatron-Bridge does not start DeepEP on gb200" in str(messages_of(sink))


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("model.tensor_model_parallel_size=8", "F02", "is derived from layout.tp"),
        ("++optimizer.lr=1.0", "F02", "is derived from job.learning_rate"),
        ("train={train_iters:5}", "F02", "is derived from job.steps"),
        ("--train-iters", "F01", "such as train.exit_interval=100"),
        ("logger.log_interval=10", "", ""),
        ("model.cuda_graph_impl=local", "", ""),
    ],
)
def test_an_override_of_a_field_of_the_plan_is_refused(word: str, code: str, words: str) -> None:
    _, sink = planned({**LATENT, "launch": {"args": [word]}})
    found = [one for one in sink.diagnostics if one.severity == "error"]
    assert [one.code for one in found] == ([f"PARC-{code}"] if code else [])
    assert all(words in one.finding.help for one in found)
