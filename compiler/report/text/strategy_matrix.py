"""Strategy x target: what each framework can express, from the frameworks themselves.

``python -m parc.compiler.report.text.strategy_matrix README.md`` rewrites the block of that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from parc.backends.registry import ENGINES, FRAMEWORKS, FRONTS, behind_front, engine, framework
from parc.backends.shared.strategies import STRATEGIES
from parc.compiler.report.table import table

BEGIN = "<!-- strategies: made by make docs -->"
END = "<!-- end of strategies -->"


def said() -> dict[str, dict[str, str]]:
    """Framework, pair or engine -> strategy -> how it is said; what it lacks is not there."""
    pairs = [behind_front(*pair) for pair in FRONTS]
    targets = [*map(framework, FRAMEWORKS), *pairs]
    found = {target.name: dict(target.strategies) for target in targets}
    return found | {name: dict(engine(name).strategies) for name in ENGINES}


def matrix_text() -> str:
    """For a terminal: a row a strategy, ``yes`` where a framework has it."""
    columns = said()
    rows = [
        (one.title, *("yes" if one.name in columns[name] else "-" for name in columns))
        for one in STRATEGIES
    ]
    return table(("strategy", *columns), rows, left=1 + len(columns))


def matrix_markdown() -> str:
    """For the README: a row a strategy, how each framework is told of it."""
    columns = said()
    head = ["strategy", *columns]
    rows = [
        [one.title, *(_cell(columns[name].get(one.name)) for name in columns)] for one in STRATEGIES
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(how: str | None) -> str:
    """Flags and keys as code, words as they are; empty: it has none."""
    if how is None:
        return ""
    return how if " " in how and not how.startswith("-") else f"`{how}`"


def with_matrix(text: str) -> str:
    """``text`` with its block made anew; ValueError where it has none."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"there is no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{matrix_markdown()}{END}{after}"


def main() -> None:
    """Rewrite the file that the command line names."""
    path = Path(sys.argv[1])
    path.write_text(with_matrix(path.read_text("utf-8")), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
