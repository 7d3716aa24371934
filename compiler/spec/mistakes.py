"""Turns what pydantic refuses into findings: one per mistake, in the words of the spec."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.spec.annotations import (
    ErrorLocation,
    expected,
    is_percentage,
    literals,
    locate_error,
    plain_types,
)
from parc.compiler.spec.keys import missing_key, unknown_key
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.reading.scalars import plain_scalar

_YES_NO = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_KINDS = {bool: "a true/false value", str: "text", dict: "a mapping", list: "a list"}


def report_mistakes(
    root: type[BaseModel], tree: Any, errors: Sequence[ErrorDetails], sink: Sink
) -> None:
    """Report each of pydantic's ``errors`` about ``tree`` once, all of them."""
    chosen: dict[tuple[str, bool], tuple[ErrorDetails, ErrorLocation]] = {}
    for error in errors:
        place = locate_error(root, tree, error["loc"])
        if place is None:
            continue
        # the branches of a union complain one by one; the one that names a bound says most
        twin = (place.path, error["type"] == "extra_forbidden")
        if twin not in chosen or _bound(error):
            chosen[twin] = (error, place)
    for error, place in chosen.values():
        _report(error, place, sink)


def _report(error: ErrorDetails, place: ErrorLocation, sink: Sink) -> None:
    kind = error["type"]
    # what is missing is shown at the mapping that lacks it
    span = sink.positions.values.get(place.above) if kind == "missing" else None
    if kind == "extra_forbidden":
        sink.report("X01", unknown_key(place), at=place.path, key=True)
    elif place.path == "parc":
        sink.report("X13", _version(place, missing=kind == "missing"), at="parc", span=span)
    elif kind == "missing":
        sink.report("X08", missing_key(place), at=place.path, span=span)
    elif kind == "quantity":
        sink.report("X07", _quantity(place, error), at=place.path)
    elif kind == "string_too_long":
        sink.report("X11", _too_long(place, error), at=place.path)
    elif kind == "string_pattern_mismatch" and place.path == "model.pattern":
        sink.report("X09", _letters(place), at=place.path)
    elif kind == "string_pattern_mismatch":
        sink.report("X12", _name(place), at=place.path)
    else:
        code = _code(place)
        sink.report(code, _FINDINGS[code](place, error, sink), at=place.path)


