"""Templates to text: Jinja that prints and does not compute."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def shell_word(value: object) -> str:
    """``value`` as one word of a POSIX shell that expands to exactly that text.

    A leading ``=`` and commas are quoted too: right for the shell as they are, but ``NAME==value``
    reads like a comparison gone astray, and ``969,30,1`` in an array like words that lack their
    spaces, to shellcheck and to people.
    """
    text = str(value)
    quoted = shlex.quote(text)
    return f"'{text}'" if quoted == text and (text.startswith("=") or "," in text) else quoted


def one_line(value: object) -> str:
    """``value`` as the rest of a comment: a line break in it would end the comment."""
    return "".join(char if char.isprintable() else " " for char in str(value))


@cache
def environment(folder: str) -> Environment:
    """The Jinja environment of ``templates/<folder>``; its filters are ``sh`` and ``line``.

    Every value in a template of HTML is escaped: names come from strangers.

    jinja2 costs start-up time, so it is imported here and not with the module.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    jinja = Environment(
        loader=PackageLoader("parc.templates", folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
        # All else is shell text, quoted by `sh`.
        autoescape=select_autoescape(("html.j2",), disabled_extensions=(), default=False),
    )
    jinja.filters["sh"] = shell_word
    jinja.filters["line"] = one_line
    return jinja


def render(folder: str, template: str, values: Mapping[str, object]) -> str:
    """The text of ``templates/<folder>/<template>``, ending in exactly one newline.

    Raises:
        jinja2.UndefinedError: the template names something that is not in ``values``.
        jinja2.TemplateNotFound: there is no such template.
    """
    text: str = environment(folder).get_template(template).render(values)
    return text.rstrip("\n") + "\n"
