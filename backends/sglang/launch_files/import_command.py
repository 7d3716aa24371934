"""Import of a ``python3 -m sglang.launch_server`` command: model, layout and job.

Source of the flags: SGLang 0.5.23, python/sglang/srt/server_args.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from parc.backends.sglang.arguments import PACKAGE, planned_flags
from parc.backends.sglang.environment import PARTITION
from parc.backends.sglang.extra_arguments import OLD_SWITCH, long_flag_name
from parc.backends.sglang.launch_files.import_features import read_features
from parc.backends.sglang.launch_files.import_rest import OF_HOSTS, read_formats
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
    report_other_servers,
    server_starts,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.flags import (
    LaunchFlag,
    load_import_table,
    precedes_command,
    set_spec_field,
    take_flags,
    whole_number,
)
from parc.compiler.tools.importers.formats import BackendImporters, FrameworkSettings, LaunchLines
from parc.compiler.tools.importers.open_fields import set_defaults
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

TABLE = load_import_table(PACKAGE)
TP, DP, OLD_DP = "--tp-size", "--attn-dp-size", "--dp-size"
PER_ENGINE = ("job.max_num_seqs", "job.max_num_batched_tokens", "layout.tp")
"""Fields with values per data-parallel rank, whose flags contain the sum over all such ranks."""
WITH_SUFFIX = ("--context-length", "--chunked-prefill-size", "--max-running-requests")
"""Flags whose values may have one of the suffixes of ``_FACTORS``, as in 32k."""
SERVER = "sglang.launch_server"
SIGNS = ("--tp-size", "--tp", "--tensor-parallel-size", "--mem-fraction-static", "--attn-dp-size")
"""Flags of an inference server: all flags of a statement with one of them belong to the server."""
LAYOUT_DEFAULTS: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "ep": "off", "replicas": 1}
"""``layout`` field -> SGLang's value if the command does not have the flag."""
SUBJECTS = {"layout.ep": r"--enable-deepep-moe|--expert-parallel(?!-size)\S*"}
"""Spec field -> flags without a row in the import table that can set it."""
_SERVER_FLAGS = ServerFlags(
    "SGLang", TABLE.rows, rows_of_known_flags(PACKAGE), SUBJECTS, (SERVER, "serve")
)
SETTING_DEFAULTS = {
    **{TP: "1", "--pp-size": "1", DP: "1", "--ep-size": "1", "--page-size": "1"},
    **{"--dtype": "auto", "--kv-cache-dtype": "auto", "--port": "30000", "--host": "127.0.0.1"},
}
"""Flag -> value that SGLang uses without the flag."""
_ENGINES = engines_line("SGLang")
_FACTORS = {"k": 10**3, "m": 10**6, "K": 2**10, "M": 2**20, "": 1}
"""Suffix of a number -> factor."""


def starts_sglang(words: list[Word]) -> bool:
    """Return True if ``words`` start SGLang's server."""
    return bool(server_starts(words, find_server))


def find_server(statement: list[Word]) -> Word | None:
    """Return the word of a statement that names SGLang's server; None if it starts none."""
    for word, after in pairwise([*statement, *statement[-1:]]):
        program = word.text.rpartition("/")[2] == "sglang" and after.text == "serve"
        if (word.text == SERVER or program) and not is_other_action(statement):
            return word
    return None


