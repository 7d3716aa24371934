"""Split the text of a shell script into pieces: parts of words, blanks and separators."""

from __future__ import annotations

import re

# ``*+`` is possessive: without it, an unbalanced bracket or quote could cause exponential
# backtracking. The nesting is bounded, so that each part of a text is read a few times at most.
_QUOTED = r"""'[^'\n]*'|"(?:[^"\\\n]|\\.)*+\""""
_TEXT = r"[^()'\"\\<]|<(?!<)|\\[\s\S]"
_BRACKETS = rf"\((?:{_TEXT}|{_QUOTED}|['\"])*+\)"
for _ in range(2):
    _BRACKETS = rf"\((?:{_TEXT}|{_QUOTED}|['\"]|{_BRACKETS})*+\)"
_BRACES = r"\{(?:[^{}\n]|\{[^{}\n]*+\})*+\}"

SUBSTITUTION = re.compile(rf"\${_BRACKETS}|`(?:[^`\\\n]|\\[\s\S])*+`")
"""Matches ``$(command)``, ``$((arithmetic))`` and a command in backticks, but none with a
here-document, whose text may be a script of its own."""
PIECE = re.compile(
    rf"""(?P<blank>[ \t]+|\\\r?\n)
    |(?P<end>\r?\n|;|&&?|\|\|?)
    |(?P<open>=?\()|(?P<close>\))
    |(?P<single>'[^']*')
    |(?P<double>"(?:[^"\\`$]|\\[\s\S]|`[^`\n]*`|\${_BRACKETS}|[`$])*+")
    |(?P<placeholder><[A-Za-z][^<>\n;&|()'"]{{0,200}}(?<!\s)>)
    |(?P<plain>(?:\${_BRACKETS}|`(?:[^`\\\n]|\\[\s\S])*+`|\${_BRACES}
        |[^\s'"\\;&|()<]|<(?![A-Za-z])|\\[^\r\n])+)
    |(?P<other>[\s\S])""",
    re.VERBOSE,
)
"""Matches the next piece of a shell script: a part of a word, a blank or a separator.

A command substitution is a part of its word. So is a placeholder such as ``<path of the data>``,
although bash would read it as two redirections.
"""


def remove_quotes(kind: str, text: str) -> str:
    """Return the text of a piece without its quotes and backslashes; ``kind`` is its group."""
    if kind in ("single", "double"):
        return text[1:-1]
    if SUBSTITUTION.search(text):  # backslashes inside are those of the inner command
        return text
    return "" if text == '"' else re.sub(r"\\(.)", r"\1", text)
