"""Commands of servers as specs: formats of the weights, and features of the service."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files

COMMANDS = {
    "vllm": "vllm serve {model} {flags}\n",
    "sglang": "python3 -m sglang.launch_server --model-path {model} {flags}\n",
}
PLAIN = "meta-llama/Llama-3.1-8B-Instruct"
FP8 = "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8"
FP4 = "nvidia/Llama-3.1-405B-Instruct-FP4"
OWN = "/models/mine"


def imported(engine: str, model: str, flags: str) -> tuple[dict[str, Any], list[str]]:
    """Return the fragment of a command, and the notes."""
    text = COMMANDS[engine].format(model=model, flags=flags)
    found = import_files("auto", [(text, "run.sh")], Sink())
    assert found is not None
    return dict(found.fragment.spec), list(found.fragment.notes)


@pytest.mark.parametrize("engine", COMMANDS)
@pytest.mark.parametrize(
    ("model", "flags", "precision", "quantize"),
    [
        (PLAIN, "--dtype bfloat16", "bf16", False),
        (PLAIN, "--dtype half", "fp16", False),
        (PLAIN, "--dtype auto", None, False),
        (FP8, "--dtype bfloat16", "fp8", False),
        (FP8, "--quantization fp8 --dtype bfloat16", "fp8", False),
        (FP4, "--dtype bfloat16", "nvfp4", False),
        (PLAIN, "--dtype bfloat16 --quantization fp8", "fp8", True),
        (OWN, "--quantization awq_marlin", "int4", False),
        (OWN, "--quantization modelopt_fp4 --dtype bfloat16", "nvfp4", False),
        (OWN, "--quantization bitsandbytes --dtype bfloat16", None, False),
        (f"{OWN}-int8", "--quantization gptq --dtype bfloat16", None, False),
        (OWN, "--quantization $Q --dtype bfloat16", None, False),
    ],
)
def test_the_checkpoint_and_quantization_determine_the_format_of_the_weights(
    engine: str, model: str, flags: str, precision: str | None, quantize: bool
) -> None:
    job = imported(engine, model, flags)[0]["job"]
    assert (job.get("precision"), job.get("quantize", False)) == (precision, quantize)


@pytest.mark.parametrize("engine", COMMANDS)
@pytest.mark.parametrize(
    ("model", "flags", "listed"),
    [
        (FP8, "--dtype half", "--dtype half"),
        (FP4, "--quantization fp8", "--quantization fp8"),
        (OWN, "--quantization bitsandbytes", "--quantization bitsandbytes"),
        (PLAIN, "--dtype float32", "--dtype float32"),
    ],
)
def test_a_format_without_a_field_is_listed(
    engine: str, model: str, flags: str, listed: str
) -> None:
    notes = imported(engine, model, flags)[1]
    assert f"not carried over, line 1: {listed}" in notes


def test_a_checkpoint_of_unknown_format_gets_a_note() -> None:
    for model, count in ((OWN, 1), (PLAIN, 0)):
        notes = imported("vllm", model, "--dtype bfloat16")[1]
        assert sum("quantized checkpoint" in note for note in notes) == count
