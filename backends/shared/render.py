"""Rendering of YAML, and of the Jinja templates, which print values but compute nothing."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def shell_word(value: object) -> str:
    """Return ``value`` quoted so that a POSIX shell reads it as one word with exactly that text.

    A word with a comma or a leading ``=`` is quoted too, although no shell needs it:
    ``NAME==value`` looks like a comparison, and shellcheck warns about ``969,30,1`` in an array.
    """
    text = str(value)
    quoted = shlex.quote(text)
    return f"'{text}'" if quoted == text and (text.startswith("=") or "," in text) else quoted


def one_line(value: object) -> str:
    """Return ``value`` as one line of text, with a space for each unprintable character."""
    return "".join(char if char.isprintable() else " " for char in str(value))


_PLAIN_YAML = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z][A-Za-z0-9_./-]*", re.I)
"""Texts that YAML reads as texts without quotes."""


def yaml_text(tree: Mapping[str, Any], indent: str = "") -> str:
    """Return nested mappings as YAML text, sorted by key."""
    lines = []
    for key, value in sorted(tree.items()):
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{yaml_text(value, indent + '  ')}")
            continue
        is_plain = isinstance(value, str) and _PLAIN_YAML.fullmatch(value)
        lines.append(f"{indent}{key}: {value if is_plain else json.dumps(value)}\n")
    return "".join(lines)


COMPILE_OPTIONS = "trim_blocks lstrip_blocks keep_trailing_newline"
"""Options of ``jinja_environment`` that change how a template is compiled."""


@cache
def jinja_environment(folder: str) -> Environment:
    """Return the Jinja environment that renders the templates in ``templates/<folder>``.

    Templates can use the filters ``sh`` (``shell_word``) and ``line`` (``one_line``). In HTML
    templates every value is escaped, because names in a spec can contain markup.
    """
    # Imported here because jinja2 slows down the start of every command.
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    from parc.backends.shared.compiled_templates import CompiledTemplates

    jinja = Environment(
        loader=PackageLoader("parc.templates", folder),
        # A missing value is an error, never an empty text in an emitted file.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
        bytecode_cache=CompiledTemplates(COMPILE_OPTIONS),
        # All other templates are shell or Python text, quoted by the filter `sh`.
        autoescape=select_autoescape(("html.j2",), disabled_extensions=(), default=False),
    )
    jinja.filters["sh"] = shell_word
    jinja.filters["line"] = one_line
    return jinja


def render(folder: str, template: str, values: Mapping[str, object]) -> str:
    """Return the text of ``templates/<folder>/<template>`` with exactly one newline at its end.

    Raises:
        jinja2.UndefinedError: the template uses a name that is not in ``values``.
        jinja2.TemplateNotFound: the template does not exist.
    """
    text: str = jinja_environment(folder).get_template(template).render(values)
    return text.rstrip("\n") + "\n"
