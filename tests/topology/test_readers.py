"""Readers of all import formats: fragments of good files, findings about bad ones."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from parc.backends.megatron.launch_files import import_arguments
from parc.backends.vllm.launch_files import import_command
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.render import render
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.spec.annotations import literal_values
from parc.compiler.spec.cluster_spec import TopologyFormat
from parc.compiler.spec.reading.yaml_tree import read_tree
from parc.compiler.spec.schema import all_fields
from parc.compiler.tools.importers import slurm
from parc.compiler.tools.importers.flags import FlagField
from parc.compiler.tools.importers.import_files import import_formats
from parc.compiler.topology.readers.registry import FORMATS, detect_format
from tests.topology.mutations import mutated
from tests.topology.reading import FILE, finding_lines, read

Case = dict[str, Any]
KINDS = import_formats()
FILES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
CASES: list[Case] = [case for path in FILES for case in parse_table(path.read_text("utf-8"))]
SHOWN = [case for case in CASES if "prints" in case]


def titles(cases: list[Case]) -> list[str]:
    return [case["title"] for case in cases]


@pytest.mark.parametrize("case", CASES, ids=titles(CASES))
def test_a_file_gives_a_fragment_or_findings_with_positions(case: Case) -> None:
    text, sink = read(case["kind"], case["given"])
    assert (text, finding_lines(sink)) == (case.get("prints", ""), case.get("findings", []))


def test_every_format_has_a_good_and_a_bad_file() -> None:
    elsewhere = {"nccl-tests", "parc-plan"}  # test_nccl_import.py, cli/test_import_output.py
    assert {case["kind"] for case in SHOWN} == KINDS.keys() - elsewhere
    assert {case["kind"] for case in CASES if "prints" not in case} == KINDS.keys() - elsewhere


@pytest.mark.parametrize("case", SHOWN, ids=titles(SHOWN))
def test_the_format_of_a_good_file_is_detected(case: Case) -> None:
    same = {"topograph's Slurm output has the real names in comments": "slurm-topology"}
    assert detect_format(case["given"], KINDS) == same.get(case["title"], case["kind"])


def test_an_unknown_text_has_no_format() -> None:
    assert detect_format("hello\n", KINDS) is None


def test_a_spec_may_use_the_formats_that_contain_hosts() -> None:
    assert set(literal_values(TopologyFormat)) == FORMATS.keys() - {"nvidia-smi-topo"}


@pytest.mark.parametrize("case", SHOWN, ids=titles(SHOWN))
def test_a_damaged_file_gives_a_fragment_or_findings_inside_it(case: Case) -> None:
    dice = random.Random(case["title"])
    for _ in range(6):
        damaged = mutated(case["given"], dice)
        text, sink = read(case["kind"], damaged)
        assert text or sink.failed()
        assert read_tree(text, "fragment", Sink()) is not None or not text
        assert render([sink]).count("PARC-") >= len(sink.diagnostics)
        spans = [found.span for found in sink.diagnostics]
        lines = len(damaged.splitlines()) + 1
        assert all(span and span.file == FILE and 1 <= span.line <= lines for span in spans)


LONG = {
    "slurm-topology": ["SwitchName=" * 6_000, "a" * 100_000, "#" * 100_000, "\n" * 100_000],
    "scontrol-nodes": [
        "NODELIST" * 13_000,
        "A " * 33_333 + "1",
        '{"nodes": ' * 33_000,
        "[" * 100_000,
        '{"nodes": [{"gres": "gpu:',
    ],
    "topograph": ["# a=" + " " * 66_000 + "b", "switches: {" * 200],
    "nvidia-smi-topo": ["\tGPU0" * 13_000, "n:" * 33_000, "\tGPU0\n" + "GPU0\tX\n" * 13_000],
    "ibnetdiscover": ['[1]\t"' * 1_000 + "\n", "{ SW Ports:1 " * 6_000],
    "megatron-args": ["--a " * 13_000, "'" * 33_333, '"--x ' * 6_000, "A=$A" * 16_000],
    "sbatch": ["#SBATCH --x=1\n" * 1_000, "#SBATCH " + "-" * 66_000],
    "nccl-tests": ["# Rank 0 " * 13_000, "_perf" * 20_000],
}
"""Texts on which a pattern with quadratic backtracking would take a minute."""


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in LONG.items() for text in texts]
)
def test_long_lines_are_read_in_seconds(kind: str, text: str) -> None:
    start = time.process_time()
    read(kind, text)
    detect_format(text, KINDS)
    assert time.process_time() - start < 3


TABLES = (import_arguments.TABLE.rows, import_command.TABLE.rows, slurm.TABLE)


@pytest.mark.parametrize("table", TABLES)
def test_every_imported_flag_sets_a_field_of_the_spec(table: dict[str, FlagField]) -> None:
    derived = {"virtual", "precision", "bias", "pattern", "experts", "variant", "letters", "wsd"}
    derived |= {"base", "geglu", "graphs", "sharding", "shards", "window"}
    paths = {row.path for row in table.values() if row.path.partition(".")[0] not in derived}
    assert paths - all_fields().keys() == set()
