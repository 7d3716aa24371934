"""docs/diff-examples.md: what ``parc diff`` prints for five realistic changes, kept current."""

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
# What `parc diff` says

Five changes to one spec, and what a reviewer is shown for each. `parc diff --format markdown`
prints the same as tables for a pull request, `--format json` for programs; with `--exit-code` a
CI job fails on a change. Either side may be a spec or a directory that `parc compile` wrote. This
page is checked by the tests and rewritten by `make golden`.

The old spec:

```yaml
{OLD}```
"""

CHANGES: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Half the tensor parallelism",
        "No rank leaves its GPU, but nearly all of them compute something else.",
        (("tp: 8", "tp: 4"),),
    ),
    (
        "A drained node",
        "r01n07 is broken and a spare host of the other rack takes its place.",
        (("r02n[01-16]", "r02n[01-17]"), ("spare: []", "unavailable: [r01n07]")),
    ),
    (
        "A renamed rack",
        "Only a name changes: no rank moves, and no group crosses anything new.",
        (("name: r02", "name: row-b-02"),),
    ),
    (
        "Another GPU type",
        "The same layout on H200: more memory to spare, hardly faster.",
        (("dgx-h100", "dgx-h200"),),
    ),
    (
        "A longer sequence",
        "Four times the sequence over four context-parallel ranks, a quarter of the batch.",
        (("8192", "32768"), ("1024", "256"), ("cp: 1", "cp: 4")),
    ),
)


SPARE = OLD.replace("r02n[01-16]", "r02n[01-17]").replace("spare: []", "spare: [r02n17]")
REPLANNED = "A drained node"


def replanned(folder: Path) -> str:
    """What ``parc replan`` makes of the drained node."""
    (folder / "spare.yaml").write_text(SPARE, encoding="utf-8")
    words = ("replan", "spare.yaml", "--drain", "r01n07", "--dry-run")
    result = parc(*words)
    assert result.exit_code == 0, result.stderr
    return (
        "A compile has no memory: every host after the broken one moves up. `parc replan` keeps the"
        "\nplan, with `spare: [r02n17]` in the spec, and moves the ranks of that host alone:\n\n"
        f"```console\n$ parc {' '.join(words)}\n{result.stdout}```\n\n"
        "`parc compile --locked` goes on with the hosts that a replan wrote; without `--locked` a\n"
        "compile says how many ranks it moves (PARC-O04, [placement](placement.md)).\n"
    )


def transcript(folder: Path) -> str:
    """The page, made by running the command in ``folder``."""
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


def test_the_page_of_diffs_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    page = transcript(tmp_path)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    assert page == PAGE.read_text("utf-8")
