"""Verifier of the preflight program and of the placement that it expects, ``expected.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.verifier import DerivedSetting, FileDependencies, JobShape, Verifier
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import read_format_1
from parc.compiler.verify.verify_settings import json_lines

PACKAGE = "parc.backends.preflight"
KEYS = ("format", "groups", "hosts", "packages", "ranks_per_node", "world")
EXPECTED, PROGRAM = "preflight/expected.json", "preflight/check_ranks.py"


class PreflightVerifier(Verifier):
    """Compares the expected hosts, rank counts and process groups with the rank map."""

    files = FileDependencies(
        always=(PROGRAM, EXPECTED),
        references={PROGRAM: "/preflight/check_ranks.py"},
        required_by=((EXPECTED, PROGRAM),),
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the hosts and rank counts that the program expects."""
        if EXPECTED not in artifacts:
            return
        expected = _read_expected(artifacts[EXPECTED])
        lines = json_lines(artifacts[EXPECTED])
        hosts, ranks, world = (expected.get(key) for key in ("hosts", "ranks_per_node", "world"))
        for path, value, key in (
            ("problem.cluster.named", bool(hosts), "hosts"),
            *((("placement.hosts", hosts, "hosts"),) if hosts else ()),
            ("placement.ranks_per_node", ranks, "ranks_per_node"),
            ("layout.world", world, "world"),
        ):
            yield DerivedSetting(path, value, EXPECTED, lines.get(key, 1), stated=True)
        for key in sorted(expected.keys() - set(KEYS)):
            yield DerivedSetting("problem.launch.args", f"the key {key}", EXPECTED, needed="")
        for name, group in sorted(expected["groups"].items()):
            if not isinstance(group, dict) or group.keys() != {"size", "within"}:
                yield DerivedSetting(
                    "problem.launch.args", f"the group {name}", EXPECTED, needed=""
                )

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report changed code (A18), and differences from the rank map.

        These are hosts (A02), rank counts (A07) and groups (A06).
        """
        verify_programs(artifacts, read_program_digests(PACKAGE), sink)
        if EXPECTED not in artifacts or job.document is None:
            return
        expected = _read_expected(artifacts[EXPECTED])
        _verify_hosts_and_counts(expected, job, job.document, sink)
        _verify_groups(expected["groups"], job.document["groups"], sink)


def _read_expected(text: str) -> dict[str, Any]:
    return read_format_1(EXPECTED, text, (("groups", dict), ("hosts", list)))


def _verify_hosts_and_counts(
    expected: dict[str, Any], job: JobShape, document: Mapping[str, Any], sink: Sink
) -> None:
    """Report hosts (A02) and rank counts (A07) that differ from the rank map."""
    named, span = expected["hosts"], Span(EXPECTED, 1, 1)
    if named and named != job.hosts:  # empty if the cluster's hosts have no names
        message = f"the hosts of {EXPECTED} differ from those of the rank map"
        sink.report(
            "A02", Finding(message, _describe_first_difference(named, job.hosts)), span=span
        )
    for name in ("ranks_per_node", "world"):
        found, must = expected.get(name), document.get(name)
        if found != must:
            message = f"{name} is {found!r:.60} in {EXPECTED}, the rank map has {must!r:.60}"
            sink.report("A07", message, span=span)


def _verify_groups(expected: dict[str, Any], groups: dict[str, Any], sink: Sink) -> None:
    """Report every family of groups that differs from the rank map (A06).

    Families whose groups have a single rank may be missing, because the preflight program does not
    test them.
    """
    for name, group in sorted(groups.items()):
        must, found = _group_size_and_spans(group), _group_size_and_spans(expected.get(name))
        # The emitter leaves out families of single ranks, which cannot fail.
        single = found is None and must is not None and must[0] == 1
        if found != must and not single:
            message = f"the groups of {name} in {EXPECTED} differ from those of the rank map"
            label = f"{found!r:.60}, must be {must!r:.60}"
            sink.report("A06", Finding(message, label), span=Span(EXPECTED, 1, 1))
    for name in sorted(expected.keys() - groups.keys()):
        message = f"the rank map has no groups of {name!r:.40}, which are in {EXPECTED}"
        sink.report("A06", message, span=Span(EXPECTED, 1, 1))


def _group_size_and_spans(group: Any) -> tuple[Any, Any] | None:
    """Return (size, [size, stride] pairs) of a group family; None if its entry is damaged."""
    return (group.get("size"), group.get("within")) if isinstance(group, dict) else None


def _describe_first_difference(found: list[Any], hosts: list[str]) -> str:
    """Return the first node rank whose host differs, as text.

    If no host differs, return the two numbers of hosts.
    """
    pairs = enumerate(zip(found, hosts, strict=False))
    first = next(
        (f"node rank {n}: {a!r:.60}, must be {b!r:.60}" for n, (a, b) in pairs if a != b), ""
    )
    return first or f"{len(found)} hosts, must be {len(hosts)}"


VERIFIER = PreflightVerifier()
