"""Convert pydantic's validation errors to findings, one finding per mistake in the spec."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.spec.annotations import (
    ErrorLocation,
    describe_expected,
    is_list_of_mappings,
    is_percentage,
    literal_values,
    locate_error,
    plain_types,
    quantities,
)
from parc.compiler.spec.fixes import overrides_of_fix
from parc.compiler.spec.key_mistakes import missing_key_finding, unknown_key_finding
from parc.compiler.spec.meant_values import (
    explain_suffix,
    suggest_other_form,
    suggest_racks,
    without_counted_word,
    wrap_in_mapping,
)
from parc.compiler.spec.override import FILE as OVERRIDE_FILE
from parc.compiler.spec.override import apply_overrides
from parc.compiler.spec.reading.scalars import plain_scalar
from parc.compiler.spec.reading.yaml_tree import SpecTree
from parc.compiler.spec.rename_key import RENAME

# YAML 1.1 read these words as bools, and many users still write them.
_YES_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_SYNONYMS = {"sft": "finetune", "inference": "serve", "half": "fp16", "float8": "fp8"}
"""Words of other tools for a listed value, which are not spelled like it."""
_TYPE_NAMES = {bool: "a true/false value", str: "text", dict: "a mapping", list: "a list"}


def report_mistakes(
    root: type[BaseModel], tree: Any, errors: Sequence[ErrorDetails], sink: Sink
) -> None:
    """Report every mistake in ``tree`` once, given the ``errors`` of pydantic for ``tree``."""
    chosen: dict[tuple[str, bool], tuple[ErrorDetails, ErrorLocation]] = {}
    for error in errors:
        location = locate_error(root, tree, error["loc"])
        if location is None:
            continue
        # pydantic reports each member of a union; the error with a bound has the best explanation
        mistake = (location.path, error["type"] == "extra_forbidden")
        if mistake not in chosen or _violated_bound(error):
            chosen[mistake] = (error, location)
    missing = {at.path for error, at in chosen.values() if error["type"] == "missing"}
    unknown = {
        at.path: unknown_key_finding(at, sink.positions, missing)
        for error, at in chosen.values()
        if error["type"] == "extra_forbidden"
    }
    # One mistake: a required key with another name.
    renamed = {finding.fix.partition(":")[0] for finding in unknown.values()}
    for error, location in chosen.values():
        if error["type"] == "extra_forbidden":
            sink.report("X01", unknown[location.path], at=location.path, key=True)
        elif error["type"] != "missing" or location.path not in renamed:
            _report_mistake(error, location, sink)


def report_renamed_sections(
    root: type[BaseModel], tree: Any, errors: Sequence[ErrorDetails], sink: Sink
) -> Any:
    """Report sections with a misspelled name (X01); return ``tree`` with their right names.

    The returned tree shows the mistakes inside these sections, whose positions ``sink.positions``
    then has under the right names. None if no section is misspelled.
    """
    located = [(error["type"], locate_error(root, tree, error["loc"])) for error in errors]
    missing = {at.path for kind, at in located if at is not None and kind == "missing"}
    unknown = [at for kind, at in located if at is not None and kind == "extra_forbidden"]
    positions, overrides = sink.positions, list[str]()
    for at in unknown:
        finding = unknown_key_finding(at, positions, missing)
        edits = overrides_of_fix(finding.fix) if RENAME.fullmatch(finding.fix) else ()
        if edits and edits[0] not in overrides:
            sink.report("X01", finding, at=at.path, key=True)
            overrides += edits
    old = SpecTree(tree, dict(positions.values), dict(positions.keys))
    changed = apply_overrides(old, overrides, sink)
    if changed.value == tree:
        return None
    # The old paths stay, because the findings above point to them.
    sink.positions = replace(
        positions,
        values={**positions.values, **changed.values},
        keys={**positions.keys, **changed.keys},
    )
    return changed.value


def unquoted_texts(
    root: type[BaseModel], tree: Any, errors: Sequence[ErrorDetails], sink: Sink
) -> dict[str, str]:
    """Return (spec path -> text) of the overrides that YAML reads as numbers but fields as text.

    A shell removes the quotes of ``--set versions.vllm="0.10"``, so the value of an override needs
    none. The result has the text as written, such as 0.10 for the number 0.1.
    """
    locations = [locate_error(root, tree, error["loc"]) for error in errors]
    return {
        location.path: _text_in_file(location, sink)
        for location in locations
        if location is not None
        and isinstance(location.value, bool | int | float)
        and str in plain_types(location.annotation)
        and _is_overridden(location.path, sink)
    }


def _is_overridden(path: str, sink: Sink) -> bool:
    span = sink.positions.values.get(path)
    return span is not None and span.file == OVERRIDE_FILE


def _report_mistake(error: ErrorDetails, location: ErrorLocation, sink: Sink) -> None:
    kind = error["type"]
    # a missing key has no position, so the finding points at the mapping around it
    span = sink.positions.values.get(location.parent) if kind == "missing" else None
    if location.path == "parc":
        sink.report(
            "X13",
            _wrong_spec_version_finding(location, missing=kind == "missing"),
            at="parc",
            span=span,
        )
    elif kind == "missing":
        sink.report("X08", missing_key_finding(location), at=location.path, span=span)
    elif kind == "quantity":
        sink.report("X07", _wrong_quantity_finding(location, error), at=location.path)
    elif kind == "string_too_long":
        sink.report("X11", _too_long_text_finding(location, error), at=location.path)
    elif kind == "string_pattern_mismatch" and location.path == "model.pattern":
        sink.report("X09", _wrong_layer_pattern_finding(location), at=location.path)
    elif kind == "string_pattern_mismatch":
        sink.report("X12", _wrong_run_name_finding(location), at=location.path)
    else:
        code = _code_of_wrong_value(location)
        sink.report(code, _FINDINGS[code](location, error, sink), at=location.path)


def _code_of_wrong_value(location: ErrorLocation) -> str:
    """Return the diagnostic code of a wrong value.

    X09: the value is not one of the listed values. X11: the number is out of range. X02: the value
    has the wrong type.
    """
    types, value = plain_types(location.annotation), location.value
    if isinstance(value, bool):
        return "X02"
    if isinstance(value, int | float) and (
        float in types or (int in types and value == value // 1)
    ):
        return "X02" if isinstance(value, float) and float not in types else "X11"
    if isinstance(value, str) and (_number_in_text(value) or _bool_in_text(location)):
        return "X02"
    listed = any(type(choice) is type(value) for choice in literal_values(location.annotation))
    return "X09" if listed else "X02"


_MOST_PERCENT = 95
"""Largest percentage of a field that also has values of other types."""
_TRAINS_ADAPTERS = {"lora", "qlora", "peft"}


def _wrong_type_finding(location: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    wanted = describe_expected(location.annotation)
    fix = _suggest_value(location, _text_in_file(location, sink))
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(location.value))
    if percent and float(percent[1]) > _MOST_PERCENT and "percentage" in wanted:
        return Finding(
            f"{location.path} is {percent[0].strip()}, which is above the maximum",
            label=f"must be at most {_MOST_PERCENT} %",
            help=f"expected {wanted}",
        )
    return Finding(
        f"{location.path} is {_describe_value(location.value)}, expected {wanted}",
        label=f"the value is {_describe_value(location.value)}",
        help="" if fix else explain_suffix(location) or _refer_to_field(location),
        fix=fix,
    )


def _refer_to_field(location: ErrorLocation) -> str:
    path = re.sub(r"\[\d+\]", "[]", location.path)
    return f"`parc explain {path}` describes the field"


def _describe_value(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"text ({json.dumps(value[:40], ensure_ascii=False)})"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {str(value)[:40]}"
    return _TYPE_NAMES[type(value)]


def _text_in_file(location: ErrorLocation, sink: Sink) -> str:
    """Return the text of a value as written in the file, such as 0.20 for the number 0.2.

    The result is empty if the position of the value is unknown.
    """
    span = sink.positions.values.get(location.path)
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return ""
    return lines[span.line - 1][span.column - 1 : span.column - 1 + span.length]


def _suggest_value(location: ErrorLocation, written: str) -> str:
    """Return a fix that sets the value that the user probably meant; empty if this is unclear.

    ``written`` is the text of the value in the file.
    """
    types, value = plain_types(location.annotation), location.value
    if location.path == "cluster.nodes" and (racks := suggest_racks(value)):
        return f"cluster.racks: {racks}   (instead of cluster.nodes)"
    if other_form := suggest_other_form(location):
        return f"{location.path}: {other_form}"
    if wrapped := wrap_in_mapping(location):
        return wrapped
    numeric = bool({int, float} & set(types))
    if isinstance(value, str) and numeric:
        number = _number_in_text(without_counted_word(location.path, value))
        if number:
            return f"{location.path}: {number}"
    if isinstance(value, float) and value.is_integer() and int in types:
        return f"{location.path}: {int(value)}"
    if _bool_in_text(location):
        return f"{location.path}: {_bool_in_text(location)}"
    scalar = value is not None and not isinstance(value, dict | list)
    if str in types and scalar and not isinstance(value, str):
        return f'{location.path}: "{written or json.dumps(value)}"'
    if tuple in types and scalar and not is_list_of_mappings(location.annotation):
        return f"{location.path}: [{written or value}]"
    return f"remove {location.path}" if value is None else ""


def _number_in_text(value: Any) -> str:
    """Return text such as ``"8"`` or ``$2.50`` as a YAML number; empty for other text."""
    text = str(value).strip().lstrip("$€£").replace("_", "").replace(",", "")
    try:
        number = plain_scalar(text)
    except ValueError:
        return ""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return text if is_number else ""


def _bool_in_text(location: ErrorLocation) -> str:
    """Return ``true`` or ``false`` for words such as yes and off, which YAML 1.2 reads as text.

    The result is empty for any other word, or if the field does not accept a bool.
    """
    return (
        _YES_NO.get(str(location.value).lower(), "")
        if bool in plain_types(location.annotation)
        else ""
    )


def _not_listed_finding(location: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    listed = [str(choice) for choice in literal_values(location.annotation)]
    value = location.value
    same = _SYNONYMS.get(str(value).lower(), "")
    near = (same,) if same in listed else did_you_mean(str(value), listed)
    valid = f"valid values: {describe_expected(location.annotation)}"
    if location.path == "job.kind" and str(value).lower() in _TRAINS_ADAPTERS:
        valid += "; for LoRA, set job.kind to finetune, and job.lora.rank"
    all_listed = set(plain_types(location.annotation)) == {Literal}
    shown = f'"{value[:40]}"' if isinstance(value, str) else _describe_value(value)
    return Finding(
        f"{location.path} cannot be {shown}",
        label=f"did you mean {near[0]}?" if near else "not one of the valid values",
        help=valid
        if near or all_listed
        else f"{valid}; {explain_suffix(location) or _refer_to_field(location)}",
        fix=f"{location.path}: {near[0]}" if near else "",
    )


def _out_of_range_finding(location: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    limit, valid = _violated_bound(error), describe_expected(location.annotation)
    wanted = limit or valid
    if limit.startswith("at most "):
        # describe_expected leaves out bounds that only keep the arithmetic finite.
        valid = re.sub(r"of at least (\d+)", rf"from \1 to {limit.split()[-1]}", valid, count=1)
    return Finding(
        f"{location.path} is {str(location.value)[:40]}, must be {wanted}",
        label=f"{location.path} must be {wanted}",
        help=f"valid values: {valid}",
        fix=f"{location.path}: {limit.split()[-1]}" if limit.startswith("at ") else "",
    )


def _violated_bound(error: ErrorDetails) -> str:
    """Return the bound that a number violates, such as ``at most 65535``.

    The result is empty if ``error`` is not about a bound.
    """
    context = error.get("ctx", {})
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    # Whole numbers without a point, as describe_expected writes them; repr of others is exact.
    bounds = {name: context[name] for name in words if name in context}
    shown = {name: int(one) if one == int(one) else one for name, one in bounds.items()}
    return next((f"{words[name]} {bound}" for name, bound in shown.items()), "")


_FINDINGS = {"X02": _wrong_type_finding, "X09": _not_listed_finding, "X11": _out_of_range_finding}


def _wrong_quantity_finding(location: ErrorLocation, error: ErrorDetails) -> Finding:
    reason, value = error["msg"], location.value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # A number such as 8 for memory_headroom almost certainly means 8 %.
    percent = number and is_percentage(location.annotation) and 1 < value < 95
    written = json.dumps(value[:40], ensure_ascii=False) if isinstance(value, str) else None
    return Finding(
        f"{location.path}: {written or _describe_value(value)} {reason}",
        label=f"the value {reason}",
        help=f"expected {describe_expected(location.annotation)}",
        fix=f"{location.path}: {value}%" if percent else _respelled_quantity(location),
    )


def _respelled_quantity(location: ErrorLocation) -> str:
    """Return a fix for a unit in another spelling, such as ``15.6 trillion``; empty without one."""
    texts = (one.respell(location.value) for one in quantities(location.annotation))
    return next((f"{location.path}: {text}" for text in texts if text), "")


def _wrong_run_name_finding(location: ErrorLocation) -> Finding:
    # Suggest a valid name: replace each run of invalid characters by one dash.
    near = re.sub(r"[^A-Za-z0-9._-]+", "-", str(location.value)).strip("._-")[:128]
    written = json.dumps(str(location.value)[:60], ensure_ascii=False)
    return Finding(
        f"{written} is not a valid folder name",
        label="use letters, digits, . - _ (at most 128); the first must be a letter or digit",
        help="PARC writes the output files to a folder that has the name of the run",
        fix=f"name: {near}" if near else "",
    )


def _too_long_text_finding(location: ErrorLocation, error: ErrorDetails) -> Finding:
    most = error["ctx"]["max_length"]
    return Finding(
        f"{location.path} has {len(str(location.value))} characters",
        label=f"the text must have at most {most} characters",
    )


def _wrong_layer_pattern_finding(location: ErrorLocation) -> Finding:
    text = str(location.value)
    # Each invalid letter once, in order of appearance.
    bad = "".join(dict.fromkeys(re.sub(r"[M*E-]", "", text)))
    return Finding(
        f"the layer pattern has invalid letters: {', '.join(bad[:20])}"
        if bad
        else "the layer pattern is empty",
        label="write one letter per layer: M = Mamba, * = attention, - = dense MLP, E = experts",
        help="set the boundaries of pipeline stages in layout.pipeline_layout"
        if "|" in bad
        else "",
        fix=f'{location.path}: "{text.replace("|", "")}"' if bad == "|" else "",
    )


def _wrong_spec_version_finding(location: ErrorLocation, *, missing: bool) -> Finding:
    written = "is missing" if missing else f"is {_describe_value(location.value)}"
    return Finding(
        f"the version of the spec language (key parc) {written}; the only valid version is 1",
        help="every spec must set the version of the spec language",
        fix="parc: 1",
    )
