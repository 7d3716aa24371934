"""Values of the variables of a script at one point of the script, and the expansion of words.

Branches that are not decided have a layer of assignments each. At the end of the branches, a
variable keeps its value only if all of them agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.shell.arithmetic import evaluate_arithmetic
from parc.compiler.tools.shell.conditions import Operand
from parc.compiler.tools.shell.pieces import SUBSTITUTION

LONGEST_VALUE = 4096
"""Maximum length of a value, in characters; a longer one is unknown."""
DEEPEST = 4
"""Maximum number of defaults inside each other: ``${A:-${B:-1}}``."""
_MOST_PLACES = 12
"""Maximum number of assignments that are recorded for one value."""
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_VARIABLE = re.compile(rf"\$(?:\{{({_NAME}|[0-9])(?:(:?[-=+?])([^{{}}$]{{0,200}}))?\}}|({_NAME}))")
_ARITHMETIC = re.compile(r"\$\(\(((?:[^()\n]|\((?:[^()\n]|\([^()\n]*+\))*+\))*+)\)\)")
_PATH_OF = re.compile(r"\$\(\s*(?:which|command\s+-v|type\s+-p)\s+([\w./-]+)\s*\)")
"""Matches the search for a program; the group is its name."""
_ARGUMENT = re.compile(r"\"?\$\{?(?:[0-9@*]|OPTARG)\}?\"?")
UNKNOWN_VALUE = re.compile(r"\$(?:$|[0-9@*#?(]|\{[0-9@*#?])|`")
"""Matches a value that only the shell has, such as ``$(command)`` or an argument ``$1``."""
_BLANK = re.compile(r"(<[A-Za-z][^<>]*>)|\s+")
"""Matches blanks, or a placeholder such as ``<path of the data>``, which stays one word."""
_ASSIGNED = re.compile(rf"(?<![\w-])({_NAME})\+?=")
# Characters that a script does not contain stand for those of variables that stay as written, so
# that a later step does not expand them.
_HIDE = str.maketrans("${}", "\0\2\3")
_SHOW = str.maketrans("\0\2\3", "${}")
SPLIT = "\1"
"""Character between two words of one unquoted value."""


@frozen
class Value:
    """Value of a variable."""

    text: str | None
    """None if the value is unknown."""
    shown: str | None
    """Text for the words of the script, without the values of variables that stay as written."""
    is_sure: bool
    """False if the environment, an argument or an undecided branch may change the value."""
    is_listed: bool = False
    """True if the words of the value are listed at the assignment: ``ARGS="--tp 2"``."""
    places: tuple[Span, ...] = ()
    """Positions of the assignments that may have set the value."""
    is_argument: bool = False
    """True for an argument of the script, such as ``$1`` or ``$OPTARG``, which users may pass."""


UNKNOWN = Value(None, None, False)


@frozen
class Expansion:
    """Text with its variables expanded."""

    text: str
    shown: str
    is_sure: bool

    @property
    def operand(self) -> Operand:
        """The text as the operand of a condition."""
        plain = self.is_sure and not re.search("[$`\0]", self.text)
        return Operand(self.text.replace(SPLIT, " "), plain)


class ShellValues:
    """Variables of a script, in the order of its assignments."""

    def __init__(self, text: str, kept: Collection[str], given: dict[str, str]) -> None:
        """Prepare the variables of the script ``text``.

        Args:
            text: script.
            kept: names of the variables that stay as written in the words of the script.
            given: name -> value of variables that Slurm sets.
        """
        self._kept = frozenset(kept)
        first = {name: Value(one, one, False) for name, one in given.items()}
        self._layers: list[dict[str, Value]] = [first]
        self._bodies: list[set[str]] = []
        self._assignments = Counter(_ASSIGNED.findall(text))
        self.place = Span("", 1, 1)
        """Position of the word that is expanded."""
        self.defaults: list[tuple[str, str, Span]] = []
        """(name, value, position) of variables that ``${NAME:=value}`` has just set."""
        self.is_message = False
        """True in a command such as ``echo``, which does not count as a use of a variable."""
        self.is_certain = True
        """True if every run of the script executes the current command."""
        self.uses: dict[str, bool] = {}
        """Variable that the script uses -> True if every run uses it."""
        self.used: set[Span] = set()
        """Positions of the assignments whose values the script uses."""
        self.ambiguous: dict[str, tuple[Span, ...]] = {}
        """Variable with several possible values -> positions of their assignments."""

    def find(self, name: str) -> Value | None:
        """Return the value of a variable; None if the script has not assigned it so far."""
        for layer in reversed(self._layers):
            if name in layer:
                return layer[name]
        return None

    def assign(self, name: str, value: Value, is_certain: bool = True) -> None:
        """Assign a variable. If ``is_certain`` is False, only some runs assign it."""
        for body in self._bodies:
            body.add(name)
        if not is_certain:
            value = self._merged(name, [value, self.find(name)])
        self._layers[-1][name] = value

    def enter_branch(self) -> None:
        """Start the assignments of a branch that only some runs execute."""
        self._layers.append({})

    def leave_branch(self) -> dict[str, Value]:
        """End a branch; return its assignments."""
        return self._layers.pop()

    def join_branches(self, branches: Sequence[dict[str, Value]], is_complete: bool) -> None:
        """Merge the assignments of branches of which each run executes one.

        If ``is_complete`` is False, some runs execute none of them.
        """
        for name in dict.fromkeys(name for branch in branches for name in branch):
            found = [branch.get(name) or self.find(name) for branch in branches]
            if not is_complete:
                found.append(self.find(name))
            self._layers[-1][name] = self._merged(name, found)

    def enter_body(self) -> None:
        """Start the body of a function or loop, which may run after later assignments."""
        self._bodies.append(set())

    def leave_body(self) -> None:
        """End the body of a function or loop."""
        self._bodies.pop()

    def _merged(self, name: str, found: Iterable[Value | None]) -> Value:
        """Return the value of a variable after branches that leave it at the values ``found``.

        None stands for a variable that only the environment may set.
        """
        found = list(found)
        given = list(dict.fromkeys(one for one in found if one is not None))
        # An argument overrides a default, as the environment does in ${NAME:-default}.
        values = [one for one in given if not one.is_argument] or given
        places = tuple(dict.fromkeys(place for one in values for place in one.places))[
            :_MOST_PLACES
        ]
        if any(one.is_listed for one in values):
            return Value("", "", False, True, places)
        if len({one.text for one in values}) == 1 and values[0].text is not None:
            # Without a value before the branches, the environment may set one.
            is_sure = values == given and None not in found and all(one.is_sure for one in values)
            return Value(values[0].text, values[0].shown, is_sure, False, places)
        self.ambiguous[name] = places
        return Value(None, None, False, False, places)

    def expand(self, text: str, splits: bool = False) -> Expansion:
        """Return ``text`` with its variables expanded.

        If ``splits`` is True, the text is not quoted, so that a value with blanks becomes several
        words, with SPLIT between them.
        """
        if "$" not in text or len(text) > LONGEST_VALUE:
            return Expansion(text, text, "`" not in text)
        expanded = _Expanding(self, frozenset(), splits)
        full = expanded.expand(text)
        shown = full
        if self._kept:
            shown = _Expanding(self, self._kept, splits).expand(text)
        return Expansion(full, shown, expanded.is_sure)

    def finished(self, text: str) -> str:
        """Return the text of a word at the end of the script.

        In the bodies of functions, this expands variables that are assigned several times.
        """
        if "$" in text and len(text) <= LONGEST_VALUE:
            text = _Expanding(self, self._kept, False).expand(text)
        return text.translate(_SHOW)

    def is_assigned_later(self, name: str) -> bool:
        """Return True in a body that may run after further assignments of ``name``."""
        if not self._bodies or any(name in body for body in self._bodies):
            return False
        return self._assignments[name] > (self.find(name) is not None)

    def integer(self, name: str) -> tuple[int | None, bool]:
        """Return (integer value of a variable or None, True if every run has this value)."""
        value = self.find(name)
        if value is None or value.text is None or self.is_assigned_later(name):
            return None, False
        self.used.update(value.places)
        number = re.fullmatch(r"-?[0-9]{1,18}", value.text)
        return (int(number[0]) if number else None), value.is_sure


def assigned_value(name: str, one: Expansion, raw: str, place: Span, is_listed: bool) -> Value:
    """Return the value that an assignment gives to its variable.

    Args:
        name: name of the variable.
        one: text after ``=``, without quotes.
        raw: the same text as written.
        place: position of the assignment.
        is_listed: True if the words of the value are listed at the assignment.
    """
    if is_listed:
        return Value("", "", False, True, (place,))
    if len(one.text) > LONGEST_VALUE or len(one.shown) > LONGEST_VALUE:
        return Value(None, None, False, False, (place,))
    if _ARGUMENT.fullmatch(raw):
        return Value(None, None, False, False, (place,), True)
    text = one.text.translate(_SHOW)
    # In PATH=/opt:$PATH, the value before the assignment is unknown.
    if UNKNOWN_VALUE.search(text) or re.search(rf"\$\{{?{name}\b", text):
        return Value(None, None, False, False, (place,))
    return Value(one.text, one.shown, one.is_sure, False, (place,))


class _Expanding:
    """Expansion of one word."""

    def __init__(self, values: ShellValues, kept: frozenset[str], splits: bool) -> None:
        self._values = values
        self._kept = kept
        self._splits = splits
        self._length = 0
        self.is_sure = True

    def expand(self, text: str) -> str:
        """Return ``text`` with its arithmetic and its variables expanded."""
        text = _PATH_OF.sub(r"\1", text)
        if "$((" in text:
            text = _ARITHMETIC.sub(self._calculated, text)
        if "$(" in text or "`" in text:
            self.is_sure = False
            text = SUBSTITUTION.sub(lambda match: self._hidden(match[0]), text)
        for _ in range(DEEPEST):
            expanded = _VARIABLE.sub(self._replaced, text)
            if expanded == text:
                break
            text = expanded
        self.is_sure &= "$" not in text and "\0" not in text
        return text

    def _hidden(self, text: str) -> str:
        return text.translate(_HIDE)

    def _calculated(self, match: re.Match[str]) -> str:
        is_late = False

        def value(name: str) -> int | None:
            nonlocal is_late
            is_late |= self._values.is_assigned_later(name)
            found, is_sure = self._values.integer(name)
            self.is_sure &= is_sure
            return None if name in self._kept else found

        result = evaluate_arithmetic(match[1], value)
        if result is not None:
            return str(result)
        self.is_sure = False
        return match[0] if is_late else self._hidden(match[0])

    def _replaced(self, match: re.Match[str]) -> str:
        name, sign, default = match[1] or match[4], match[2] or "", match[3]
        if name in self._kept:
            return self._hidden(match[0])
        if self._values.is_assigned_later(name) and not (default and sign[-1:] in "-="):
            self.is_sure = False
            return match[0]
        value = self._values.find(name)
        if sign.endswith("+"):
            known = value is not None and value.text and value.is_sure
            return re.sub("[\"']", "", default) if known else self._hidden(match[0])
        if value is not None and value.text == "" and sign.startswith(":") and default:
            value = None if not value.is_listed else value
        if value is None and default is not None and not sign.endswith("?"):
            self.is_sure = False
            default = re.sub("[\"']", "", default)
            if sign.endswith("=") and not self._values.is_assigned_later(name):
                place = self._values.place
                self._values.assign(name, Value(default, default, False, False, (place,)))
                self._values.defaults.append((name, default, place))
            return default
        return self._hidden(match[0]) if value is None else self._text_of(name, value, match[0])

    def _text_of(self, name: str, value: Value, written: str) -> str:
        if not self._values.is_message:
            self._values.used.update(value.places)
            self._values.uses[name] = self._values.uses.get(name, False) or self._values.is_certain
        self.is_sure &= value.is_sure
        text = value.shown if self._kept else value.text
        self._length += len(text or "")
        if text is None or self._length > LONGEST_VALUE:
            self.is_sure = False
            return self._hidden(written)
        text = text.translate(_HIDE)
        return _BLANK.sub(lambda match: match[1] or SPLIT, text) if self._splits else text