def read_sglang_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the part of a spec that a file with a command of SGLang describes.

    Arguments that have no spec field are reported (I04), and so is a file without such a command
    (I02).
    """
    command = EngineCommand(
        "SGLang",
        "python3 -m sglang.launch_server --model-path MODEL --tp 8",
        starts_sglang,
        read_words,
        find_server,
        PARTITION,
    )
    return read_engine_command(text, name, sink, command)


def server_flags(words: list[Word], text: str) -> list[list[LaunchFlag]]:
    """Return the flags of each server in the script ``text``, under the names of ``flags.yaml``.

    ``words`` are the words of the script.
    """
    is_own = _ENGINES.search(text) is not None
    # The commands of PARC's script differ only in few flags.
    own = ("--port", "--dist-init-addr", "--nnodes") if is_own else ()
    signs = (*TABLE.rows, *SIGNS, SERVER, "serve", *own)
    starts = {one.statement: one for one in server_starts(words, find_server)}
    return [
        named_flags(flag for flag in flags if not precedes_command(flag, starts))
        for flags in flags_of_servers(words, text, find_server, signs, is_own)
    ]


def named_flags(flags: Iterable[LaunchFlag]) -> list[LaunchFlag]:
    """Return the flags of one server under their first names, without its old switches."""
    found = [_normalized_flag(flag) for flag in flags if flag.name.startswith("--")]
    old = any(flag.name == OLD_SWITCH for flag in found)
    return [
        replace(flag, name=DP) if old and flag.name == OLD_DP else flag
        for flag in found
        if flag.name != OLD_SWITCH
    ]


def _normalized_flag(flag: LaunchFlag) -> LaunchFlag:
    """Return the flag with its first name and with plain numbers: ``32k`` becomes ``32000``."""
    flag = replace(flag, name=long_flag_name(flag.name))
    if flag.name in WITH_SUFFIX and flag.values:
        match = re.fullmatch(r"([0-9]{1,12})([kmKM])", flag.values[0].text)
        if match is not None:
            number = int(match[1]) * _FACTORS[match[2]]
            first = replace(flag.values[0], text=str(number))
            return replace(flag, values=(first, *flag.values[1:]))
    return flag


def read_words(words: list[Word], reading: Reading) -> None:
    """Store the model, flags and environment of an SGLang command in ``reading``."""
    if not _ENGINES.search(reading.text) and not starts_sglang(words):
        return
    servers = server_flags(words, reading.text)
    flags = servers[0] if servers else []
    report_other_servers(servers, {"--port", *OF_HOSTS}, reading)
    for word in (*(flag.word for flag in flags), *(one for one in words if one.text == OLD_SWITCH)):
        reading.account(word.span)
    replicas = next((flag for flag in flags if flag.name == OLD_DP), None)
    rest = take_flags([flag for flag in flags if flag is not replicas], TABLE.rows, reading)
    if replicas is not None and replicas.values and whole_number(replicas.values[0].text):
        # Without attention data parallelism, --dp-size starts copies of the engine.
        number = whole_number(replicas.values[0].text)
        set_spec_field(reading, "layout.replicas", number, replicas)
    check_block_tokens(flags, "--page-size", reading)
    opened = open_fields_of_server(flags, words, _SERVER_FLAGS, reading)
    rest = [flag for flag in rest if flag.name not in TABLE.implied or flag.name == "--host"]
    read_catalog_model(reading)
    _divide_by_data_parallel_ranks(flags, reading)
    reading.spec.setdefault("layout", {})
    read_replicas("SGLang", reading)
    _pin_defaults(opened, reading)
    read_stage_layers(PARTITION, reading)
    rest = read_features(read_formats(rest, reading), reading)
    take_extra_arguments(rest, PACKAGE, planned_flags(), reading)
    finish_service(reading)
    reading.spec["emit"] = ["sglang", "rankmap"]


def _divide_by_data_parallel_ranks(flags: Iterable[LaunchFlag], reading: Reading) -> None:
    """Divide the values that SGLang counts for all data-parallel ranks by their number.

    A value that is not divisible is reported (I04) and left out.
    """
    dp = reading.spec.get("layout", {}).get("dp", 1)
    by_field = {TABLE.rows[flag.name].path: flag for flag in flags if flag.name in TABLE.rows}
    for path in PER_ENGINE if isinstance(dp, int) and dp > 1 else ():
        section, _, field = path.partition(".")
        value = reading.spec.get(section, {}).get(field)
        if value is None:
            continue
        if value % dp:
            del reading.spec[section][field]
            text = f"{by_field[path].name} {value}"
            reading.leave_out(text, by_field[path].word.span, f"it is not divisible by {dp}")
        else:
            reading.spec[section][field] = value // dp


def _pin_defaults(unsure: Collection[str], reading: Reading) -> None:
    """Set the ``layout`` fields whose flags are absent to SGLang's defaults.

    ``unsure`` contains the paths of fields whose values are unknown.
    """
    layout = reading.spec["layout"]
    set_defaults(layout, "layout", LAYOUT_DEFAULTS, unsure)
    # All-to-all backends use all ranks of a stage (arg_groups/overrides.py, _a2a_ep_size).
    if layout.get("all2all", "allgather_reducescatter") != "allgather_reducescatter":
        layout["ep"] = "on"


def read_settings(text: str, name: str) -> dict[str, str]:
    """Return the values of the flags in a command of SGLang, by name.

    The key ``MODEL`` contains the checkpoint. The result is empty if the script does not start
    SGLang.
    """
    words = shell_words(text, name)
    if not starts_sglang(words):
        return {}
    flags = next(iter(server_flags(words, text)), [])
    found = {flag.name: flag.value for flag in flags}
    checkpoint = found.pop("--model-path", "")
    own = {flag: value for flag, value in found.items() if flag not in OF_HOSTS}
    return own | ({"MODEL": checkpoint} if checkpoint else {})


def _confirms_sglang(text: str) -> bool:
    """Return True if a file starts SGLang's server or contains only arguments."""
    words = shell_words(text, "")
    return starts_sglang(words) or contains_only_arguments(words)


IMPORTERS = BackendImporters(
    {
        "sglang-args": FileFormat(
            read_sglang_args,
            "command of SGLang, or a script with it",
            (r"\bsglang\.launch_server\b", r"\bsglang[ \t]+serve\b"),
            confirms=_confirms_sglang,
        )
    },
    LaunchLines(starts_sglang, read_words),
    FrameworkSettings("sglang", read_settings, SETTING_DEFAULTS),
)
