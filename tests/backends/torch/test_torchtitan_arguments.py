"""Options of torchtitan: those that the plan sets, and ranges in ``launch.args`` and TOML files."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.shared.extra_arguments import bounds_outside_parser
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from tests.compiled import planned

SPEC = {
    "parc": 1,
    "name": "t",
    "model": "llama-3.1-8b",
    "cluster": {"node": "hgx-h100", "nodes": 1},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "emit": ["torchtitan", "torchrun"],
}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--parallelism.tensor_parallel_degree", "2"], ["F02"]),
        (["--parallelism.tensor-parallel-degree=2"], ["F02"]),
        (["--training.no-disable-cuda-graphs"], ["F02"]),
        (["--hf_assets_path", "./other"], ["F02"]),
        (["--metrics.log_freq", "0"], ["F03"]),
        (["--training.gc_freq=-1"], ["F03"]),
        (["--metrics.log_freq", "10", "--parallelism.spmd_backend", "partial_dtensor"], []),
        (["metrics.log_freq"], ["F01"]),
    ],
)
def test_options_that_contradict_the_plan_or_their_range_are_errors(
    args: list[str], expected: list[str]
) -> None:
    _, sink = planned(SPEC | {"launch": {"args": args}})
    found = [one.code.removeprefix("PARC-") for one in sink.diagnostics if "launch" in one.path]
    assert found == expected


def test_the_options_of_the_own_program_are_not_checked() -> None:
    launch = {"args": ["--metrics.log_freq", "0"], "program": "mine.py"}
    _, sink = planned(SPEC | {"launch": launch})
    assert not [one for one in sink.diagnostics if one.path.startswith("launch.args")]


OPTIONS = sorted(bounds_outside_parser("parc.backends.torchtitan").items())


@pytest.mark.parametrize(("option", "row"), OPTIONS)
def test_a_number_outside_its_range_is_reported_in_toml(option: str, row: dict[str, float]) -> None:
    section, key = option.removeprefix("--").split(".")
    for value, expected in ((row["minimum"] - 1, ["PARC-F03"]), (row["minimum"], [])):
        text = f"[parallelism]\ncontext_parallel_degree = 1\n[{section}]\n{key} = {value}\n"
        text = text if section != "parallelism" else f"[{section}]\n{key} = {value}\n"
        sink = Sink()
        import_files("torchtitan-toml", [(text, "job.toml")], sink)
        assert [one.code for one in sink.diagnostics if one.code == "PARC-F03"] == expected


def test_a_number_of_thousands_of_digits_is_reported_in_toml() -> None:
    sink = Sink()
    text = f"[training]\nsteps = {'9' * 5000}\n"
    assert import_files("torchtitan-toml", [(text, "job.toml")], sink) is None
    assert [one.code for one in sink.diagnostics] == ["PARC-I01"]


TOML = """\
[training]
steps = 10
"""


def _imported(text: str) -> tuple[dict[str, Any], list[str]]:
    found = import_files("torchtitan-toml", [(TOML + text, "job.toml")], Sink())
    assert found is not None
    return dict(found.fragment.spec), list(found.fragment.notes)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("[profiling]\nenable_profiling = true\nprofile_freq = 100\n",
         ["--profiler.enable_profiling", "--profiler.profile_freq", "100"]),
        ("[profiling]\nenable_profiling = false\nprofile_freq = 100\n", []),
        ('[metrics]\nlog_freq = 10\nsave_tb_folder = "runs"\n', []),
        ('[metrics]\nlog_freq = 1\nenable_tensorboard = true\nsave_tb_folder = "runs"\n',
         ["--metrics.log_freq", "1", "--metrics.enable_tensorboard",
          "--metrics.save_tb_folder", "runs"]),
        ("[comm]\ntrace_buf_size = 0\n", ["--comm.trace_buf_size", "0"]),
    ],
)  # fmt: skip
def test_profiler_metrics_and_timeouts_become_options(text: str, args: list[str]) -> None:
    spec, notes = _imported(text)
    assert spec.get("launch", {}).get("args", []) == args
    assert notes == []
    _, sink = planned(SPEC | {"launch": {"args": args}})
    assert not [one for one in sink.diagnostics if "launch" in one.path]


@pytest.mark.parametrize(
    "text",
    [
        '[experimental]\ncustom_import = "mine"\n',
        "[job]\nuse_for_integration_test = true\n",
        '[metrics]\nunknown = "x"\n',
        "[parallelism]\ndata_parallel_replicate_degree = 2\n",
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = -1\n",
    ],
)
def test_a_key_without_a_field_is_listed(text: str) -> None:
    key = text.split("\n")[1].partition(" ")[0]
    spec, notes = _imported(text)
    assert len(notes) == 1
    assert f".{key}: " in notes[0]
    assert not spec.get("layout", {}).keys() & {"dp", "dp_shard"}


def test_sharded_replicas_set_both_sizes() -> None:
    text = "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
    spec, notes = _imported(text)
    assert (spec["layout"]["dp"], spec["layout"]["dp_shard"], notes) == (8, 4, [])


OLD = """\
[model]
name = "llama3"
flavor = "70B"

[training]
seq_len = 8192
{type}data_parallel_degree = -1
tensor_parallel_degree = 8
warmup_steps = 200

[experimental]
pipeline_parallel_degree = 2
context_parallel_degree = 4
"""


def test_sizes_of_releases_before_section_parallelism_are_imported() -> None:
    found = import_files("torchtitan-toml", [(OLD.format(type=""), "job.toml")], Sink())
    assert found is not None
    layout = found.fragment.spec["layout"]
    assert {name: layout[name] for name in ("tp", "pp", "cp", "zero_stage")} == {
        **{"tp": 8, "pp": 2, "cp": 4, "zero_stage": 2}
    }
    assert found.fragment.spec["job"]["warmup_steps"] == 200
    assert found.fragment.spans["layout.tp"].line == 8
    assert found.fragment.spans["layout.pp"].line == 12


def test_another_type_of_data_parallelism_leaves_the_stage_open() -> None:
    text = OLD.format(type='data_parallel_type = "ddp"\n')
    found = import_files("torchtitan-toml", [(text, "job.toml")], Sink())
    assert found is not None
    assert "zero_stage" not in found.fragment.spec["layout"]
    assert "not carried over, line 7: training.data_parallel_type: ddp" in found.fragment.notes
