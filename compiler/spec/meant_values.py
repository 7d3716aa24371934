"""Values that a user probably meant: other forms of numbers, wrapped values, lists of hosts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.spec.annotations import ErrorLocation, model_of, plain_types

_ROUNDED = re.compile(r"([0-9]{1,9}) ?([kKM])i?")
"""Number with a suffix that stands for a power of 1000 or of 1024, such as 8k."""
_COUNTED = re.compile(r"([0-9][0-9_,.]{0,14}[kKMGT]?) ?([A-Za-z]{3,12})")
"""Number with the word for what it counts, such as ``4 hosts`` or ``4M tokens``."""
_COUNTED_WORDS = {
    **{"nodes": ("hosts",), "sequence_length": ("tokens",), "concurrency": ("requests",)},
    **{"input_tokens": ("tokens",), "output_tokens": ("tokens",), "gpus_per_node": ("gpus",)},
    **dict.fromkeys(("global_batch", "micro_batch"), ("sequences", "samples")),
}
"""Field -> words for what it counts, beside its own name."""
_EXPONENTS = {"k": 1, "K": 1, "M": 2}
_RACK = re.compile(r"cluster\.racks\[(\d+)\]")
_HOST_NAMES = re.compile(r"[A-Za-z][\w.-]*[\d\[]\S*$")
"""Host names, which have a number: n01 or n[01-04], but neither five, 5 nor ``2 hosts``."""
_MAX_TEXT = 60
"""Largest length of a suggested value in characters."""


def wrap_in_mapping(location: ErrorLocation) -> str:
    """Return a fix that puts a text into the mapping that the field accepts; empty without one.

    For example, ``global_batch: 4M`` and ``4M tokens`` become ``global_batch: {tokens: 4M}``.
    Exactly one key of the mapping must accept the value, or the text must name the key.
    """
    from pydantic import TypeAdapter, ValidationError

    model, value = model_of(location.annotation), location.value
    if model is None or not isinstance(value, str) or len(value) > _MAX_TEXT:
        return ""
    counted = _COUNTED.fullmatch(value)
    if counted and counted[2] in model.model_fields:
        return f"{location.path}: {{{counted[2]}: {counted[1]}}}"
    accepting = []
    for name, info in model.model_fields.items():
        try:
            TypeAdapter(info.rebuild_annotation()).validate_python(value, strict=True)
        except ValidationError:
            continue
        accepting.append(name)
    return f"{location.path}: {{{accepting[0]}: {value}}}" if len(accepting) == 1 else ""


def without_counted_word(path: str, text: str) -> str:
    """Return ``text`` without a word for what the field at ``path`` counts, as in ``4 hosts``."""
    found = _COUNTED.fullmatch(text.strip())
    if found is None:
        return text
    field = path.rpartition(".")[2]
    word = found[2].lower().removesuffix("s")
    words = {one.removesuffix("s") for one in (field, *_COUNTED_WORDS.get(field, ()))}
    return found[1] if word in words else text


def explain_suffix(location: ErrorLocation) -> str:
    """Return the numbers that a text such as ``8k`` can stand for; empty for any other value.

    PARC does not choose one, because 8k may be 8,000 or 8,192.
    """
    found = _ROUNDED.fullmatch(str(location.value).strip())
    if found is None or int not in plain_types(location.annotation):
        return ""
    number, exponent = int(found[1]), _EXPONENTS[found[2]]
    decimal, binary = number * 1000**exponent, number * 1024**exponent
    return f"write the number without a suffix: {decimal} or {binary}"


def suggest_racks(value: Any) -> str:
    """Return the value of ``cluster.racks`` for host names; empty if ``value`` has no host names.

    ``value`` is a text such as ``n[01-04]`` or a list of texts.
    """
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and _HOST_NAMES.match(name) for name in names):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return f"[{{name: all, nodes: {text}}}]" if len(text) <= _MAX_TEXT else ""


def suggest_other_form(location: ErrorLocation) -> str:
    """Return the value of a field in the form that the spec uses; empty if none is likely.

    Examples: racks as a mapping of names to hosts, or as lists of hosts; variables as texts such
    as ``NAME=VALUE``; arguments in one text.
    """
    path, value = location.path, location.value
    if path == "cluster.racks" and isinstance(value, dict):
        texts = [_rack_text(name, hosts) for name, hosts in value.items()]
        return f"[{', '.join(texts)}]" if texts and all(texts) else ""
    if (entry := _RACK.fullmatch(path)) is not None:
        return _rack_text(f"rack{int(entry[1]) + 1}", value)
    if path == "launch.env" and isinstance(value, list):
        pairs = [str(one).partition("=") for one in value]
        texts = [f"{name}: {json.dumps(text)}" for name, _, text in pairs]
        return f"{{{', '.join(texts)}}}" if all(sign for _, sign, _ in pairs) else ""
    if path == "launch.args" and isinstance(value, str) and value.startswith("-"):
        with suppress(ValueError):  # an open quotation mark
            return json.dumps(shlex.split(value))
    return ""


def _rack_text(name: object, hosts: Any) -> str:
    if not isinstance(name, str) or not isinstance(hosts, str | list):
        return ""
    return f"{{name: {name}, nodes: {json.dumps(hosts, ensure_ascii=False)}}}"


def explain_gpu_count(value: Any, gpus_per_host: Sequence[int] = (8, 4)) -> str:
    """Return how to state the number of GPUs ``value`` as a number of hosts."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return "cluster.nodes is a number of hosts"
    fitting = [size for size in gpus_per_host if value % size == 0]
    shown = " or ".join(f"{format_count(value // size, 'host')} of {size}" for size in fitting)
    verb = "is" if value == 1 else "are"
    counted = (
        f"{format_count(value, 'GPU')} {verb} {shown}"
        if shown
        else "cluster.node.gpus_per_node sets their GPUs"
    )
    return f"cluster.nodes is a number of hosts; {counted}"
