"""Recognize values that look like secrets, so that no comment, fragment or finding repeats them."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?:.*_)?(?:API_?KEYS?|ACCESS_KEY(?:_ID)?|SECRET(?:_KEY|_ACCESS_KEY)?|PASSWORD|PASSWD"
    r"|(?<!PAD_)(?<!EOS_)(?<!BOS_)(?<!UNK_)(?<!SEP_)(?<!CLS_)(?<!MASK_)(?<!IMAGE_)TOKEN)"
)
"""Matches the name of a flag or a variable with a secret, in capitals and with underscores."""
_MAY_BE_SECRET = re.compile(
    r"(?:^|[_-])(?:api_?key|key|keys|token|secret|password|passwd|pwd|credentials?)(?:[_-]|$)"
)
"""Matches names of ``is_secret_name``, in lower case."""
_NO_SECRET = re.compile(r"[$<{`*].*|[0-9.]*|true|false|none|null|empty|dummy", re.I | re.S)
"""Matches a reference to a variable, a gap of a template, a number, or a usual placeholder."""
_FLAG = re.compile(
    r"(?<![\w-])(?P<start>(?P<name>--?[A-Za-z][\w-]{0,63})(?:=|[ \t]+)[\"']?)(?P<value>[^\s\"']+)"
)
_VARIABLE = re.compile(
    r"(?<![\w-])(?P<start>(?P<name>[A-Za-z_]\w{0,63})(?:=|:[ \t]+)[\"']?)(?P<value>[^\s\"']+)"
)
"""Matches a variable with its value."""
_KNOWN_FORM = re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{30,})")
"""Matches a token of Hugging Face, of an API like that of OpenAI, or of GitHub."""
HIDDEN = "***"
"""Text in place of a secret."""


def is_secret_name(name: str) -> bool:
    """Return True if ``name`` may be that of a variable or flag with a token or key.

    The name is written in capital letters, or as a flag. More names count than with ``is_secret``:
    a value that is hidden without need does no harm.
    """
    plain = name.lstrip("-")
    return (name.isupper() or plain != name) and _MAY_BE_SECRET.search(plain.lower()) is not None


def is_secret(name: str, value: str) -> bool:
    """Return True if ``value`` of the flag or variable ``name`` looks like a secret."""
    if _KNOWN_FORM.search(value):
        return True
    named = _NAME.fullmatch(name.lstrip("-").replace("-", "_").upper())
    return named is not None and not _NO_SECRET.fullmatch(value)


def hide_secrets(text: str) -> str:
    """Return ``text`` with the values that look like secrets replaced by ``***``."""

    def hide(match: re.Match[str]) -> str:
        secret = is_secret(match["name"], match["value"])
        return match["start"] + HIDDEN if secret else match[0]

    # A flag can have an assignment as its value: -e HF_TOKEN=...
    return _KNOWN_FORM.sub(HIDDEN, _VARIABLE.sub(hide, _FLAG.sub(hide, text)))
