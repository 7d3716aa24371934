"""Invalid and unsupported configs are reported; no config ends in a traceback."""

import json

import pytest

from parc.compiler.catalog.huggingface.config import model_spec_from_config
from parc.compiler.catalog.huggingface.family_files import shipped_families
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
from tests.catalog.configs import DEEPSEEK_V3, LLAMA, QWEN3_MOE


def findings(text, tmp_path):
    (tmp_path / "c.json").write_text(text, encoding="utf-8")
    sink = Sink()
    model = resolve_model("c.json", Library(tmp_path), sink)
    assert (model is None) == sink.failed()
    return sink.diagnostics


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no key model_type"),
        ({"model_type": 7}, "no key model_type"),
        ({"model_type": "zamba"}, "Mamba-1 layers"),
        ({"model_type": "axk2"}, "norms are gated"),
        ({"model_type": "brand_new"}, "not supported"),
        ({"model_type": "x" * 300}, "not supported"),
        ({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}, "several models"),
        (LLAMA | {"num_local_experts": 8}, "num_local_experts"),
        (LLAMA | {"attention_k_eq_v": True}, "attention_k_eq_v"),
        (LLAMA | {"layer_types": ["linear_attention"]}, "layer_types"),
        (LLAMA | {"hidden_act": "xielu"}, "hidden_act"),
        (LLAMA | {"rope_scaling": {"rope_type": "xpos"}}, "xpos"),
        (QWEN3_MOE | {"mlp_only_layers": [3]}, "mlp_only_layers"),
        (QWEN3_MOE | {"use_sliding_window": True, "sliding_window": 4096}, "use_sliding_window"),
        (DEEPSEEK_V3 | {"mlp_bias": True}, "mlp_bias"),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, "moe_layer_freq"),
        (DEEPSEEK_V3 | {"norm_topk_prob": False}, "only with normalized scores"),
        (DEEPSEEK_V3 | {"attention_bias": True}, "biases"),
    ],
)
def test_an_unsupported_structure_is_an_error(config, words, tmp_path):
    found = findings(json.dumps(config), tmp_path)
    assert {item.code for item in found if item.severity == "error"} == {"PARC-K02"}
    assert any(words in item.finding.message for item in found)


def test_a_supported_text_part_is_suggested():
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}
    (note,) = model_spec_from_config(config, "x").notes
    assert "config.json#text_config" in note.help


def test_a_part_of_a_config_of_one_model_is_rejected() -> None:
    (note,) = model_spec_from_config(LLAMA, "x", part="text_config").notes
    assert "remove # and the key after #" in note.help


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_size", True, "true"),
        ("hidden_size", "8192", "'8192'"),
        ("hidden_size", 8192.0, "8192.0"),
        ("hidden_size", -1, "must be between"),
        ("hidden_size", 10**12, "must be between"),
        ("hidden_size", 10**400, "enormous"),
        ("hidden_size", None, "missing"),
        ("rms_norm_eps", float("nan"), "nan"),
        ("rope_theta", float("inf"), "inf"),
        ("rope_theta", 10**400, "enormous"),
        ("tie_word_embeddings", 1, "true or false"),
        ("rope_scaling", [8.0], "must be a mapping"),
        ("rope_scaling", {"type": "linear"}, "rope_scaling.factor is missing"),
        ("rope_scaling", {"type": "linear", "factor": "8"}, "rope_scaling.factor is '8'"),
    ],
)
def test_an_invalid_value_is_reported_at_its_line(key, value, words, tmp_path):
    text = json.dumps(LLAMA | {key: value}, indent=1)
    (found,) = findings(text, tmp_path)
    assert (found.code, found.span.file) == ("PARC-K03", "c.json")
    assert f'"{key}"' in text.splitlines()[found.span.line - 1]
    assert words in found.finding.message


def test_an_unknown_key_is_a_warning_and_an_empty_one_is_not(tmp_path):
    config = LLAMA | {
        "gated_residual": True,
        "some_list": [],
        "some_switch": False,
        "nothing": None,
    }
    (found,) = findings(json.dumps(config), tmp_path)
    assert (found.code, found.severity) == ("PARC-K05", "warning")
    assert "gated_residual" in found.finding.message


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "null", '{"a": 1, "a": 2}', '{"a": ' + "9" * 5000 + "}", "[" * 100_000],
)
def test_text_that_is_not_a_config_is_one_finding(text, tmp_path):
    (found,) = findings(text, tmp_path)
    assert found.code == "PARC-K07"


def test_a_syntax_error_is_shown_at_its_line(tmp_path):
    (found,) = findings('{\n  "model_type": "llama",\n  "hidden_size" 4096\n}', tmp_path)
    assert (found.span.file, found.span.line) == ("c.json", 3)


JUNK = [None, True, 0, -1, 1.5, "x", [], {}, [None], {"rope_type": 10**400}, float("nan"), 10**400]
JUNK += [{"type": "dynamic", "alpha": "x"}, {"name": 3}, [3, 4], 10**9]
BESIDE = ("attn_config", "attn_type_list", "clip_qkv", "ffn_config", "head_dim", "layer_types")
BESIDE += ("mlp_layer_types", "moe_intermediate_size", "moe_layer_end_index", "moe_layers")
BESIDE += ("num_key_value_heads", "num_kv_heads", "num_ln_in_parallel_attn", "num_shared_expert")
BESIDE += ("q_lora_rank", "rope_parameters", "rope_scaling", "rotary_dim", "sliding_window")
BESIDE += ("sliding_window_pattern",)
"""Keys that some reader accesses and that have no default."""


TURNS = 8
"""Number of parts of ``JUNK``. A key gets another part in the next family, and families share
readers."""


def read_junk(family, turn):
    """Read configs of ``family`` with a part of ``JUNK`` in each of its keys."""
    keys = {*shipped_families().load_family(family).defaults, *BESIDE}
    for number, key in enumerate(sorted(keys), turn):
        for junk in JUNK[number % TURNS :: TURNS]:
            config = {"model_type": family, key: junk}
            reading = model_spec_from_config(config, "x")
            assert reading.failed or reading.mapping["layers"] > 0


@pytest.mark.parametrize("family", shipped_families().names())
def test_no_value_of_any_key_ends_in_a_traceback(family):
    read_junk(family, shipped_families().names().index(family))


@pytest.mark.conformance
def test_no_value_of_any_key_of_any_family_ends_in_a_traceback():
    for family in shipped_families().names():
        for turn in range(TURNS):
            read_junk(family, turn)
