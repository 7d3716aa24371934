"""Reader of arguments in ``serve.sh`` that all processes share: flags of the plan, and others."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from parc.backends.shared.serving.verify_serve_script import ScriptWord
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen


def parse_number(text: str | None) -> Any:
    """Return the number that ``text`` contains, or ``text`` itself if it is not a number."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", text) else text


@frozen
class FlagValue:
    """Value of a flag as text, and its line; the text is None if the flag is absent."""

    file: str
    """The script."""
    name: str
    text: str | None = None
    line: int = 1

    @property
    def number(self) -> Any:
        """Value as a number; the text itself if it is not a number; None if the flag is absent."""
        return parse_number(self.text)

    def derive(self, path: str, value: Any) -> DerivedSetting:
        """Return the setting ``path`` of the plan with ``value``, at the line of the flag."""
        setting = "" if self.text is None else f"--{self.name} {self.text}".rstrip()
        return DerivedSetting(path, value, self.file, self.line, setting)


@frozen
class SharedFlags:
    """Arguments that all processes share: flags of the plan, and all other words."""

    file: str
    """The script."""
    flags: dict[str, FlagValue]
    extra: tuple[ScriptWord, ...]

    def __getitem__(self, name: str) -> FlagValue:
        """Return the value of the flag ``--<name>``."""
        return self.flags.get(name, FlagValue(self.file, name))

    def size(self, name: str) -> int:
        """Return the parallel size of a flag; 1 if it is absent or not a valid size."""
        value = self[name].number
        return value if isinstance(value, int) and value > 0 else 1


def read_shared_flags(
    file: str, words: Sequence[ScriptWord], values: Collection[str], switches: Collection[str]
) -> SharedFlags:
    """Return the arguments, separated into flags of the plan and other words.

    The last value of a repeated flag counts, as in argparse and click.

    Args:
        file: the script, for messages.
        words: arguments that all processes share.
        values: names, without dashes, of the flags of the plan that have a value.
        switches: names of the flags of the plan without a value.
    """
    flags: dict[str, FlagValue] = {}
    extra: list[ScriptWord] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.text.removeprefix("--").partition("=")
        known = word.text.startswith("--") and (name in switches or name in values)
        if not known or (name in switches and equals):
            extra.append(word)
            continue
        if name in values and not equals:
            if at == len(words) or words[at].text.startswith("--"):
                extra.append(word)
                continue
            value = words[at].text
            at += 1
        flags[name] = FlagValue(file, name, value, word.line)
    return SharedFlags(file, flags, tuple(extra))
