"""Import of a ``trtllm-serve MODEL`` command: model, layout and job.

Source of the flags: TensorRT-LLM 1.0 to 1.2, tensorrt_llm/commands/serve.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.import_open_fields import ServerFlags, open_fields_of_server
from parc.backends.shared.serving.import_service import (
    EngineCommand,
    engines_line,
    finish_service,
    read_catalog_model,
    read_engine_command,
    read_replicas,
    take_extra_arguments,
)
from parc.backends.shared.serving.server_commands import (
    contains_only_arguments,
    flags_of_servers,
    is_other_action,
    positional_argument,
    report_other_servers,
    server_starts,
)
from parc.backends.tensorrt_llm.arguments import CONFIG_FLAG, NAME, PACKAGE, planned_flags
from parc.backends.tensorrt_llm.extra_arguments import canonical_flag_name
from parc.backends.tensorrt_llm.launch_files.import_config import CONFIG_FORMAT
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.flags import (
    LaunchFlag,
    load_import_table,
    precedes_command,
    set_spec_field,
    take_flags,
)
from parc.compiler.tools.importers.formats import BackendImporters, FrameworkSettings, LaunchLines
from parc.compiler.tools.importers.open_fields import set_defaults
from parc.compiler.tools.importers.shell_words import Word, shell_words, statements
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

TABLE = load_import_table(PACKAGE)
SERVER, START = "trtllm-serve", "start.sh"
OWN_START = "${BASH_SOURCE[0]%serve.sh}start.sh"
"""Script ``start.sh`` as PARC's ``serve.sh`` names it."""
MEMORY = "--kv_cache_free_gpu_memory_fraction"
OF_HOSTS = frozenset(("--nnodes", "--node_rank", "--head", "--host", "--gpus_per_node"))
"""Flags about hosts, which PARC's script sets for each host."""
LAYOUT_DEFAULTS: dict[str, Any] = {"tp": 1, "pp": 1, "ep": "off", "replicas": 1}
"""``layout`` field -> value of TensorRT-LLM if the command does not have the flag."""
_SERVER_FLAGS = ServerFlags(
    "TensorRT-LLM", TABLE.rows, rows_of_known_flags(PACKAGE), {}, (SERVER, START)
)
SETTING_DEFAULTS = {
    **{"--tp_size": "1", "--pp_size": "1", "--port": "8000", "--host": "localhost"},
    **{"--backend": "pytorch", MEMORY: "0.9"},
}
"""Flag -> value that TensorRT-LLM uses without the flag."""
_ENGINES = engines_line("TensorRT-LLM")


def starts_tensorrt_llm(words: list[Word]) -> bool:
    """Return True if ``words`` start a server of TensorRT-LLM."""
    return bool(server_starts(words, find_server))


def find_server(statement: list[Word]) -> Word | None:
    """Return the word of a statement that names the server; None if it starts none."""
    if is_other_action(statement):
        return None
    return next((word for word in statement if _names_server(word.text)), None)


def _names_server(word: str) -> bool:
    """Return True if ``word`` is the program, or PARC's script that starts it."""
    return word.rpartition("/")[2] == SERVER or word == OWN_START


