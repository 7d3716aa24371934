"""Check the English of names, docstrings, comments, messages and pages; run by ``make check``.

Each pattern is a word of an earlier private vocabulary. Its row gives the words to write instead.
Ordinary uses that a pattern would catch by accident are listed in ``ACCEPTED``, with a reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.project_files import PACKAGE_FOLDERS, ROOT, TEXT_FOLDERS, files, python_files

SUFFIXES = (".py", ".md", ".yaml", ".yml", ".toml", ".j2", ".sh", ".txt")
GENERATED = ("examples/", "docs/accuracy.md", "docs/published-layouts.md")
"""Paths that are not written by hand; the texts that they are made of are checked."""

WORDS: dict[str, str] = {
    r"un?told": "given, specified, unmapped",
    r"told": "given, specified; a type such as DerivedGroups",
    r"judg(?:e|es|ed|ing|ement|ements)": "check, evaluate, compare",
    r"mend(?:s|ed|ing)?": "fix, repair, suggest a fix",
    r"pose[sd]?": "build, state",
    r"nouns?": "IR type, plan object",
    r"rooms?": "package; capacity, free slots",
    r"floor plan": "project layout, list of packages",
    r"the house": "the project",
    r"spine of": "pipeline",
    r"the papers|test_papers": "documents, generated pages, published figures",
    r"odd rows?": "outliers",
    r"twins?": "identical runs, counterparts",
    r"kin": "related",
    r"handovers?": "stage buffers, transfers",
    r"second route": "independent verifier, re-derivation",
    r"nobody": "an active sentence that names who or what",
    r"anew": "again",
    r"(?:is|are|was|be) asked": "is evaluated, is read, is required",
    r"minds? it": "accepts, tolerates",
    r"(?:file|flag|row|plan|script|spec|table)s? (?:say|says|said)": "specify, set, state",
    r"turn_order": "try_other_rank_order",
    r"(?<!there )(?:is|are) no(?!_| (?:longer|more|less|later|earlier|larger|smaller|faster)\b)": (
        "is not a, are not"
    ),
    r"colours?|coloured|neighbours?|neighbouring|licence|behaviours?|favour": "American "
    "spelling: color, neighbor, license, behavior, favor",
    r"(?:de|un)?quantis\w+|optimis(?:e|ed|es|er|ers|ing|ation|ations)": "American spelling: "
    "quantize, optimize",
    r"(?:normal|minim|maxim|organ|initial|serial|synchron|util)is(?:e|ed|es|ing|ation)": "American "
    "spelling: normalize, minimize, maximize, organize",
    r"modelled|labelled|centred?|centring|grey|misspelt|spelt|learnt": "American spelling: "
    "modeled, labeled, center, gray, misspelled, learned",
}
"""Pattern -> replacement. Upper and lower case match; ``_`` separates words."""

OPENINGS = re.compile(
    r"(?:What|Whether|Where|Which|Who|How|When|One|All|Every|Each|The same|Of|As|By|From)\b"
)
"""Words that must not open a docstring: they start a relative clause or a fragment."""

PERCENT = re.compile(r"(?<!like )\b\d[\d.,]*%(?!\d)")
"""Percentage without a space. Messages name a value of the spec as in "a percentage, like 8%"."""
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
"""Blocks and spans of code in Markdown."""
SPEC_VALUES = "compiler/resolve/resolve_features.py"
"""File that prints percentages as values of the spec, which have no space: 8%."""

ACCEPTED: dict[str, str] = {
    "tests/check_language.py": "lists the patterns",
    "tests/test_language.py": "has examples of the patterns",
    "tests/diagnostics/L26/spec.yaml": "has a long host name that contains one",
    "tests/diagnostics/L26/expected.txt": "quotes that host name",
}
"""File -> reason why it may contain the patterns."""


def patterns() -> re.Pattern[str]:
    """Return one pattern for all words. Word boundaries count ``_`` and changes to upper case."""
    return re.compile(rf"(?<![a-zA-Z])({'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)


def checked_files() -> Iterator[Path]:
    """Yield the text files of the project that are written by hand."""
    top = sorted(path for path in ROOT.iterdir() if path.is_file())
    for path in (*top, *files(*TEXT_FOLDERS)):
        name = str(path.relative_to(ROOT))
        if path.suffix in SUFFIXES and not name.startswith(GENERATED) and name not in ACCEPTED:
            yield path


def word_findings(path: Path, text: str) -> Iterator[str]:
    """Yield a line per match of a pattern in ``text``."""
    pattern = patterns()
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            found = match[1]
            instead = next(
                words for one, words in WORDS.items() if re.fullmatch(one, found, re.IGNORECASE)
            )
            yield f"{path.relative_to(ROOT)}:{number}: '{found}': write {instead}"


def docstring_findings(path: Path, text: str) -> Iterator[str]:
    """Yield a line per docstring of a module, class or function that opens with a fragment."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if OPENINGS.match(docstring):
                line = getattr(node, "lineno", 1)
                name = getattr(node, "name", "module")
                opening = " ".join(docstring.split()[:4])
                yield f"{path.relative_to(ROOT)}:{line}: docstring of {name} opens with '{opening}'"


def second_docstring_findings(path: Path, text: str) -> Iterator[str]:
    """Yield a line per text that stands directly under the docstring of another field."""
    nodes = ast.walk(ast.parse(text))
    bodies = (node.body for node in nodes if isinstance(node, ast.ClassDef | ast.Module))
    for above, below in (pair for body in bodies for pair in pairwise(body)):
        if _is_text(above) and _is_text(below):
            yield f"{path.relative_to(ROOT)}:{below.lineno}: second docstring of a field"


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def percent_findings(path: Path, text: str) -> Iterator[str]:
    """Yield a line per percentage of a page without a space: 5.6 %. Code is left out."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    for number, line in enumerate(prose.splitlines(), 1):
        for match in PERCENT.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}: '{match[0]}': write '{match[0][:-1]} %'"


def percent_format_findings(path: Path, text: str) -> Iterator[str]:
    """Yield a line per f-string that formats a percentage without a space."""
    for node in ast.walk(ast.parse(text)):
        spec = node.format_spec if isinstance(node, ast.FormattedValue) else None
        last = spec.values[-1] if isinstance(spec, ast.JoinedStr) and spec.values else None
        if isinstance(last, ast.Constant) and str(last.value).endswith("%"):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: ':{last.value}': use format_percent"


def findings() -> list[str]:
    """Return all findings of the project, in the order of its files."""
    found = []
    for path in checked_files():
        found += word_findings(path, path.read_text("utf-8"))
    for path in (*ROOT.glob("*.md"), *files("docs", "backends")):
        if path.suffix == ".md":
            found += percent_findings(path, path.read_text("utf-8"))
    for path in python_files(*PACKAGE_FOLDERS, "tests", "benchmarks"):
        found += docstring_findings(path, path.read_text("utf-8"))
        found += second_docstring_findings(path, path.read_text("utf-8"))
    for path in python_files(*PACKAGE_FOLDERS, "benchmarks"):
        if path != ROOT / SPEC_VALUES:
            found += percent_format_findings(path, path.read_text("utf-8"))
    return found


if __name__ == "__main__":
    lines = findings()
    print("\n".join(lines))
    sys.exit(f"{len(lines)} texts to rewrite" if lines else 0)