def _code(place: ErrorLocation) -> str:
    """X09 for a word or number that is not in the list, X11 out of range, else X02."""
    types, value = plain_types(place.annotation), place.value
    if isinstance(value, bool):
        return "X02"
    if isinstance(value, int | float) and (
        float in types or (int in types and value == value // 1)
    ):
        return "X02" if isinstance(value, float) and float not in types else "X11"
    if isinstance(value, str) and (_as_number(value) or _as_bool(place)):
        return "X02"
    listed = any(type(choice) is type(value) for choice in literals(place.annotation))
    return "X09" if listed else "X02"


def _wrong_type(place: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    written = _written(place, sink)
    wanted = expected(place.annotation)
    return Finding(
        f"{place.path} is {_kind(place.value)}, expected {wanted}",
        label=f"this is {_kind(place.value)}",
        fix=_mend(place, written),
    )


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"text ({json.dumps(value[:40], ensure_ascii=False)})"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {str(value)[:40]}"
    return _KINDS[type(value)]


def _written(place: ErrorLocation, sink: Sink) -> str:
    """The value as it stands in the text (0.20, not 0.2); empty where it is not on one line."""
    span = sink.positions.values.get(place.path)
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return ""
    return lines[span.line - 1][span.column - 1 : span.column - 1 + span.length]


def _mend(place: ErrorLocation, written: str) -> str:
    """The edit that keeps what the user meant; empty where that is not plain."""
    types, value = plain_types(place.annotation), place.value
    numeric = bool({int, float} & set(types))
    if isinstance(value, str) and numeric and _as_number(value):
        return f"{place.path}: {_as_number(value)}"
    if isinstance(value, float) and value.is_integer() and int in types:
        return f"{place.path}: {int(value)}"
    if _as_bool(place):
        return f"{place.path}: {_as_bool(place)}"
    scalar = value is not None and not isinstance(value, dict | list)
    if str in types and scalar and not isinstance(value, str):
        return f'{place.path}: "{written or json.dumps(value)}"'
    if tuple in types and scalar:
        return f"{place.path}: [{written or value}]"
    return f"remove {place.path}" if value is None else ""


def _as_number(value: Any) -> str:
    """``"8"`` and ``"1_000"`` as the number they mean; empty for other text."""
    text = str(value).strip().replace("_", "").replace(",", "")
    try:
        number = plain_scalar(text)
    except ValueError:
        return ""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return text if is_number else ""


def _as_bool(place: ErrorLocation) -> str:
    """``yes`` and its kin, which are text in YAML 1.2, where true or false is meant."""
    return (
        _YES_NO.get(str(place.value).lower(), "") if bool in plain_types(place.annotation) else ""
    )


def _not_listed(place: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    listed = [str(choice) for choice in literals(place.annotation)]
    near = did_you_mean(str(place.value), listed)
    return Finding(
        f"{place.path} cannot be {_kind(place.value)}",
        label=f"did you mean {near[0]}?" if near else "not one of the legal values",
        help=f"legal: {expected(place.annotation)}",
        fix=f"{place.path}: {near[0]}" if near else "",
    )


def _out_of_range(place: ErrorLocation, error: ErrorDetails, sink: Sink) -> Finding:
    limit = _bound(error)
    wanted = limit or expected(place.annotation)
    return Finding(
        f"{place.path} is {str(place.value)[:40]}, must be {wanted}",
        label=f"must be {wanted}",
        help=f"legal: {expected(place.annotation)}",
        fix=f"{place.path}: {limit.split()[-1]}" if limit.startswith("at ") else "",
    )


def _bound(error: ErrorDetails) -> str:
    """The bound that was passed: ``at most 65535``; empty for other errors."""
    context = error.get("ctx", {})
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return next((f"{words[name]} {context[name]}" for name in words if name in context), "")


_FINDINGS = {"X02": _wrong_type, "X09": _not_listed, "X11": _out_of_range}


def _quantity(place: ErrorLocation, error: ErrorDetails) -> Finding:
    reason, value = error["msg"], place.value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    percent = number and is_percentage(place.annotation) and 1 < value < 95
    return Finding(
        f"{place.path}: {_kind(place.value)} {reason}",
        label=reason,
        help=f"expected {expected(place.annotation)}",
        fix=f"{place.path}: {value}%" if percent else "",
    )


def _name(place: ErrorLocation) -> Finding:
    near = re.sub(r"[^A-Za-z0-9._-]+", "-", str(place.value)).strip("._-")[:128]
    return Finding(
        f"the name {json.dumps(str(place.value)[:60], ensure_ascii=False)} cannot be a folder name",
        label="letters, digits, dot, dash and underscore; the first a letter or digit; at most 128",
        help="the run's name is the folder that its files are written to",
        fix=f"name: {near}" if near else "",
    )


def _too_long(place: ErrorLocation, error: ErrorDetails) -> Finding:
    most = error["ctx"]["max_length"]
    return Finding(
        f"{place.path} has {len(str(place.value))} characters", label=f"must be at most {most}"
    )


def _letters(place: ErrorLocation) -> Finding:
    text = str(place.value)
    bad = "".join(dict.fromkeys(re.sub(r"[M*E-]", "", text)))
    return Finding(
        f"no layer is called {', '.join(bad[:20])}" if bad else "the pattern has no letters",
        label="a letter a layer: M Mamba, * attention, - dense MLP, E experts",
        help="where stages are cut stands in layout.pipeline_layout" if "|" in bad else "",
        fix=f'{place.path}: "{text.replace("|", "")}"' if bad == "|" else "",
    )


def _version(place: ErrorLocation, *, missing: bool) -> Finding:
    written = "is missing" if missing else f"is {_kind(place.value)}"
    return Finding(
        f"the version of the spec language {written}; this PARC reads version 1",
        help="every spec says which version of the language it is written in",
        fix="parc: 1",
    )
