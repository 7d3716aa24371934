"""Compare the specs of a pull request with its base, and keep one comment about the differences.

The text also becomes the summary of the job. Variables: ``BASE`` (commit), ``SPECS`` (pathspecs,
one per line), ``PULL_REQUEST`` (number; empty for no comment), ``TOKEN``, and those of GitHub.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "<!-- parc-diff -->"
"""First line of the comment, by which the next run finds it."""
MAX_COMMENT = 60_000
"""Limit of the text in characters; GitHub accepts 65,536 in a comment."""
CHANGED = 3
"""Exit code of ``parc diff --exit-code`` for differences."""
PAGE = 100
"""Comments per request, the most that GitHub returns."""


@dataclass(frozen=True)
class Section:
    """Text about one spec: the lines that are always visible, and the folded tables."""

    summary: str
    details: str = ""


def git(*words: str) -> str:
    """Return the output of a git command in the current folder."""
    return subprocess.run(("git", *words), check=True, stdout=subprocess.PIPE, text=True).stdout


def specs_in(checkout: Path, patterns: Sequence[str]) -> set[str]:
    """Return the paths of the specs in a checkout."""
    return set(
        filter(None, git("-C", str(checkout), "ls-files", "-z", "--", *patterns).split("\0"))
    )


@contextmanager
def both_sides(base: str) -> Iterator[Path]:
    """Yield a folder with the checkouts ``base`` and ``head``, removed at the end.

    The short names of the folders appear in the text.
    """
    with tempfile.TemporaryDirectory(prefix="parc-") as folder:
        git("worktree", "add", "--quiet", "--detach", f"{folder}/base", base)
        Path(folder, "head").symlink_to(Path.cwd(), target_is_directory=True)
        try:
            yield Path(folder)
        finally:
            git("worktree", "remove", "--force", f"{folder}/base")


def sections(base: str, patterns: Sequence[str]) -> Iterator[Section]:
    """Yield a section per spec that was added, removed or has another plan than in ``base``.

    All specs are compared, because the plan of an unchanged spec can depend on a changed file.
    """
    with both_sides(base) as folder:
        old, new = (specs_in(folder / side, patterns) for side in ("base", "head"))
        for spec in sorted(old | new):
            if spec in old and spec in new:
                yield from compare(spec, folder)
            else:
                yield Section(f"### {code(spec)} was {'added' if spec in new else 'removed'}")


def compare(spec: str, folder: Path) -> Iterator[Section]:
    """Yield the section of a spec that exists on both sides, if its plan changed."""
    parc = [sys.executable, "-P", "-m", "parc", "diff", "--exit-code", "--format", "markdown", "--"]
    ran = subprocess.run(
        [*parc, f"base/{spec}", f"head/{spec}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if ran.returncode == CHANGED:
        headline, separator, tables = ran.stdout.partition("\n#### ")
        title, _, text = headline.partition("\n\n")
        yield Section(f"### {code(spec)}\n\n{text.strip() or title}", separator + tables)
    elif ran.returncode:
        yield Section(f"### {code(spec)}\n\nNot compared: the old or the new spec has errors.")


def code(text: str) -> str:
    """Return ``text`` as code in Markdown; a path may contain backticks and line breaks."""
    return "`" + text.replace("`", "'").replace("\n", " ") + "`"


def body(found: Sequence[Section], limit: int) -> str:
    """Return the text of the comment, in at most ``limit`` characters.

    Tables are left out, from the last spec on, if the text would be longer.
    """
    parts = [MARKER, "## PARC: changes of plans and rank maps"]
    if not found:
        parts.append("The plans of all specs are as in the base.")
    note = "Tables that do not fit into a comment are in the summary of the job."
    left = limit - sum(len(one.summary) + 2 for one in found) - len(note) - 100
    shortened = False
    for one in found:
        parts.append(one.summary)
        folded = f"<details><summary>Tables</summary>\n{one.details}\n</details>"
        if one.details and len(folded) + 2 <= left:
            parts.append(folded)
            left -= len(folded) + 2
        elif one.details:
            shortened, left = True, 0
    if shortened:
        parts.append(note)
    return "\n\n".join(parts)[:limit] + "\n"


def request(method: str, path: str, data: dict[str, Any] | None = None) -> Any:
    """Return the answer of the API of GitHub to a request below the repository."""
    url = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}"
    headers = {
        "Authorization": f"Bearer {os.environ['TOKEN']}",
        "Accept": "application/vnd.github+json",
        "Content-Type": "application/json",
    }
    content = None if data is None else json.dumps(data).encode()
    sent = urllib.request.Request(url, content, headers, method=method)
    with urllib.request.urlopen(sent, timeout=30) as answer:
        return json.load(answer)


def own_comment(number: str) -> int | None:
    """Return the id of the comment that an earlier run wrote; None if there is none."""
    page = 1
    while True:
        path = f"issues/{number}/comments?per_page={PAGE}&page={page}"
        comments = request("GET", path)
        for one in comments:
            # A person can copy the marker into a comment, which must not be overwritten.
            if one["user"]["type"] == "Bot" and one["body"].startswith(MARKER):
                return int(one["id"])
        if len(comments) < PAGE:
            return None
        page += 1


def update_comment(number: str, text: str, changed: bool) -> None:
    """Write the comment, or replace it; without changes and comment, write none."""
    comment = own_comment(number)
    if comment is not None:
        request("PATCH", f"issues/comments/{comment}", {"body": text})
    elif changed:
        request("POST", f"issues/{number}/comments", {"body": text})


def main() -> None:
    """Compare the specs, and write the summary of the job and the comment."""
    patterns = [line.strip() for line in os.environ["SPECS"].splitlines() if line.strip()]
    found = list(sections(os.environ["BASE"], patterns))
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
        file.write(body(found, 1_000_000))
    number = os.environ.get("PULL_REQUEST")
    if not number:
        return
    try:
        update_comment(number, body(found, MAX_COMMENT), bool(found))
    except (urllib.error.URLError, TimeoutError) as error:
        # The token of a pull request from a fork may only read.
        print(f"::warning title=PARC::cannot write the comment: {error}")


if __name__ == "__main__":
    main()
