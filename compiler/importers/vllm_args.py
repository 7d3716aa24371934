"""vLLM: ``vllm serve MODEL --flags`` to model, layout and job.

Flags: vllm-project/vllm, vllm/engine/arg_utils.py. Flags with underscores are the same.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.importers.flags import Flag, Row, put, report_unknown, take_flags, written_flags
from parc.compiler.importers.shell_words import Word, shell_words
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reading import Reading

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
}
TABLE: dict[str, Row] = {
    "--tensor-parallel-size": Row("layout.tp"),
    "--pipeline-parallel-size": Row("layout.pp"),
    "--data-parallel-size": Row("layout.dp"),
    "--decode-context-parallel-size": Row("layout.cp"),
    "--model": Row("model", "text"),
    "--enable-expert-parallel": Row("experts.on", "set", True),
}
"""``experts`` is no part of a spec: expert parallelism of vLLM is tp x dp wide."""
SIGNS = (*TABLE, *_SHORT)


def read_vllm_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Layout pins of a serving job; every other flag is named."""
    reading = Reading(text, name, sink)
    read_words(shell_words(text, name), reading)
    if "layout" not in reading.spec and "model" not in reading.spec and reading.sound:
        finding = Finding("no command of vLLM in this file", help="vllm serve MODEL -tp 8")
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Take ``vllm serve`` and its flags."""
    flags = [_long(flag) for flag in written_flags(words, (*SIGNS, "serve"))]
    unknown = take_flags(flags, TABLE, reading)
    _model(words, reading)
    layout = reading.spec.get("layout", {})
    if reading.spec.pop("experts", None):
        layout["ep"] = layout.get("tp", 1) * layout.get("dp", 1)
        reading.spec["layout"] = layout
    if reading.spec:
        reading.spec["job"] = {"kind": "serve"}
    report_unknown(unknown, "set it in the fields of the serving job, if it has one", reading)


def _long(flag: Flag) -> Flag:
    name = _SHORT.get(flag.name, flag.name.replace("_", "-"))
    return replace(flag, name=name)


def _model(words: list[Word], reading: Reading) -> None:
    """``vllm serve NAME``."""
    for word, following, after in zip(words, words[1:], words[2:], strict=False):
        if word.text.endswith("vllm") and following.text == "serve" and not after.is_flag:
            if not after.dynamic:
                put(reading, "model", after.text, Flag("serve", after, ()))
            return