def read_trtllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the part of a spec that a file with a ``trtllm-serve`` command describes.

    Arguments that have no spec field are reported (I04), and so is a file without such a command
    (I02).
    """
    command = EngineCommand(
        "TensorRT-LLM",
        "trtllm-serve MODEL --tp_size 8",
        starts_tensorrt_llm,
        read_words,
        find_server,
    )
    return read_engine_command(text, name, sink, command)


def server_flags(words: list[Word], text: str) -> list[list[LaunchFlag]]:
    """Return the flags of each server in the script ``text``, under the names of ``flags.yaml``.

    ``words`` are the words of the script.
    """
    is_own = _ENGINES.search(text) is not None
    # The commands of PARC's script differ only in few flags.
    signs = (*TABLE.rows, CONFIG_FLAG, *(("--port", "--nnodes") if is_own else ()))
    starts = {one.statement: one for one in server_starts(words, find_server)}
    servers = [
        [replace(flag, name=canonical_flag_name(flag.name)) for flag in flags]
        for flags in flags_of_servers(words, text, find_server, signs, is_own)
    ]
    # launchers such as srun precede the server on the same line
    return [
        [one for one in flags if one.name.startswith("--") and not precedes_command(one, starts)]
        for flags in servers
    ]


def served_model(words: Iterable[Word]) -> Word | None:
    """Return the argument MODEL of the first server, which may follow flags; None if absent."""
    rows = rows_of_known_flags(PACKAGE)
    for statement in statements(words):
        start = find_server(statement) or next(
            (word for word in statement if word.text.endswith(START)), None
        )
        if start is not None:
            at = next(index for index, word in enumerate(statement) if word is start) + 1
            serves = [word.text for word in statement[at : at + 1]] == ["serve"]
            return positional_argument(statement[at + serves :], rows)
    return None


def read_words(words: list[Word], reading: Reading) -> None:
    """Store the model and flags of a TensorRT-LLM command in ``reading``."""
    engines = _ENGINES.search(reading.text)
    if engines is None and not starts_tensorrt_llm(words):
        return
    servers = server_flags(words, reading.text)
    flags = servers[0] if servers else []
    report_other_servers(servers, {"--port", *OF_HOSTS}, reading)
    for flag in flags:
        reading.account(flag.word.span)
    rest = take_flags(flags, TABLE.rows, reading)
    opened = open_fields_of_server(flags, words, _SERVER_FLAGS, reading)
    kept = [flag for flag in rest if not _read_flag(flag, reading, engines is not None)]
    take_extra_arguments(kept, PACKAGE, planned_flags(), reading)
    model = served_model(words)
    if model is not None and model.dynamic:
        reading.leave_out(f"{SERVER} {model.text}", model.span, "set model and job.checkpoint")
    elif model is not None:
        reading.spec.setdefault("job", {})["checkpoint"] = model.text
        reading.account(model.span)
    read_catalog_model(reading)
    layout = reading.spec.setdefault("layout", {})
    if engines is not None:
        reading.notes.append("the settings in config.yaml are not read: import it by itself")
    read_replicas("TensorRT-LLM", reading)
    set_defaults(layout, "layout", LAYOUT_DEFAULTS, opened)
    finish_service(reading)
    reading.spec["emit"] = [NAME, "rankmap"]


def _read_flag(flag: LaunchFlag, reading: Reading, from_parc: bool) -> bool:
    """Set the spec field of ``flag``; return False if no field can express the flag."""
    value = flag.value
    if flag.name in OF_HOSTS or (flag.name == "--backend" and value == "pytorch"):
        return True
    if flag.name == MEMORY and re.fullmatch(r"0?\.[0-9]{1,6}", value):
        set_spec_field(reading, "goals.memory_headroom", round(1 - float(value), 6), flag)
        return True
    if flag.name == CONFIG_FLAG:
        reading.notes.append(f"the settings in {value} are not read: import that file by itself")
        return True
    return flag.name == "--enable_chunked_prefill" or (from_parc and flag.name == "--port")


def read_settings(text: str, name: str) -> dict[str, str]:
    """Return the values of the flags in a command of TensorRT-LLM, by name.

    The key ``MODEL`` contains the checkpoint. The result is empty if the script does not start
    TensorRT-LLM.
    """
    words = shell_words(text, name)
    engines = _ENGINES.search(text)
    if engines is None and not starts_tensorrt_llm(words):
        return {}
    flags = next(iter(server_flags(words, text)), [])
    found = {flag.name: flag.value for flag in flags}
    own = {flag: value for flag, value in found.items() if flag not in OF_HOSTS}
    model = served_model(words)
    return own | ({"MODEL": model.text} if model is not None else {})


def _confirms_tensorrt_llm(text: str) -> bool:
    """Return True if a file starts a server of TensorRT-LLM or contains only arguments."""
    words = shell_words(text, "")
    return starts_tensorrt_llm(words) or contains_only_arguments(words)


IMPORTERS = BackendImporters(
    {
        "trtllm-args": FileFormat(
            read_trtllm_args,
            "command of TensorRT-LLM (trtllm-serve), or a script with it",
            (r"\btrtllm-serve\b",),
            confirms=_confirms_tensorrt_llm,
        ),
        "trtllm-config": CONFIG_FORMAT,
    },
    LaunchLines(starts_tensorrt_llm, read_words),
    FrameworkSettings(NAME, read_settings, SETTING_DEFAULTS),
)
