"""Import of a ``vllm serve MODEL --flags`` command: model, layout and job.

Source of the flags: vllm-project/vllm, vllm/engine/arg_utils.py. Flags may contain underscores
instead of dashes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from parc.backends.vllm.arguments import PACKAGE
from parc.backends.vllm.environment import PARTITION
from parc.backends.vllm.extra_arguments import long_flag_name
from parc.backends.vllm.launch_files.import_rest import (
    OF_HOSTS,
    is_own_script,
    parse_length,
    pin_defaults,
    read_formats,
    take_extra_arguments,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    Flag,
    FlagField,
    import_table,
    set_spec_field,
    take_flags,
    whole_number,
    written_flags,
)
from parc.compiler.tools.importers.formats import Importers, LaunchLines, Settings
from parc.compiler.tools.importers.script_commands import (
    read_environment,
    read_script,
    report_rest,
)
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.tools.lint.complete_facts import catalog_name
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


OF_ONE_HOST = ("--port", "--nnodes", "--headless", "--data-parallel-rank")
"""Flags in the start commands of PARC's own script, which contain no other flags."""


def read_vllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read a serving job from a ``vllm serve`` command; report arguments without a field (I04)."""
    reading = Reading(text, name, sink)
    words = shell_words(text, name)
    if is_own_script(reading):
        read_environment([word for word in words if word.text.startswith(PARTITION)], reading)
    elif starts_vllm(words):
        read_script(words, reading)
    read_words(words, reading)
    report_rest(words, reading)
    if "layout" not in reading.spec and reading.is_valid:
        finding = Finding(
            "this file contains no vLLM command",
            help="expected, for example: vllm serve MODEL -tp 8",
        )
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Read the model, the flags and the environment of ``vllm serve`` into ``reading``."""
    signs = (*SIGNS, "serve", *(OF_ONE_HOST if is_own_script(reading) else ()))
    flags = [_normal_flag(flag) for flag in written_flags(words, signs)]
    if not flags and not any(word.text == "serve" for word in words):
        return
    flags = [flag for flag in flags if _is_own_flag(flag)]
    for flag in flags:
        reading.account(flag.word.span)
    # Such a length is reported, not imported, because the fields of a spec are numbers.
    symbolic = [flag for flag in flags if flag.name in LIMITS and _is_symbolic_length(flag)]
    unknown = [
        *symbolic,
        *take_flags([flag for flag in flags if flag not in symbolic], TABLE.rows, reading),
    ]
    paths = {TABLE.rows[flag.name].path for flag in flags if flag.name in TABLE.rows}
    _read_checkpoint(words, reading)
    take_extra_arguments(read_formats(unknown, reading), reading)
    pin_defaults(reading, {path for path in paths if path not in reading.spans})
    reading.spec["job"] = {"kind": "serve", **reading.spec.get("job", {})}
    reading.notes.append("a serving job also needs job.traffic, which no launch file contains")


def _is_own_flag(flag: Flag) -> bool:
    """Return True for flags of vLLM, False for short flags of other programs, such as ``-u``."""
    return flag.name.startswith("--")


def _normal_flag(flag: Flag) -> Flag:
    """Return the flag with its long name, and with a length such as 32k as a number."""
    flag = replace(flag, name=long_flag_name(flag.name))
    if flag.name in LIMITS and flag.values:
        length = parse_length(flag.values[0].text)
        if length is not None:
            first = replace(flag.values[0], text=str(length))
            return replace(flag, values=(first, *flag.values[1:]))
    return flag


def _is_symbolic_length(flag: Flag) -> bool:
    """Return True if the flag sets a length that only vLLM accepts, such as ``auto``."""
    value = flag.values[0] if flag.values else None
    return value is not None and not value.dynamic and whole_number(value.text) is None


def _read_checkpoint(words: list[Word], reading: Reading) -> None:
    """Set the checkpoint that is served, and the model if the catalog has its name."""
    reading.spec.pop("checkpoint", None)
    for word, following, after in zip(words, words[1:], words[2:], strict=False):
        if word.text.rpartition("/")[2] == "vllm" and following.text == "serve":
            if not after.is_flag:
                _set_checkpoint(after, reading)
            break
    named = reading.spec.get("job", {}).get("checkpoint")
    if named is None:
        return
    model = catalog_name(named)
    if model is not None:
        reading.spec["model"] = model
    else:
        reading.notes.append(f"set model: the catalog has no entry for {named}")


def _set_checkpoint(word: Word, reading: Reading) -> None:
    if word.dynamic:
        finding = f"vllm serve {word.text}"
        reading.leave_out(finding, word.span, "set model and job.checkpoint")
    else:
        set_spec_field(reading, "job.checkpoint", word.text, Flag("serve", word, ()))


def read_settings(text: str, name: str) -> dict[str, str]:
    """Return the flags of the ``vllm serve`` command in ``text`` and its checkpoint, by name."""
    words = shell_words(text, name)
    if not starts_vllm(words):
        return {}
    reading = Reading(text, name, Sink())
    _read_checkpoint(words, reading)
    flags = [_normal_flag(flag) for flag in written_flags(words, (*SIGNS, "serve"))]
    found = {
        flag.name: flag.values[0].text if flag.values else ""
        for flag in flags
        if flag.name.startswith("--") and flag.name not in OF_HOSTS
    }
    checkpoint = reading.spec.get("job", {}).get("checkpoint")
    return found | ({"MODEL": checkpoint} if checkpoint else {})


SETTING_DEFAULTS = {
    **dict.fromkeys(DEGREES, "1"),
    **{"--dtype": "auto", "--kv-cache-dtype": "auto", "--gpu-memory-utilization": "0.92"},
    "--port": "8000",
}
"""Flag -> value that vLLM uses without the flag."""


def starts_vllm(words: list[Word]) -> bool:
    """Return True if ``words`` contain ``vllm serve`` or one of its flags."""
    texts = [word.text.rpartition("/")[2] for word in words]
    serves = ("vllm", "serve") in pairwise(texts)
    return serves or any(word.text.partition("=")[0] in SIGNS for word in words)


IMPORTERS = Importers(
    {
        "vllm-args": Format(
            read_vllm_args,
            "command of vLLM, or a script with it",
            (
                r"\bvllm[ \t]+serve\b",
                r"--tensor-parallel-size\b",
                r"\bvllm/vllm-openai\b",
                r"\bvllm\.entrypoints\.openai\.api_server\b",
            ),
        )
    },
    LaunchLines(starts_vllm, read_words),
    Settings("vllm", read_settings, SETTING_DEFAULTS),
)
