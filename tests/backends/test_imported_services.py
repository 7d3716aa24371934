"""Commands of servers as specs: formats of the weights, and features of the service."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.import_files import import_files
from tests.compiled import emitted, messages_of, planned

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


LORA = {"adapters": {"a": "/l/a", "b": "/l/b"}, "active": 2, "rank": 32}
EAGLE = {"method": "eagle3", "tokens": 3, "checkpoint": "x/eagle"}
FEATURES = {
    "vllm": [
        (
            "--enable-lora --lora-modules a=/l/a b=/l/b --max-loras 2 --max-lora-rank 32 "
            "--max-cpu-loras 2",
            "lora",
            LORA,
        ),
        (
            """--enable-lora --lora-modules '{"name": "a", "path": "/l/a"}'""",
            "lora",
            {"adapters": {"a": "/l/a"}, "active": 1},
        ),
        (
            """--speculative-config '{"method": "eagle3", "model": "x/eagle", "num_speculative_tokens": 3}'""",  # noqa: E501
            "speculative",
            EAGLE,
        ),
        (
            """--speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'""",
            "speculative",
            {"method": "mtp", "tokens": 1},
        ),
        ("--kv-offloading-size 64", "kv_offload", {"size": "64GiB"}),
        ("--no-enable-prefix-caching", "prefix_caching", False),
        ("--enable-prefix-caching", "prefix_caching", True),
    ],
    "sglang": [
        (
            "--enable-lora --lora-paths a=/l/a b=/l/b --max-loras-per-batch 3 --max-lora-rank 32",
            "lora",
            LORA,
        ),
        (
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path x/eagle "
            "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
            "speculative",
            EAGLE,
        ),
        (
            "--speculative-algorithm NEXTN --speculative-num-steps 1",
            "speculative",
            {"method": "mtp", "tokens": 1},
        ),
        (
            "--tp 4 --pp-size 2 --enable-hierarchical-cache --hicache-size 8",
            "kv_offload",
            {"size": "64GB"},
        ),
        ("--disable-radix-cache", "prefix_caching", False),
    ],
}


@pytest.mark.parametrize(
    ("engine", "flags", "field", "value"),
    [(engine, *case) for engine, cases in FEATURES.items() for case in cases],
)
def test_adapters_drafts_and_copies_of_the_cache_are_fields_of_the_job(
    engine: str, flags: str, field: str, value: object
) -> None:
    spec, notes = imported(engine, PLAIN, flags)
    assert spec["job"][field] == value
    assert [note for note in notes if note.startswith("not carried over")] == []


@pytest.mark.parametrize(
    ("engine", "flags", "listed"),
    [
        ("vllm", "--enable-lora --max-loras 2", ["--enable-lora", "--max-loras 2"]),
        ("vllm", "--enable-lora --lora-modules $ALL", ["--enable-lora", "--lora-modules $ALL"]),
        (
            "vllm",
            """--speculative-config '{"method": "medusa", "num_speculative_tokens": 3}'""",
            ['--speculative-config {"method": "medusa", "num_speculative_tokens": 3}'],
        ),
        (
            "vllm",
            """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'""",  # noqa: E501
            ["--speculative-config prompt_lookup_max: 4"],
        ),
        (
            "sglang",
            "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4",
            ["--speculative-eagle-topk 4"],
        ),
        (
            "sglang",
            "--enable-hierarchical-cache --hicache-size $GB",
            ["--enable-hierarchical-cache", "--hicache-size $GB"],
        ),
    ],
)
def test_features_that_a_spec_cannot_express_are_listed(
    engine: str, flags: str, listed: list[str]
) -> None:
    notes = imported(engine, PLAIN, flags)[1]
    start = "not carried over, line 1: "
    assert [note.removeprefix(start) for note in notes if note.startswith(start)] == listed


@pytest.mark.parametrize("engine", COMMANDS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lora", LORA),
        ("speculative", {"method": "ngram", "tokens": 2}),
        ("kv_offload", {"size": "64GB"}),
        ("prefix_caching", False),
    ],
)
def test_the_features_of_an_emitted_script_are_imported(
    engine: str, field: str, value: object
) -> None:
    traffic = {"input_tokens": 512, "output_tokens": 128, "concurrency": 8}
    spec = {
        "parc": 1,
        "name": "chat",
        "model": "llama-3.1-8b",
        "cluster": {"node": "hgx-h100", "nodes": 1},
        "job": {"kind": "serve", "traffic": traffic, field: value},
        "layout": {"tp": 2, "replicas": 1},
        "emit": [engine],
    }
    plan, sink = planned(spec)
    assert plan is not None, messages_of(sink)
    script = emitted(plan)[f"{engine}/serve.sh"]
    found = import_files("auto", [(script, "serve.sh")], Sink())
    assert found is not None
    read = found.fragment.spec["job"][field]
    if field == "kv_offload":  # vLLM counts in GiB
        assert float(read["size"].removesuffix("GiB").removesuffix("GB")) == pytest.approx(
            64 / 1.024**3 if "GiB" in read["size"] else 64, rel=1e-4
        )
    else:
        assert read == value
