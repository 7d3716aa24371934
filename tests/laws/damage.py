"""Random damage to specs, launch scripts and files of other tools, in many kinds.

Every function returns the changed text for a text and a ``random.Random``, so that a seed repeats
an input. ``damaged`` applies one to four of them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parc.compiler.spec.schema import all_fields
from tests.topology.mutations import CHANGES

Damage = Callable[[str, random.Random], str]

NUMBERS = (
    *("0", "-1", "-0.0", "1", "2", "3", "7", "8", "64", "1000003", "4096", "0.5", "1e-300"),
    *("1e308", "1e999", "-1e999", ".nan", ".inf", "-.inf", "NaN", "2147483648", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "1" + "0" * 40, "9" * 5000, "0x10", "1_000"),
)
TEXTS = (
    *("''", "true", "null", "~", '"8"', "auto", "8%", "101%", "-5%", "300ms", "16M", "16Mi"),
    *("80 GB", "80GiB", "400Gb/s", "2026-01-01", "12:34:56", "999-23:59:59", "$(touch x)"),
    *("'a b'", "é", "\u202e", "\U0001f600", "\ud7ff", "*x", "&x 1", "!!int 3", "|", ">-", "? x"),
    *("!!python/object:os.system x", "!!binary aGk=", "../../etc/passwd", "/dev/zero", "."),
    *("r[01-99999999]", "n[5-1]", "n[1-", "n[1-4,7]", "n[[1-2]]", "n[1-2][1-3000]", "a" * 2000),
    *("llama-3-8b", "dgx-a100", "Et*3|(tt|)*29,m|L", "serve", "fp8", "nvfp4", "spec.yaml"),
)
VALUES = (
    *("[]", "{}", "[1, 2]", "[[]]", "{a: 1}", "{base: x}", "[null]", "[true, 1.5, a, []]"),
    *("{<<: {a: 1}}", "{only: [1, 2]}", "{min: 5, max: 1}", "{tokens: 4Mi}", '{"": ""}'),
)
"""Values of YAML, also for keys that need a value of another type."""
ODD_CHARACTERS = (
    *(chr(code) for code in (*range(32), 0x7F, 0x80, 0x85, 0x9F, 0xA0, 0xAD)),
    *"\u0301\u200b\u200d\u2028\u2029\u202e\u2066\ufeff\ufffd\ufffe\uffff\U0001f600\U000e0001",
)
SHELL = (
    *("'", '"', "`", "\\", "$(", "$((", "${", "${x:-$y}", "${x:?}", "${#x[@]}", "${x[@]:1:2}"),
    *("$((1 << 99))", "$((2**9999999))", "$(( x", "<<EOF", "<<-'E'\nE\n", "<<<", "<(", "|&", "&&"),
    *(";;", "case x in a) ;; esac", "if", "fi", "for i in {1..9999999}; do", "done", "f() {", "}"),
    *("A=(", "A+=(--tensor-model-parallel-size 3)", "export", "declare -A M=([a]=b)", "unset A"),
    *("set -- $A", "shift", 'eval "$X"', ". ./x.sh", "exec", "# \\", "\\\n", "!", "$'\\x41'"),
    *('"${A[@]}" "${A[@]}"', "${A[@]/x/y}", "${!A}", "X=$X$X", "#SBATCH --nodes=", "#SBATCH"),
    *("--", "-", "--=", "--nnodes 1:4", "-N 2-4", "--nproc_per_node=gpu", "srun", "torchrun"),
)
"""Shell syntax, whole and in pieces."""
LENGTHS = (5000, 100_000, 1_000_000)
"""Numbers of characters; long inputs are rare, so that many kinds fit into a minute."""


def _pick(text: str, dice: random.Random) -> tuple[list[str], int]:
    lines = text.split("\n")
    return lines, dice.randrange(len(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_end(lines: Sequence[str], start: int) -> int:
    """Return the end of the YAML block that starts at a line."""
    end = start + 1
    while end < len(lines) and _indent(lines[end]) > _indent(lines[start]):
        end += 1
    return end


def any_value(dice: random.Random) -> str:
    """Return the text of a value of any type."""
    if dice.random() < 0.02:
        return f"[{', '.join([dice.choice(TEXTS[:20])] * dice.choice((100, 3000)))}]"
    return dice.choice(dice.choice((NUMBERS, TEXTS, VALUES)))


def _keys() -> tuple[str, ...]:
    names = {path.rpartition(".")[2].strip("[]") for path in all_fields()}
    return (*sorted(names - {""}), "unknown", "<<", "? ", "1", "null", "")


KEYS = _keys()


def value(text: str, dice: random.Random) -> str:
    """Replace the value of a key."""
    lines, at = _pick(text, dice)
    if ":" in lines[at]:
        tail = "," if lines[at].endswith(",") else ""
        lines[at] = f"{lines[at].split(':')[0]}: {any_value(dice)}{tail}"
    return "\n".join(lines)


def inner_value(text: str, dice: random.Random) -> str:
    """Replace a value inside a line, such as an entry of a flow mapping or the value of a flag."""
    found = list(re.finditer(r"(?<=[:=\[, ])[^\s:=\[\],{}]+", text))
    if not found:
        return text
    one = dice.choice(found)
    return text[: one.start()] + any_value(dice) + text[one.end() :]


def key(text: str, dice: random.Random) -> str:
    """Replace a key, or insert a line with a key."""
    lines, at = _pick(text, dice)
    if ":" in lines[at] and dice.random() < 0.5:
        left, right = lines[at].split(":", 1)
        lines[at] = f"{left[: _indent(left)]}{dice.choice(KEYS)}:{right}"
    else:
        lines.insert(at, f"{' ' * _indent(lines[at])}{dice.choice(KEYS)}: {any_value(dice)}")
    return "\n".join(lines)


def block(text: str, dice: random.Random) -> str:
    """Delete, duplicate or move a block, or change its indentation."""
    lines, at = _pick(text, dice)
    end = _block_end(lines, at)
    cut, rest = lines[at:end], lines[:at] + lines[end:]
    match dice.randrange(4):
        case 0:
            return "\n".join(rest)
        case 1:
            return "\n".join([*lines[:end], *cut, *lines[end:]])
        case 2:
            to = dice.randint(0, len(rest))
            return "\n".join([*rest[:to], *cut, *rest[to:]])
    shift = dice.choice((" ", "  ", "\t", "    "))
    return "\n".join([*lines[:at], *(shift + one for one in cut), *lines[end:]])


def nesting(text: str, dice: random.Random) -> str:
    """Insert deeply nested lists, mappings, quotes, groups or substitutions."""
    depth = dice.choices((5, 30, 300, 3000), (40, 40, 16, 4))[0]
    opening, closing = dice.choice(
        (
            ("[", "]"),
            ("{a: ", "}"),
            ("- ", ""),
            ("$(", ")"),
            ("${a:-", "}"),
            ("((", "))"),
            ("{", "}"),
        )
    )
    lines, at = _pick(text, dice)
    put = opening * depth + "1" + closing * (depth if dice.random() < 0.7 else 0)
    head = lines[at].split(":")[0] + ": " if ":" in lines[at] else ""
    lines[at] = head + put
    return "\n".join(lines)


def anchors(text: str, dice: random.Random) -> str:
    """Insert anchors, aliases and merge keys, also circular and exponential ones."""
    lines, at = _pick(text, dice)
    space = " " * _indent(lines[at])
    match dice.randrange(5):
        case 0 if ":" in lines[at]:
            left, right = lines[at].split(":", 1)
            lines[at] = f"{left}: &a{right}"
            lines.append(f"{dice.choice(KEYS)}: *a")
        case 1:
            lines.insert(at, f"{space}<<: {dice.choice(('*a', '[*a, *a]', '{tp: 2}', '[]', '1'))}")
        case 2:
            lines.insert(at, f"{space}x: &a [*a]")
        case 3:
            rows = [f"y{one + 1}: &y{one + 1} [{', '.join([f'*y{one}'] * 9)}]" for one in range(9)]
            lines[at:at] = ["y0: &y0 [1]", *rows]
        case _ if ":" in lines[at]:
            lines[at] = lines[at].split(":")[0] + ": &b {<<: *b, a: *b}"
    return "\n".join(lines)


def length(text: str, dice: random.Random) -> str:
    """Repeat a line or a word many times, or insert a long word."""
    times = dice.choices((10, 300, 3000, 30_000), (70, 24, 5, 1))[0]
    if dice.random() < 0.4:
        lines, at = _pick(text, dice)
        return "\n".join([*lines[:at], *[lines[at]] * min(times, 3000), *lines[at:]])
    words = text.split(" ")
    at = dice.randrange(len(words))
    if dice.random() < 0.3:
        words[at] = dice.choice("a\"'[-$#\\{%9") * dice.choices(LENGTHS, (80, 15, 5))[0]
        return " ".join(words)
    return " ".join([*words[:at], *[words[at]] * times, *words[at:]])


def line_ends(text: str, dice: random.Random) -> str:
    """Change line ends, tabs, the start of the file, or join lines."""
    match dice.randrange(7):
        case 0:
            return text.replace("\n", "\r\n")
        case 1:
            return text.replace("\n", "\r")
        case 2:
            return "\ufeff" + text
        case 3:
            return text.replace("  ", "\t", dice.choice((1, -1)))
        case 4:
            return text.rstrip("\n") + dice.choice(("", "\\", "\x00", "\x1a", "'", "\n...\n---\n"))
        case 5:
            return text.replace(
                "\n", dice.choice((" ", "", "\\\n", "\n\n")), dice.choice((1, 5, -1))
            )
    lines, at = _pick(text, dice)
    lines[at] = lines[at][: dice.randint(0, len(lines[at]))]
    return "\n".join(lines)


def characters(text: str, dice: random.Random) -> str:
    """Insert control characters, combining characters and characters beyond ASCII."""
    for _ in range(dice.choice((1, 1, 5, 50))):
        at = dice.randint(0, len(text))
        text = text[:at] + dice.choice(ODD_CHARACTERS) + text[at + dice.randint(0, 1) :]
    return text


def flags(text: str, dice: random.Random) -> str:
    """Repeat a flag, take its value away, or replace the value."""
    found = list(re.finditer(r"(--?[A-Za-z][\w-]*)([ =]+)([^\s\\]+)", text))
    if not found:
        return inner_value(text, dice)
    one = dice.choice(found)
    name, space, given = one.groups()
    other = dice.choice(found)
    put = dice.choice(
        (
            f"{name}",
            f"{name}{space}",
            f"{name}={given}",
            f"{name} {given} {name} {any_value(dice)}",
            f"{name}{space}{any_value(dice)}",
            f"{name}{space}{other.group(3)}",
            f"{other.group(1)}{space}{given}",
            f"{name.replace('-', '_')}{space}{given}",
            f"{name}{space}{dice.choice(SHELL)}",
            f"{name}{space}'{given}'",
            f'{name}{space}"${{X:-{given}}}"',
            f"{name}{space}$(({given}*2))",
        )
    )
    return text[: one.start()] + put + text[one.end() :]


def shell(text: str, dice: random.Random) -> str:
    """Insert shell syntax at the start of a line or anywhere."""
    put = dice.choice(SHELL)
    if dice.random() < 0.5:
        lines, at = _pick(text, dice)
        lines.insert(at, put)
        return "\n".join(lines)
    at = dice.randint(0, len(text))
    return text[:at] + dice.choice((" ", "", "\n")) + put + dice.choice((" ", "")) + text[at:]


def json_value(text: str, dice: random.Random) -> str:
    """Replace, delete, duplicate or wrap a value of a JSON text."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return inner_value(text, dice)
    places = list(_places(tree))
    if not places:
        return text
    node, name = dice.choice(places)
    match dice.randrange(4):
        case 0:
            del node[name]
        case 1:
            node[name] = dice.choice(JSON_VALUES)
        case 2:
            node[name] = dice.choice(places)[0]
        case _ if isinstance(node, dict):
            node[dice.choice(list(node))] = node[name]
        case _:
            node[name:name] = [node[name]] * dice.choice((1, 10, 500))
    try:
        return json.dumps(tree, indent=dice.choice((None, 1)), ensure_ascii=dice.random() < 0.5)
    except (ValueError, RecursionError):  # the tree contains itself
        return text


JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, 10**400, 1e308, -1e-300, 0.5, float("nan")),
    *(float("inf"), "", " ", "8", "a b", "\ud800", "\x00", "\u2028", "é", "n[1-99999999]", "$(x)"),
    *([], {}, [None], [[]], {"": None}, ["a"] * 1000, {"base": {}}, "1" * 5000, "x" * 10_000),
)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict | list):
            names = list(node) if isinstance(node, dict) else range(len(node))
            for name in names:
                yield node, name
                stack.append(node[name])


OF_SPECS: tuple[Damage, ...] = (
    *(value, value, value, inner_value, inner_value, key, key, block, block),
    *(nesting, anchors, length, line_ends, characters),
)
OF_FILES: tuple[Damage, ...] = (
    *(json_value, json_value, json_value, flags, flags, flags, shell, shell, inner_value, value),
    *(block, nesting, length, line_ends, characters, *CHANGES),
)


def crossed(text: str, other: str, dice: random.Random) -> str:
    """Return the start of one text and the end of another, or one text with a block of another."""
    lines, more = text.split("\n"), other.split("\n")
    at, from_ = dice.randint(0, len(lines)), dice.randrange(len(more))
    if dice.random() < 0.5:
        return "\n".join(lines[:at] + more[from_:])
    return "\n".join(lines[:at] + more[from_ : _block_end(more, from_)] + lines[at:])


def damaged(text: str, others: Sequence[str], kinds: Sequence[Damage], dice: random.Random) -> str:
    """Return ``text`` after one to four changes; one in ten texts is crossed with another."""
    if dice.random() < 0.1:
        text = crossed(text, dice.choice(others), dice)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 4))):
        text = dice.choice(kinds)(text or "\n", dice)
    return text
