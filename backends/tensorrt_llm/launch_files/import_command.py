"""Import of a ``trtllm-serve MODEL`` command: model, layout and job.

Source of the flags: TensorRT-LLM 1.0 to 1.2, tensorrt_llm/commands/serve.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
    take_extra_arguments,
)
from parc.backends.tensorrt_llm.arguments import CONFIG_FLAG, NAME, PACKAGE, planned_flags
from parc.backends.tensorrt_llm.extra_arguments import canonical_flag_name
from parc.backends.tensorrt_llm.launch_files.import_config import CONFIG_FORMAT
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.flags import (
    LaunchFlag,
    flags_in_statements,
    load_import_table,
    set_spec_field,
    split_flags,
    take_flags,
)
from parc.compiler.tools.importers.formats import BackendImporters, FrameworkSettings, LaunchLines
from parc.compiler.tools.importers.open_fields import set_defaults
from parc.compiler.tools.importers.shell_words import Word, shell_words, statements
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

TABLE = load_import_table(PACKAGE)
SERVER, START = "trtllm-serve", "start.sh"
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
    return bool(server_starts(words))


def server_starts(words: Iterable[Word]) -> dict[int, Word]:
    """Return number of each statement that starts a server -> word that names the server."""
    return {word.statement: word for word in words if _is_server(word)}


def _is_server(word: Word) -> bool:
    return word.text.rpartition("/")[2] == SERVER


def read_trtllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the part of a spec that a file with a ``trtllm-serve`` command describes.

    Arguments that have no spec field are reported (I04), and so is a file without such a command
    (I02).
    """
    command = EngineCommand(
        "TensorRT-LLM", "trtllm-serve MODEL --tp_size 8", starts_tensorrt_llm, read_words
    )
    return read_engine_command(text, name, sink, command)


def server_flags(words: list[Word], from_parc: bool) -> list[LaunchFlag]:
    """Return the flags of the server under the names of ``flags.yaml``.

    Args:
        words: words of a script.
        from_parc: True if PARC emitted the script, whose commands differ only in few flags.
    """
    signs = (*TABLE.rows, CONFIG_FLAG, *(("--port", "--nnodes") if from_parc else ()))
    found: list[LaunchFlag] = []
    for statement in statements(words):
        # launchers such as srun precede the server on the same line
        start = next((at for at, word in enumerate(statement) if _is_server(word)), None)
        whole = start is None
        found += flags_in_statements(statement, signs) if whole else split_flags(statement[start:])
    found = [replace(flag, name=canonical_flag_name(flag.name)) for flag in found]
    return [flag for flag in found if flag.name.startswith("--")]


def _served_model(words: list[Word]) -> Iterator[Word]:
    """Yield the argument MODEL of each command, which may follow flags."""
    rows = rows_of_known_flags(PACKAGE)
    for statement in statements(words):
        start = next(
            (
                at
                for at, word in enumerate(statement)
                if _is_server(word) or word.text.endswith(START)
            ),
            None,
        )
        rest = statement[start + 1 :] if start is not None else []
        at = 1 if rest and rest[0].text == "serve" else 0
        while at < len(rest) and rest[at].is_flag:
            takes = rows.get(rest[at].text, {}).get("takes", 1)
            at += 1 + (0 if "=" in rest[at].text else int(takes))
        yield from rest[at : at + 1]


def read_words(words: list[Word], reading: Reading) -> None:
    """Store the model and flags of a TensorRT-LLM command in ``reading``."""
    engines = _ENGINES.search(reading.text)
    if engines is None and not starts_tensorrt_llm(words):
        return
    flags = server_flags(words, engines is not None)
    for flag in flags:
        reading.account(flag.word.span)
    rest = take_flags(flags, TABLE.rows, reading)
    opened = open_fields_of_server(flags, words, _SERVER_FLAGS, reading)
    kept = [flag for flag in rest if not _read_flag(flag, reading, engines is not None)]
    take_extra_arguments(kept, rows_of_known_flags(PACKAGE), planned_flags(), reading)
    model = next(_served_model(words), None)
    if model is not None and not model.dynamic:
        reading.spec.setdefault("job", {})["checkpoint"] = model.text
        reading.account(model.span)
    read_catalog_model(reading)
    layout = reading.spec.setdefault("layout", {})
    if engines is not None:
        reading.notes.append("the settings in config.yaml are not read: import it by itself")
    if engines is not None and engines[1] != "one":
        layout["replicas"] = int(engines[1])
    set_defaults(layout, "layout", LAYOUT_DEFAULTS, opened)
    finish_service(reading, NAME)


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
    flags = server_flags(words, engines is not None)
    found = {flag.name: flag.value for flag in flags}
    own = {flag: value for flag, value in found.items() if flag not in OF_HOSTS}
    model = next(_served_model(words), None)
    return own | ({"MODEL": model.text} if model is not None else {})


IMPORTERS = BackendImporters(
    {
        "trtllm-args": FileFormat(
            read_trtllm_args,
            "command of TensorRT-LLM (trtllm-serve), or a script with it",
            (r"\btrtllm-serve\b",),
        ),
        "trtllm-config": CONFIG_FORMAT,
    },
    LaunchLines(starts_tensorrt_llm, read_words),
    FrameworkSettings(NAME, read_settings, SETTING_DEFAULTS),
)
