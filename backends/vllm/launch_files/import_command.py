"""Import of a ``vllm serve MODEL --flags`` command: model, layout and job.

Source of the flags: vllm-project/vllm, vllm/engine/arg_utils.py. Flags may contain underscores
instead of dashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.import_open_fields import ServerFlags, open_fields_of_server
from parc.backends.shared.serving.import_service import (
    EngineCommand,
    check_block_tokens,
    engines_line,
    finish_service,
    read_catalog_model,
    read_engine_command,
    read_replicas,
    read_stage_layers,
    take_extra_arguments,
)
from parc.backends.shared.serving.server_commands import (
    contains_only_arguments,
    flags_of_servers,
    is_other_action,
    positional_argument,
    report_other_servers,
)
from parc.backends.vllm.arguments import PACKAGE, planned_flags
from parc.backends.vllm.environment import PARTITION
from parc.backends.vllm.extra_arguments import long_flag_name
from parc.backends.vllm.launch_files.import_features import read_features
from parc.backends.vllm.launch_files.import_rest import (
    LAYOUT_DEFAULTS,
    OF_HOSTS,
    SUBJECTS,
    parse_length,
    read_formats,
    row_of_flag,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.flags import (
    FlagField,
    LaunchFlag,
    load_import_table,
    set_spec_field,
    take_flags,
    whole_number,
)
from parc.compiler.tools.importers.formats import BackendImporters, FrameworkSettings, LaunchLines
from parc.compiler.tools.importers.open_fields import set_defaults
from parc.compiler.tools.importers.shell_words import Word, shell_words, statements
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat


def _is_integer_field(row: FlagField, section: str) -> bool:
    """Return True if a table row sets an integer field in the spec section ``section``."""
    return row.kind == "int" and row.path.startswith(f"{section}.")


TABLE = load_import_table(PACKAGE)
DEGREES = {flag: row.path for flag, row in TABLE.rows.items() if _is_integer_field(row, "layout")}
LIMITS = {flag: row.path for flag, row in TABLE.rows.items() if _is_integer_field(row, "job")}
"""Flag -> spec field, for parallel sizes and limits, which are whole numbers."""
SPREAD = "--enable-expert-parallel"
SIGNS = (*TABLE.rows, "-tp", "-pp", "-dp", "-ep")
"""Words that show a launch of vLLM."""


OF_ONE_HOST = ("--port", "--nnodes", "--headless", "--data-parallel-rank")
"""Flags in the start commands of PARC's own script, which contain no other flags."""


def read_vllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the part of a spec that a file with a ``vllm serve`` command describes.

    Arguments that have no spec field are reported (I04), and so is a file without such a command
    (I02).
    """
    command = EngineCommand(
        "vLLM", "vllm serve MODEL -tp 8", starts_vllm, read_words, find_server, PARTITION
    )
    return read_engine_command(text, name, sink, command)


def read_words(words: list[Word], reading: Reading) -> None:
    """Store the model, flags and environment of a ``vllm serve`` command in ``reading``.

    ``words`` are the words of the script that contains the command.
    """
    servers = _read_servers(words, reading)
    if not servers and not any(map(find_server, statements(words))):
        return
    flags = servers[0] if servers else []
    report_other_servers(servers, {"--port", *OF_HOSTS}, reading)
    for flag in flags:
        reading.account(flag.word.span)
    # Such a length is reported, not imported, because the fields of a spec are numbers.
    symbolic = [flag for flag in flags if flag.name in LIMITS and _is_symbolic_length(flag)]
    unknown = [
        *symbolic,
        *take_flags([flag for flag in flags if flag not in symbolic], TABLE.rows, reading),
    ]
    check_block_tokens(flags, "--block-size", reading)
    opened = open_fields_of_server(flags, words, _SERVER_FLAGS, reading)
    _read_checkpoint(words, reading)
    rest = read_features(read_formats(unknown, reading), reading)
    take_extra_arguments(rest, PACKAGE, planned_flags(), reading, row_of_flag)
    layout = reading.spec.setdefault("layout", {})
    read_replicas("vLLM", reading)
    set_defaults(layout, "layout", LAYOUT_DEFAULTS, opened)
    read_stage_layers(PARTITION, reading)
    if not any(flag.name == "--dtype" for flag in flags):
        reading.notes.append("the default --dtype auto: PARC writes the type of job.precision")
    finish_service(reading)


def _read_servers(words: list[Word], reading: Reading) -> list[list[LaunchFlag]]:
    """Return the flags of each server, with long names."""
    is_own = engines_line("vLLM").search(reading.text) is not None
    signs = (*SIGNS, "serve", *(OF_ONE_HOST if is_own else ()))
    servers = flags_of_servers(words, reading.text, find_server, signs, is_own)
    return [
        [flag for one in flags if _is_vllm_flag(flag := _normalized_flag(one))] for flags in servers
    ]


def _is_vllm_flag(flag: LaunchFlag) -> bool:
    """Return True for long flags, which belong to vLLM.

    Short flags such as ``-u`` belong to other programs, because the short flags of vLLM have
    already been replaced by long ones.
    """
    return flag.name.startswith("--")


def _normalized_flag(flag: LaunchFlag) -> LaunchFlag:
    """Return the flag with its long name and with plain numbers: ``32k`` becomes ``32000``."""
    flag = replace(flag, name=long_flag_name(flag.name))
    if flag.name in LIMITS and flag.values:
        length = parse_length(flag.values[0].text)
        if length is not None:
            first = replace(flag.values[0], text=str(length))
            return replace(flag, values=(first, *flag.values[1:]))
    return flag


def _is_symbolic_length(flag: LaunchFlag) -> bool:
    """Return True if the value of the flag is a word that vLLM interprets, such as ``auto``.

    Return False for a value that is known only at run time.
    """
    value = flag.values[0] if flag.values else None
    return value is not None and not value.dynamic and whole_number(value.text) is None


def _read_checkpoint(words: list[Word], reading: Reading) -> None:
    """Store the served checkpoint in ``reading``, and the model if the catalog contains it."""
    reading.spec.pop("checkpoint", None)
    model = served_model(words)
    if model is not None:
        _set_checkpoint(model, reading)
    read_catalog_model(reading)


def starts_server(word: Word, after: Word) -> bool:
    """Return True if two consecutive words of a statement start vLLM's server.

    Examples are ``vllm serve``, the module of the API server, and the name of vLLM's container
    image followed by arguments of ``vllm serve``.
    """
    named = word.text in _MAIN_MODULES or word.text.rpartition("/")[2] == "vllm"
    image = _IMAGE.fullmatch(word.text) is not None and _IMAGE.fullmatch(after.text) is None
    module = _API_SERVER.fullmatch(after.text) is not None
    return word.statement == after.statement and (
        (named and after.text == "serve") or image or module
    )


def find_server(statement: list[Word]) -> Word | None:
    """Return the word of a statement that names vLLM's server; None if it starts none."""
    for word, after in pairwise(statement):
        if starts_server(word, after) and not is_other_action(statement):
            return after if _API_SERVER.fullmatch(after.text) else word
    return None


