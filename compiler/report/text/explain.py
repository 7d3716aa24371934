"""Text of ``parc explain`` for diagnostic codes, spec fields and terms of estimates.

docs/spec.md has the same example values of fields. A test checks that each is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from textwrap import fill
from typing import TYPE_CHECKING, Any

from parc.compiler.diagnostics.codes import CodeInfo, all_codes, code_info

if TYPE_CHECKING:
    from parc.compiler.cost.step.terms import EstimateTerm
    from parc.compiler.spec.schema import FieldDoc

UNITS = ("", "_bytes", "_seconds", "_per_second", "_per_step", "_kwh")
"""Endings of the names of terms that a topic may leave out."""
UNITS_OF_TIME = {
    "a duration,": {"d": 86400, "h": 3600, "min": 60},
    "a time,": {"h": 3600, "m": 60, "s": 1},
}
"""Type of a field -> units of its values and their seconds, the longest first."""
OTHER_NAMES = (
    "parc explain job, layout, cluster, goals or launch lists fields; parc estimate lists terms; "
    "docs/glossary.md explains other words"
)
"""Hint for a topic that resembles no name."""
CODE = re.compile(r"(?:PARC-)?([A-Z]\d+[a-z]?)", re.IGNORECASE)
FILE = "field_examples.yaml"
WORDS = re.compile(r"[\w.+-]+")
LIKE = re.compile(r"\blike ([^,]+?)(?: or |,)")
"""First example in the description of a type, such as ``80 GB`` in ``a size, like 80 GB or``."""


class UnknownTopic(LookupError):
    """Error: a name is not a topic of ``parc explain``. The message lists similar topics."""


def explain_topic(topic: str) -> str:
    """Return the explanation of a topic: a diagnostic code, a spec field, or a term of an estimate.

    The last part of the path of a field is enough: ``vpp`` is ``layout.vpp``.

    Raises:
        UnknownTopic: there is no code, field or term with that name.
    """
    # The order matters only if names collide: a diagnostic code is never a field or term.
    for find in (_explain_code, _explain_field):
        text = find(topic)
        if text is not None:
            return text
    # A size such as tp has the name of the time that its communication takes.
    found = (_explain_field(f"layout.{topic}"), _explain_cost_terms(topic))
    if any(found):
        return "\n".join(text for text in found if text)
    near = _fields_that_end_in(topic)
    if len(near) == 1:
        return _explain_field(near[0]) or ""
    near = near or get_close_matches(topic, explainable_topics(), n=3, cutoff=0.6)
    hint = f"Did you mean {', '.join(near)}?" if near else OTHER_NAMES
    raise UnknownTopic(f"{topic!r} is not a code, spec field or term of an estimate. {hint}")


def _fields_that_end_in(name: str) -> list[str]:
    """Return the shortest paths of spec fields whose last part is ``name``, in any case."""
    found = [path for path in _spec_fields() if path.lower().endswith(f".{name.lower()}")]
    least = min((path.count(".") for path in found), default=0)
    return sorted(path for path in found if path.count(".") == least)


def explainable_topics() -> list[str]:
    """Return the names of all topics that ``explain`` accepts."""
    codes = [f"PARC-{info.code}" for info in all_codes()]
    return [*codes, *sorted(_spec_fields()), *sorted({term.name for term in _cost_terms()})]


def _explain_code(topic: str) -> str | None:
    match = CODE.fullmatch(topic)
    if match is None:
        return None
    # Codes may end in a lower-case letter, so that only the first letter is raised.
    code = match[1][0].upper() + match[1][1:]
    try:
        return diagnostic_text(code_info(code))
    except KeyError:
        return None


def diagnostic_text(info: CodeInfo) -> str:
    """Return the explanation of a diagnostic code: title, rule, reason, fix, examples, sources."""
    silent = "; silent: the framework reports nothing" if info.silent else ""
    parts = [
        f"PARC-{info.code}: {info.title} ({info.severity}{silent})",
        _labeled_paragraph("rule", info.rule),
        _labeled_paragraph("why", info.why),
        _labeled_paragraph("fix", info.fix),
    ]
    parts += [
        _indented_example(name, text) for name, text in (("bad", info.bad), ("good", info.good))
    ]
    if info.sources:
        parts.append("source:\n" + "\n".join(f"  {source}" for source in info.sources))
    return "\n\n".join(part for part in parts if part) + "\n"


def _labeled_paragraph(name: str, text: str) -> str:
    """Return ``text`` as a wrapped paragraph, indented behind a label such as ``why:``."""
    return fill(text.strip(), 88, initial_indent=f"{name}:".ljust(6), subsequent_indent=" " * 6)


def _indented_example(name: str, text: str) -> str:
    if not text:
        return ""
    return f"{name}:\n" + "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def _spec_fields() -> dict[str, Any]:
    # Imported only here, because this module imports pydantic, which slows down every start.
    from parc.compiler.spec.schema import all_fields, site_fields

    return {**all_fields(), **site_fields()}


def _explain_field(topic: str) -> str | None:
    # An index such as emit[0] stands for any entry of the list.
    path = re.sub(r"\[\d+\]", "[]", topic)
    found = _spec_fields().get(path) or _spec_fields().get(topic)
    if found is None:
        return None
    serving = _serving_difference(path, found)
    below = [name for name in _spec_fields() if name.startswith((f"{path}.", f"{path}["))]
    default = "none, the field is required" if found.required else format_default(found)
    if default == "auto" and "auto" not in found.description:
        default = "auto, PARC chooses the value"
    lines = [f"{topic}: {found.description}", f"type:    {found.type}", f"default: {default}"]
    example = example_value(found)
    lines += [f"example: {found.path.rpartition('.')[2]}: {example}"] if example else []
    lines += [serving] if serving else []
    lines += _effect_lines(path)
    lines += ["keys:", *(f"  {name}" for name in below)] if below else []
    return "\n".join(lines) + "\n"


def _effect_lines(path: str) -> list[str]:
    """Return lines that limit the effect of the spec field ``path``; no lines if there is no limit.

    The lines list the targets and job types for which the field has no effect. For a field of
    ``launch``, a further line lists the targets that use the field.
    """
    from parc.backends.plugin_error import PluginError
    from parc.backends.registry import all_declarations, fields_without_effect
    from parc.backends.spec_fields import uses_spec_field
    from parc.compiler.ir.field_paths import is_path_in_fields
    from parc.compiler.spec.fields_without_effect import LABELS, UNUSED_IN_SERVICES

    lines = [f"effect: none on layouts and jobs: {LABELS[path]}"] if path in LABELS else []
    if path in UNUSED_IN_SERVICES:
        lines.append(f"effect: none in serving jobs: {UNUSED_IN_SERVICES[path]}")
    targets: dict[str, list[str]] = {}
    for one in all_declarations():
        try:
            reason = fields_without_effect(one.name).get(path)
            if reason is None and one.binds_layout and path.startswith(("job.", "model.")):
                declared = uses_spec_field(one.name, path)
                reason = None if declared else "the plugin does not declare the field"
        except PluginError as error:
            lines.append(f"effect: unknown with {one.name}: {error}")
            continue
        if reason is not None:
            targets.setdefault(reason, []).append(one.name)
    lines += [f"effect: none with {', '.join(names)}: {why}" for why, names in targets.items()]
    section, _, field = path.partition(".")
    if section == "launch" and field:
        users = [
            one.name for one in all_declarations() if is_path_in_fields(field, one.launch_fields)
        ]
        lines += [f"effect: only with {', '.join(users)}"] if users else []
    return lines


def _serving_difference(path: str, found: Any) -> str:
    """Return the description, type and default of a spec field in serving jobs.

    The text is empty if they are the same in training jobs. ``found`` is the field in training
    jobs.
    """
    from parc.compiler.spec.schema import serving_fields

    other = serving_fields().get(path)
    if other is None or other == found:
        return ""
    lines = [f"serving: {other.description}"] if other.description != found.description else []
    lines.append(f"serving type:    {other.type}")
    return "\n".join((*lines, f"serving default: {format_default(other)}"))


def format_default(field: FieldDoc) -> str:
    """Return the default of a spec field, with its unit, as users write it."""
    default = field.default
    if default is None:
        return "absent"
    if isinstance(default, float):
        if "a percentage" in field.type:
            return f"{100 * default:g}%"
        units = next((UNITS_OF_TIME[kind] for kind in UNITS_OF_TIME if kind in field.type), {})
        for unit, seconds in units.items():
            if default >= seconds and default % seconds == 0:
                return f"{default / seconds:g}{unit}"
    return default if isinstance(default, str) else json.dumps(default, default=str)


def _cost_terms() -> tuple[EstimateTerm, ...]:
    """Return all terms and results of estimates. Training and serving may share a name."""
    from parc.compiler.cost.result_terms import RESULTS
    from parc.compiler.cost.serving.terms import SERVING_TERMS
    from parc.compiler.cost.step.terms import TERMS

    return (*TERMS.values(), *RESULTS, *SERVING_TERMS.values())


def _explain_cost_terms(topic: str) -> str | None:
    """Return the explanation of all terms whose name, name without unit, or title is ``topic``."""
    names = {f"{topic}{unit}" for unit in UNITS}
    found = [
        "\n\n".join(_term_paragraphs(term)) + "\n"
        for term in _cost_terms()
        if term.name in names or term.title.lower() == topic.lower()
    ]
    return "\n".join(found) or None


def _term_paragraphs(term: EstimateTerm) -> Iterator[str]:
    """Yield the paragraphs of the explanation of ``term``, wrapped like those of a diagnostic."""
    yield f"{term.name}: {term.title} ({term.unit})"
    yield fill(term.formula, 88)
    if term.variants:
        yield fill(f"variants (properties of a software stack): {term.variants}", 88)
    yield fill(f"source: {term.source}", 88)


@cache
def example_patterns() -> Mapping[str, str]:
    """Return (pattern of a spec path -> example in YAML) from the data file."""
    # Imported only here, because the YAML reader slows down the start of a command.
    from parc.compiler.diagnostics import Sink
    from parc.compiler.spec.reading.yaml_tree import read_tree

    tree = read_tree((files(__package__) / FILE).read_text("utf-8"), FILE, Sink())
    assert tree is not None
    value: Mapping[str, str] = tree.value
    return value


def example_value(field: FieldDoc) -> str:
    """Return an example of a value of ``field`` in YAML; empty for a section of other fields.

    The example differs from the default if the type has more than one value.
    """
    for pattern, text in example_patterns().items():
        if re.fullmatch(pattern, field.path):
            return text
    if field.type in ("a mapping", "a list of mappings"):
        return ""
    if field.type.startswith("true or false"):
        return "false" if field.default is True else "true"
    if field.type.startswith("a whole number"):
        return str(2 * field.default) if isinstance(field.default, int) and field.default else "2"
    if field.type.startswith("a number"):
        return "0.5" if "below 1" in field.type else "2.0"
    found = LIKE.search(field.type)
    if found:
        return found[1]
    return next((one for one in _listed_values(field.type) if one != field.default), "")


def _listed_values(description: str) -> list[str]:
    """Return the values that the description of a type lists: ``bf16, fp16 or auto``."""
    parts = re.split(r", | or ", description)
    return [part for part in parts if WORDS.fullmatch(part) and part not in ("text", "mapping")]
