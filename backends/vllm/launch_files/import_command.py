"""Import of a ``vllm serve MODEL --flags`` command: model, layout and job.

Source of the flags: vllm-project/vllm, vllm/engine/arg_utils.py. Flags may contain underscores
instead of dashes.
"""

from __future__ import annotations

from dataclasses import replace

from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.extra_arguments import long_flag_name
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    Flag,
    FlagField,
    import_table,
    report_unknown,
    set_spec_field,
    take_flags,
    whole_number,
    written_flags,
)
from parc.compiler.tools.importers.formats import Importers, LaunchLines
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reader_state import Reading
from parc.compiler.topology.readers.registry import Format


def _is_integer_field(row: FlagField, section: str) -> bool:
    """Return True if ``row`` sets an integer field in the spec section ``section``."""
    return row.kind == "int" and row.path.startswith(f"{section}.")


TABLE = import_table(PACKAGE)
DEGREES = {flag: row.path for flag, row in TABLE.rows.items() if _is_integer_field(row, "layout")}
LIMITS = {flag: row.path for flag, row in TABLE.rows.items() if _is_integer_field(row, "job")}
"""Flag -> spec field, for parallel sizes and limits, which are whole numbers."""
SPREAD = "--enable-expert-parallel"
SIGNS = (*TABLE.rows, "-tp", "-pp", "-dp", "-ep")
"""Words that show a launch of vLLM."""


def read_vllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read parallel sizes and limits of a serving job; report all other flags (I04)."""
    reading = Reading(text, name, sink)
    read_words(shell_words(text, name), reading)
    if "layout" not in reading.spec and "model" not in reading.spec and reading.sound:
        finding = Finding(
            "this file contains no vLLM command",
            help="expected, for example: vllm serve MODEL -tp 8",
        )
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Read the model and the flags of ``vllm serve`` from ``words`` into ``reading``."""
    flags = [
        replace(flag, name=long_flag_name(flag.name))
        for flag in written_flags(words, (*SIGNS, "serve"))
    ]
    # Such a length is reported, not imported, because the fields of a spec are numbers.
    symbolic = [flag for flag in flags if flag.name in LIMITS and _is_symbolic_length(flag)]
    unknown = [
        *symbolic,
        *take_flags([flag for flag in flags if flag not in symbolic], TABLE.rows, reading),
    ]
    _read_model(words, reading)
    if reading.spec:
        reading.spec["job"] = {"kind": "serve", **reading.spec.get("job", {})}
    report_unknown(
        unknown,
        "Set the corresponding field of the serving job, if there is one.",
        reading,
    )


def _is_symbolic_length(flag: Flag) -> bool:
    """Return True if the flag sets a length that only vLLM accepts, such as ``32k`` or ``auto``."""
    value = flag.values[0] if flag.values else None
    return value is not None and not value.dynamic and whole_number(value.text) is None


def _read_model(words: list[Word], reading: Reading) -> None:
    """Read the model of ``vllm serve MODEL`` into ``reading``."""
    for word, following, after in zip(words, words[1:], words[2:], strict=False):
        if word.text.endswith("vllm") and following.text == "serve" and not after.is_flag:
            if not after.dynamic:
                set_spec_field(reading, "model", after.text, Flag("serve", after, ()))
            return


def starts_vllm(words: list[Word]) -> bool:
    """Return True if ``words`` contain the word ``vllm`` or one of its flags."""
    return any(word.text == "vllm" or word.text.partition("=")[0] in SIGNS for word in words)


IMPORTERS = Importers(
    {
        "vllm-args": Format(
            read_vllm_args,
            "command of vLLM, or a script with it",
            (r"\bvllm[ \t]+serve\b", r"--tensor-parallel-size\b"),
        )
    },
    LaunchLines(starts_vllm, read_words),
)
