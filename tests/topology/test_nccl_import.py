"""nccl-tests to a calibration: the fit recovers the parameters that generated the times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.cli.specs import SPEC
from tests.topology.reading import finding_lines, read


def output(hosts: int, per_host: int, seconds_fixed: float, bus_gb_per_s: float) -> str:
    """Return all-reduce times of ``fixed + 2 (n-1)/n size / bus`` as nccl-tests prints them."""
    ranks = hosts * per_host
    lines = ["# nccl-tests version 2.17.1", "# Collective test starting: all_reduce_perf"]
    lines += [
        f"#  Rank {rank} Group  0 Pid   40 on  n{rank // per_host + 1} device  {rank % per_host} "
        "[0000:1b:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    ]
    for power in range(3, 34, 2):
        size = 2**power
        micro = (seconds_fixed + 2 * (ranks - 1) / ranks * size / bus_gb_per_s / 1e9) * 1e6
        lines.append(
            f"  {size}  {size // 4}  float  sum  -1  {micro:.2f}  0 0 0  {micro:.2f} 0 0 0"
        )
    return "\n".join(lines) + "\n"


def test_one_host_measures_the_links_inside() -> None:
    text, sink = read("nccl-tests", output(1, 8, 20e-6, 400.0))
    assert finding_lines(sink) == []
    document = YAML(typ="safe", pure=True).load(text)
    assert document["class"] == "hopper"
    assert document["parameters"] == {}
    assert document["collectives"]["all_reduce"]["bus_gb_per_s"] == pytest.approx(400, rel=0.2)
    assert "all_reduce, 8 ranks on 1 hosts: 20.0 us for small messages, bus 399" in text


def test_several_outputs_are_one_calibration_that_a_spec_can_name(tmp_path: Path) -> None:
    text, sink = read("nccl-tests", output(1, 8, 20e-6, 400.0), output(2, 8, 40e-6, 300.0))
    assert finding_lines(sink) == []
    (tmp_path / "measured.yaml").write_text(text, encoding="utf-8")
    spec = SPEC.replace("  racks:", "  calibration: measured.yaml\n  racks:")
    sink = Sink()
    problem = resolve_spec(SpecSource("spec.yaml", spec, tmp_path), (), sink)
    assert problem is not None, sink.diagnostics
    assert {"network", "hop_seconds"} < dict(problem.calibration).keys()
    assert json.loads(json.dumps(dict(problem.calibration)))["network"] > 0.05


def test_an_unknown_device_is_reported() -> None:
    text, sink = read("nccl-tests", output(1, 8, 1e-5, 400.0).replace("NVIDIA H100", "Frob 9"))
    assert text == ""
    assert finding_lines(sink) == [
        "Q04 3:1 given: the catalog has no node type with 'Frob 9 80GB HBM3'"
    ]


def test_an_incomplete_output_is_reported() -> None:
    assert finding_lines(read("nccl-tests", "# nothing\n")[1])[0].startswith(
        "Q04 1:1 given does not name a known collective"
    )
