"""Find the shell commands of a text that explains them, such as a README or a recipe in YAML."""

from __future__ import annotations

import re

_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w-]*)[^`]*")
"""Matches the first or the last line of a block of code in Markdown."""
_SCRIPT = re.compile(r"\A#!|^#SBATCH", re.M)
"""Matches a script, which may write a file with such blocks."""
_SHELLS = ("bash", "sh", "shell", "zsh")
_SESSIONS = ("console", "shell-session", "terminal")
"""Languages of blocks that show commands after a prompt, with their output."""
_PROMPT = re.compile(r"([ \t]*)[$#%>] (.*)")


def keep_shell_blocks(text: str) -> str:
    """Return ``text`` with only its blocks of shell commands; all other lines are empty.

    Each word keeps its line and its column. A text without such blocks is returned unchanged.
    """
    if ("```" not in text and "~~~" not in text) or _SCRIPT.search(text):
        return text
    kept: list[str] = []
    mark = language = ""
    found = continued = False
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line.rstrip("\r"))
        shown = ""
        if fence is not None and not mark:
            mark, language, continued = fence["mark"], fence["language"].lower(), False
            found = found or language in (*_SHELLS, *_SESSIONS)
        elif fence is not None and fence["mark"].startswith(mark) and not fence["language"]:
            mark = ""
        elif mark and language in _SHELLS:
            shown = line
        elif mark and language in _SESSIONS:
            command = _PROMPT.fullmatch(line)
            shown = line if continued else f"{command[1]}  {command[2]}" if command else ""
            continued = shown.rstrip().endswith("\\")
        kept.append(shown)
    return "\n".join(kept) if found else text
