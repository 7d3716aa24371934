"""Comparison of the code of emitted Python programs with digests that a verifier contains.

The digest of a program's code has eight hexadecimal digits per statement, in the order of the text.
It covers all code, but neither comments, docstrings nor the format of the text. A changed statement
is therefore found at its line, and a reformatted program has the same digest. The digest of the
whole text is compared first, because no program must be parsed for that.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_program import report_program_change, shorten_for_finding

DIGITS = 8
"""Number of hexadecimal digits in the digest of a statement."""
SHOWN_CHARACTERS = 60


def parse_program(file: str, text: str) -> ast.Module:
    """Return the syntax tree of a program; raise MalformedFileError if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise MalformedFileError(file, line, f"the text is not a Python program: {error}") from None


@frozen
class ProgramDigest:
    """Digests of one program."""

    text: str
    """Digest of the text of the program; empty if this text varies because it contains settings."""
    code: str
    """Digests of the statements of the program, joined."""


@cache
def read_program_digests(package: str) -> dict[str, ProgramDigest]:
    """Return file -> digests of the program, from ``verify_programs.json`` in ``package``."""
    tree = json.loads((files(package) / "verify_programs.json").read_text("utf-8"))
    return {file: ProgramDigest(**one) for file, one in tree.items()}


def code_digest(module: ast.Module, text: str = "") -> ProgramDigest:
    """Return the digests of the statements in ``module``, and the digest of ``text``.

    Leave ``text`` empty if the program contains settings of a plan. Its text then varies, so no
    digest of the text is computed.
    """
    code = "".join(digest for _, digest in statement_digests(module))
    return ProgramDigest(_digest(text) if text else "", code)


def verify_programs(
    artifacts: Mapping[str, str], digests: Mapping[str, ProgramDigest], sink: Sink
) -> None:
    """Report each program in ``artifacts`` whose code differs from its digest (A18)."""
    for file, known in digests.items():
        if file in artifacts and _digest(artifacts[file]) != known.text:
            verify_code(file, parse_program(file, artifacts[file]), known.code, sink)


def verify_code(file: str, module: ast.Module, digest: str, sink: Sink) -> None:
    """Report the first statement of ``module`` that does not match ``digest`` (A18).

    ``digest`` contains the joined digests of all statements.
    """
    expected = [digest[at : at + DIGITS] for at in range(0, len(digest), DIGITS)]
    line = 1
    for known, found in zip_longest(expected, statement_digests(module)):
        line = line_of_statement(found[0]) if found else line
        if found is None or known != found[1]:
            message = "the program ends before the code that PARC emits"
            if found is not None:
                text = shorten_for_finding(first_source_line(found[0]))
                message = f"line {line} is not in the emitted program: {text}"
            report_program_change(file, line, message, sink)
            return


def line_of_statement(node: ast.AST) -> int:
    """Return the line of a statement, or of a ``case`` in a match statement."""
    place = node.pattern if isinstance(node, ast.match_case) else node
    line: int = getattr(place, "lineno", 1)
    return line


def statement_digests(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield (statement, digest) for each statement of ``module`` except docstrings.

    The digest of a statement does not cover nested statements, because each of these has its own
    digest.
    """
    # A stack instead of recursion, because a damaged file can be nested deeply.
    stack: list[tuple[str, ast.AST]] = [("", one) for one in reversed(_block_statements(module))]
    while stack:
        place, node = stack.pop()
        nested = [name for name, value in ast.iter_fields(node) if _is_compound_statement(value)]
        yield node, _digest(place + normalized_code(node, nested))
        for name in reversed(nested):
            stack += [(f"{place}{name}/", one) for one in reversed(_block_statements(node, name))]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def first_source_line(node: ast.AST) -> str:
    """Return the first line of the source of ``node``, shortened for a finding."""
    try:
        text = ast.unparse(node).split("\n", 1)[0]
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _is_compound_statement(value: Any) -> bool:
    # Handlers of try and cases of match are not statements, but contain some.
    kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return isinstance(value, list) and bool(value) and isinstance(value[0], kinds)


def _block_statements(node: ast.AST, name: str = "body") -> list[Any]:
    """Return the statements in the block ``name`` of ``node``.

    Plain strings, such as docstrings, are omitted because they have no effect.
    """
    return [one for one in getattr(node, name) if not _is_string(one)]


def _is_string(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def normalized_code(value: Any, skipped: Collection[str] = ()) -> str:
    """Return a syntax tree as text. Two trees have the same text only if their code is equal.

    Empty fields and the fields named in ``skipped`` are omitted. ``ast.dump`` cannot be used
    instead, because its output depends on the Python version.
    """
    if isinstance(value, ast.AST):
        fields = (
            f"{name}={normalized_code(part)}"
            for name, part in ast.iter_fields(value)
            if name not in skipped and name not in _NO_EFFECT and part is not None and part != []
        )
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, list):
        return f"[{','.join(map(normalized_code, value))}]"
    return repr(value)


_NO_EFFECT = ("type_comment", "kind", "ctx")
"""Names of syntax tree fields without effect: comments, the prefix u of a string, and fields that
follow from the position."""
