"""Compare what preflight expects on the hosts with the rank map."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span

EXPECTED = "preflight/expected.json"


def verify_preflight(
    expected: dict[str, Any], document: dict[str, Any], hosts: list[str], sink: Sink
) -> None:
    """A02 for other hosts, A07 for other numbers, A06 for other groups.

    Args:
        expected: the tree of ``preflight/expected.json``.
        document: the tree of ``rankmap.json``.
        hosts: by node rank, as the rank map has them.
        sink: where findings go.
    """
    span = Span(EXPECTED, 1, 1)
    named = expected["hosts"]
    if named and named != hosts:  # hosts without names are not told apart
        message = f"the hosts of {EXPECTED} are not those of the rank map"
        sink.report("A02", Finding(message, _first_other(named, hosts)), span=span)
    for name in ("ranks_per_node", "world"):
        found, must = expected.get(name), document.get(name)
        if found != must:
            message = f"{name} is {found!r:.60} in {EXPECTED}, the rank map has {must!r:.60}"
            sink.report("A07", message, span=span)
    for name, group in sorted(document["groups"].items()):
        must, found = _spans(group), _spans(expected["groups"].get(name))
        alone = found is None and must is not None and must[0] == 1
        if found != must and not alone:
            message = f"the groups of {name} in {EXPECTED} are not those of the rank map"
            sink.report("A06", Finding(message, f"{found!r:.60}, must be {must!r:.60}"), span=span)


def _spans(group: Any) -> tuple[Any, Any] | None:
    """(ranks, how they are spread); None for what is no group."""
    return (group.get("size"), group.get("within")) if isinstance(group, dict) else None


def _first_other(found: list[Any], hosts: list[str]) -> str:
    """The first node rank whose host differs."""
    pairs = enumerate(zip(found, hosts, strict=False))
    first = next(
        (f"node rank {n}: {a!r:.60}, must be {b!r:.60}" for n, (a, b) in pairs if a != b), ""
    )
    return first or f"{len(found)} hosts, must be {len(hosts)}"
