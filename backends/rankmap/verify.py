"""Verifier of the rank map: dependencies between its files, and the settings that they contain.

``compiler.verify`` itself compares the rank map with the files of all other targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from parc.backends.rankmap.verify_document import (
    read_document_settings,
    read_table_settings,
    verify_groups_and_sizes,
)
from parc.backends.rankmap.verify_page import PAGE, verify_page
from parc.backends.rankmap.verify_page_tables import PageFacts
from parc.backends.verifier import DerivedSetting, FileDependencies, Verifier
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.read_emitted import DOCUMENT, PLACE, TABLE, read_document
from parc.compiler.verify.verify_settings import PLAN, read_plan

FILES = ("rankmap.csv", "rankmap.json", PAGE)


class RankmapVerifier(Verifier):
    """Compares the hosts, meshes and groups of the rank map with the plan."""

    files = FileDependencies(
        always=FILES,
        always_serving=FILES,
        required_by=(
            ("rankmap.json", "rankmap.csv"),
            ("rankmap.csv", "rankmap.json"),
            ("rankmap.csv", "rankmap.md"),
        ),
    )
    not_in_files = MappingProxyType(
        {
            "problem.job": "the rank map shows the placement of ranks only",
            "problem.service": "the rank map shows the placement of ranks only",
        }
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the hosts, racks, meshes and rank counts of the CSV and the JSON file."""
        if TABLE in artifacts:
            yield from read_table_settings(artifacts[TABLE])
        if DOCUMENT in artifacts and PLAN in artifacts:
            serving = "service" in read_plan(artifacts[PLAN])["problem"]
            yield from read_document_settings(artifacts[DOCUMENT], serving)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report contradictions of the rank map (A06).

        These are groups and sizes that contradict the meshes, and wrong lines of ``rankmap.md``.
        """
        if DOCUMENT not in artifacts:
            return
        verify_groups_and_sizes(artifacts[DOCUMENT], sink)
        if {PAGE, TABLE, PLAN} <= artifacts.keys():
            facts = PageFacts(read_document(artifacts[DOCUMENT]), read_plan(artifacts[PLAN]))
            columns = artifacts[TABLE].partition("\n")[0].split(",")[len(PLACE) :]
            verify_page(artifacts[PAGE], facts, columns, sink)


VERIFIER = RankmapVerifier()
