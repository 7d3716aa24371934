"""Test that docs/diff-examples.md shows the current output of ``parc diff``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.specs import parc

PAGE = Path(__file__).parent.parent.parent / "docs" / "diff-examples.md"

OLD = """\
parc: 1
name: llama-3-70b
model: llama-3-70b
cluster:
  node: dgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-16]"}
    - {name: r02, nodes: "r02n[01-16]"}
  spare: []
job: {sequence_length: 8192, global_batch: 1024}
layout: {tp: 8, cp: 1, pp: 8, vpp: 1, recompute: none}
"""

HEAD = f"""\
# Examples of `parc diff`

This page shows the output of `parc diff` for five changes to one spec, as a reviewer would see it.
`parc diff --format markdown` prints the same content as tables for a pull request, and
`--format json` prints it for programs. With `--exit-code` the command exits with 3 if anything
differs, so that a CI job can fail on a change. The old and the new side may each be a spec or a
folder that `parc compile` wrote. The tests check this page, and `make golden` rewrites it.

The old spec:

```yaml
{OLD}```
"""

CHANGES: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Half the tensor parallelism",
        "Every rank keeps its GPU, but nearly all ranks get other coordinates in the device mesh.",
        (("tp: 8", "tp: 4"),),
    ),
    (
        "A drained node",
        "Host r01n07 is broken. The new spec marks it as unavailable and adds a host in the other\n"
        "rack to replace it.",
        (("r02n[01-16]", "r02n[01-17]"), ("spare: []", "unavailable: [r01n07]")),
    ),
    (
        "A renamed rack",
        "Only the name of a rack changes: no rank moves, and no group newly spans racks.",
        (("name: r02", "name: row-b-02"),),
    ),
    (
        "Another GPU type",
        "The layout stays the same, but the GPUs are H200: much more memory is free, and a step\n"
        "is hardly faster.",
        (("dgx-h100", "dgx-h200"),),
    ),
    (
        "A longer sequence",
        "The sequences are four times as long and are split over four context parallel ranks. The\n"
        "global batch is a quarter as large, so a step has the same number of tokens.",
        (("8192", "32768"), ("1024", "256"), ("cp: 1", "cp: 4")),
    ),
)


SPARE = OLD.replace("r02n[01-16]", "r02n[01-17]").replace("spare: []", "spare: [r02n17]")
REPLANNED = "A drained node"


def replanned(folder: Path) -> str:
    """Return the output of ``parc replan`` for the drained node, with its explanation."""
    (folder / "spare.yaml").write_text(SPARE, encoding="utf-8")
    words = ("replan", "spare.yaml", "--drain", "r01n07", "--dry-run")
    result = parc(*words)
    assert result.exit_code == 0, result.stderr
    return (
        "`parc compile` does not keep the earlier placement, so all ranks after those of the\n"
        "broken host move to the next host. If the spec has `spare: [r02n17]`, `parc replan`\n"
        "keeps the plan and moves only the ranks of the broken host:\n\n"
        f"```console\n$ parc {' '.join(words)}\n{result.stdout}```\n\n"
        "`parc compile --locked` keeps the hosts that `parc replan` chose. Without `--locked`,\n"
        "`parc compile` places all ranks again and reports how many of them move (PARC-O04,\n"
        "[placement](placement.md)).\n"
    )


def transcript(folder: Path) -> str:
    """Return the page, with the output of the commands run in ``folder``."""
    (folder / "old.yaml").write_text(OLD, encoding="utf-8")
    parts = [HEAD]
    for title, why, changes in CHANGES:
        text = OLD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "new.yaml").write_text(text, encoding="utf-8")
        result = parc("diff", "old.yaml", "new.yaml")
        assert result.exit_code == 0, result.stderr
        listed = "".join(f"- `{old}` becomes `{new}`\n" for old, new in changes)
        shown = f"```console\n$ parc diff old.yaml new.yaml\n{result.stdout}```\n"
        parts.append(f"## {title}\n\n{why}\n\n{listed}\n{shown}")
        if title == REPLANNED:
            parts.append(replanned(folder))
    return "\n".join(parts)


def test_the_page_shows_the_output_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    page = transcript(tmp_path)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    assert page == PAGE.read_text("utf-8")
