"""Generator of docs/spec.md, the reference of all fields of the spec.

``python -m parc.compiler.report.text.spec_page > docs/spec.md``
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from parc.compiler.report.text.explain import example_value, format_default
from parc.compiler.spec.schema import FieldDoc, serving_fields, training_fields

HEAD = """\
# Fields of the spec

This page lists every field of the spec with its type, default, an example and its meaning.
`make docs` generates it from the models in `compiler/spec/`. `parc explain FIELD` prints one field,
and the targets for which it has no effect. `parc schema spec` prints the JSON Schema, with which
editors complete and check a spec. A dotted path such as `job.global_batch` means the key
`global_batch` of the section `job`; `[]` stands for an entry of a list.
`--set job.global_batch=512` sets a field on the command line.

The first part describes training jobs. [The second part](#serving-jobs) describes the fields of
serving jobs (`job.kind: serve`) that training jobs lack or that differ there.
"""
TOP = "top level"


def spec_page() -> str:
    """Return docs/spec.md: the fields of training jobs, then those that differ for services."""
    training, serving = training_fields(), serving_fields()
    other = {path: doc for path, doc in serving.items() if training.get(path) != doc}
    return (
        HEAD
        + "\n## Training jobs\n"
        + _section_tables(training.values(), "")
        + "\n## Serving jobs\n"
        + _section_tables(other.values(), "serving-")
    )


def _section_tables(fields: Iterable[FieldDoc], prefix: str) -> str:
    """Return a heading and a table per section of the spec.

    Sections with equal fields, such as the limits of all axes, share a table. ``prefix`` makes the
    anchors of this part different from the anchors of other parts.
    """
    sections: dict[str, list[FieldDoc]] = {}
    for field in fields:
        sections.setdefault(field.path.rpartition(".")[0], []).append(field)
    tables: dict[str, list[str]] = {}
    for section, members in sections.items():
        rows = "".join(_field_row(field) for field in members)
        tables.setdefault(rows, []).append(section)
    return "".join(
        _section_heading(sections, prefix) + _with_anchors(sections, rows, prefix)
        for rows, sections in tables.items()
    )


def _section_heading(sections: list[str], prefix: str) -> str:
    if sections == [""]:
        return f"\n### {TOP.capitalize()}\n"
    names = ", ".join(f"`{section}`" for section in sections)
    kind = " of serving jobs" if prefix else ""
    return f"\n### {names}{kind}\n"


def _with_anchors(sections: list[str], rows: str, prefix: str) -> str:
    """Return the table ``rows``, after an anchor per section that links can name."""
    # The heading of a section without a dot has the same anchor already.
    named = [section for section in sections if "." in section or (section and prefix)]
    anchors = "".join(f'<a id="{prefix}{section}"></a>' for section in named)
    lead = f"\n{anchors}\n" if anchors else ""
    return f"{lead}\n| field | type | default | example | meaning |\n{'| --- ' * 5}|\n{rows}"


def _field_row(field: FieldDoc) -> str:
    name = field.path.rpartition(".")[2]
    default = "**required**" if field.required else _as_code(format_default(field))
    example = example_value(field)
    shown = f"`{name}: {example}`" if example else "see its section"
    cells = (f"`{name}`", field.type, default, shown, " ".join(field.description.split()))
    return f"| {' | '.join(map(_escape_cell, cells))} |\n"


def _as_code(text: str) -> str:
    return text if text == "absent" else f"`{text}`" if text else '`""`'


def _escape_cell(text: str) -> str:
    # A bare vertical bar would end the table cell.
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(spec_page())