def served_model(words: Iterable[Word]) -> Word | None:
    """Return the argument MODEL of the first server, which may follow flags; None if absent."""
    found = ((one, find_server(one)) for one in statements(words))
    statement, start = next((pair for pair in found if pair[1] is not None), ([], None))
    if start is None or _API_SERVER.fullmatch(start.text):
        return None
    rows = rows_of_known_flags(PACKAGE)
    at = next(index for index, word in enumerate(statement) if word is start) + 1
    return positional_argument(statement[at + (statement[at].text == "serve") :], rows)


_IMAGE = re.compile(r"(?:\S+/)?vllm/vllm-openai[\w-]*(?:[:@]\S+)?")
_API_SERVER = re.compile(
    r"vllm\.entrypoints\.(?:openai\.)?api_server"
    r"|(?:\S*/)?vllm/entrypoints/(?:openai/)?api_server\.py"
)
_MAIN_MODULES = ("vllm.entrypoints.cli.main", "vllm.scripts")
_SERVER_FLAGS = ServerFlags(
    "vLLM",
    TABLE.rows,
    rows_of_known_flags(PACKAGE),
    SUBJECTS,
    ("serve", "vllm.entrypoints.openai.api_server"),
)


def _set_checkpoint(word: Word, reading: Reading) -> None:
    if word.dynamic:
        finding = f"vllm serve {word.text}"
        reading.leave_out(finding, word.span, "set model and job.checkpoint")
    else:
        set_spec_field(reading, "job.checkpoint", word.text, LaunchFlag("serve", word, ()))


def read_settings(text: str, name: str) -> dict[str, str]:
    """Return the values of the flags in a ``vllm serve`` command, by name.

    The key ``MODEL`` contains the checkpoint. The result is empty if the script does not start
    vLLM.
    """
    words = shell_words(text, name)
    if not starts_vllm(words):
        return {}
    reading = Reading(text, name, Sink())
    _read_checkpoint(words, reading)
    flags = next(iter(_read_servers(words, reading)), [])
    found = {flag.name: flag.value for flag in flags if flag.name not in OF_HOSTS}
    checkpoint = reading.spec.get("job", {}).get("checkpoint")
    return found | ({"MODEL": checkpoint} if checkpoint else {})


SETTING_DEFAULTS = {
    **dict.fromkeys(DEGREES, "1"),
    **{"--dtype": "auto", "--kv-cache-dtype": "auto", "--gpu-memory-utilization": "0.92"},
    "--port": "8000",
}
"""Flag -> value that vLLM uses without the flag."""


def starts_vllm(words: list[Word]) -> bool:
    """Return True if ``words`` start vLLM's server or are only arguments of the server."""
    found = statements(words)
    return any(map(find_server, found)) or (
        contains_only_arguments(words) and any(map(_has_vllm_flag, found))
    )


def _confirms_vllm(text: str) -> bool:
    """Return True if a file starts vLLM's server or contains only arguments."""
    words = shell_words(text, "")
    return any(map(find_server, statements(words))) or contains_only_arguments(words)


def _has_vllm_flag(statement: list[Word]) -> bool:
    """Return True if the statement contains flags of vLLM.

    Other programs have flags of the same name, so the statement must name vLLM, be an assignment,
    or start with a flag.
    """
    own = statement[0].is_flag or statement[0].text.endswith("=")
    named = any(re.match(r"(?:\S*/)?vllm\b(?!-)", word.text) for word in statement)
    return (own or named) and any(word.text.partition("=")[0] in SIGNS for word in statement)


IMPORTERS = BackendImporters(
    {
        "vllm-args": FileFormat(
            read_vllm_args,
            "command of vLLM, or a script with it",
            (
                r"\bvllm[ \t]+serve\b",
                r"--tensor-parallel-size\b",
                r"\bvllm/vllm-openai\b",
                r"\bvllm[./]entrypoints[./](openai[./])?api_server\b",
            ),
            confirms=_confirms_vllm,
        )
    },
    LaunchLines(starts_vllm, read_words),
    FrameworkSettings("vllm", read_settings, SETTING_DEFAULTS),
)
