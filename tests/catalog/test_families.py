"""A new Hugging Face family is one YAML file; an incomplete file is a diagnostic."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from parc.compiler.catalog.huggingface.config import model_spec_from_config
from parc.compiler.catalog.huggingface.config_keys import ConfigKeys
from parc.compiler.catalog.huggingface.family import FamilyError
from parc.compiler.catalog.huggingface.family_files import FamilyFiles, shipped_families
from parc.compiler.catalog.huggingface.model_fields import read_model
from parc.compiler.spec.model_spec import ModelSpec
from tests.catalog.configs_hybrid import NEMOTRON_3_NANO

PACKAGE = Path(__file__).parents[2] / "compiler/catalog/huggingface"
INVENTED = """\
source: transformers 9.9, models/zephyrus/configuration_zephyrus.py
form: rms_norm
defaults:
  dim: 1024
  num_hidden_layers: 12
  num_attention_heads: 16
  intermediate_size: 4096
  vocab_size: 32000
  hidden_act: silu
  rms_norm_eps: 1.0e-06
  tie_word_embeddings: false
  max_position_embeddings: 8192
  rope_theta: 10000.0
  router.experts: 32
  router.top_k: 2
  router.width: 512
  norm_scores: false
keys: {hidden: dim, qkv_bias: use_bias}
constants: {qk_norm: head}
window: by_layer_types
experts:
  count: router.experts
  top_k: router.top_k
  size: router.width
  shared_count: 1
  first_dense_layers: dense_layers
  router: softmax
  normalized: norm_scores
requires: {parallel_block: false}
ignored_keys: [zephyr_cache]
unsupported_parts: a breeze on the residual stream
"""
CONFIG = {"model_type": "zephyrus", "dim": 2048, "dense_layers": 1, "sliding_window": 512}


def folder(tmp_path, text, name="zephyrus"):
    (tmp_path / "families").mkdir(exist_ok=True)
    (tmp_path / "families" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return FamilyFiles(tmp_path, PACKAGE)


def test_a_family_that_follows_existing_forms_needs_one_yaml_file_and_no_python(tmp_path):
    families = folder(tmp_path, INVENTED)
    config = CONFIG | {"router": {"experts": 64}, "zephyr_cache": 7}
    reading = model_spec_from_config(config, "breeze", families=families)
    assert reading.notes == ()
    model = ModelSpec.model_validate(reading.mapping)
    assert (model.family, model.hidden, model.ffn, model.layers) == ("zephyrus", 2048, 4096, 12)
    assert (model.qk_norm, model.window, model.qkv_bias) == ("head", 512, False)
    assert (model.experts.count, model.experts.top_k, model.experts.shared_size) == (64, 2, 512)
    assert (model.experts.first_dense_layers, model.experts.pre_softmax) == (1, True)
    assert families.unsupported_parts("zephyrus") == "a breeze on the residual stream"
    assert {"zephyrus", "llama"} <= {*families.names()}


def test_an_invented_family_reports_unsupported_and_unknown_keys(tmp_path):
    config = CONFIG | {"parallel_block": True, "router": {"noise": 1}, "num_local_experts": 2}
    notes = model_spec_from_config(config, "x", families=folder(tmp_path, INVENTED)).notes
    assert {(note.code, note.path) for note in notes} == {
        ("K02", ("parallel_block",)),
        ("K02", ("num_local_experts",)),
        ("K05", ("router", "noise")),
    }


def test_a_key_without_a_default_names_the_file_that_lacks_it(tmp_path):
    families = folder(tmp_path, INVENTED.replace("  vocab_size: 32000\n", ""))
    (note,) = model_spec_from_config(CONFIG, "x", families=families).notes
    assert (note.code, note.key) == ("K03", "vocab_size")
    assert note.help == "the family file families/zephyrus.yaml has no default for vocab_size"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source:", "sauce:", "sauce is not a valid key; valid values: source"),
        ("form: rms_norm\n", "", "position is missing"),
        ("form: rms_norm", "form: rms", "form is rms, but forms/rms.yaml does not exist, "),
        (
            "form: rms_norm",
            "extends: llama2",
            "extends is llama2, but families/llama2.yaml does not exist",
        ),
        (
            "form: rms_norm",
            "extends: zephyrus",
            "families/zephyrus.yaml does not exist, or refers back to this file",
        ),
        ("hidden: dim", "hiden: dim", "keys.hiden is not a valid key; valid values: hidden"),
        ("hidden: dim", "hidden: null", "keys.hidden is missing"),
        ("hidden: dim", "hidden: 7", "keys.hidden must be a config key"),
        ("qk_norm: head", "qk_norm: heads", "constants.qk_norm is invalid"),
        ("qk_norm: head", "qq_norm: head", "constants.qq_norm is invalid"),
        (
            "by_layer_types",
            "sometimes",
            "window is 'sometimes'; valid values: after_full_attention",
        ),
        ("  top_k: router.top_k\n", "", "experts.top_k is missing"),
        ("  normalized: norm_scores\n", "", "experts.normalized is missing"),
        ("router: softmax", "router: soft", "experts.router is 'soft'; valid values: softmax"),
        ("requires: {parallel_block: false}", "requires: true", "requires must be a mapping"),
        ("[zephyr_cache]", "zephyr_cache", "ignored_keys must be a list"),
        ("dim: 1024", "dim: [1024", "cannot be read"),
    ],
)
def test_a_half_written_family_is_a_diagnostic_that_names_file_and_key(tmp_path, old, new, message):
    assert old in INVENTED
    families = folder(tmp_path, INVENTED.replace(old, new))
    (note,) = model_spec_from_config(CONFIG, "x", families=families).notes
    assert note.code == "K02"
    assert note.message.startswith("families/zephyrus.yaml")
    assert message in note.message


class Changed(FamilyFiles):
    """The shipped families, one of them with changed sections."""

    def __init__(self, name, tree):
        super().__init__(PACKAGE)
        self._trees[f"families/{name}"] = tree


def config_of(name):
    hybrid = {
        "granitemoehybrid": {"layer_types": ["attention"] * 32},
        "nemotron_h": NEMOTRON_3_NANO,
    }
    return {"model_type": name} | hybrid.get(name, {})


def merged(name):
    tree, _ = shipped_families()._merge_with_base(f"families/{name}", ())
    return tree


JUNK = ("remove", None, 7, "x", [], {})
"""Values that replace a field; ``remove`` deletes it."""


def mutations(tree, turn, turns):
    """Yield (section, field, tree) for each section and field that is removed or replaced.

    Each field gets one of ``turns`` parts of ``JUNK``, and in the next turn another one.
    """
    fields = [(section, None) for section in tree]
    fields += [
        (name, field) for name, inner in tree.items() if isinstance(inner, dict) for field in inner
    ]
    for number, (section, field) in enumerate(fields, turn):
        for junk in JUNK[number % turns :: turns]:
            changed = deepcopy(tree)
            inner, key = (changed, section) if field is None else (changed[section], field)
            inner[key] = junk
            if junk == "remove":
                del inner[key]
            yield section, field, changed


def read_mutations(name, turn, turns):
    """Read a config of the family ``name`` after each change of its file."""
    for section, field, tree in mutations(merged(name), turn, turns):
        reading = model_spec_from_config(config_of(name), "x", families=Changed(name, tree))
        assert reading.failed or reading.mapping["layers"] > 0, (section, field)


@pytest.mark.parametrize("name", shipped_families().names())
def test_no_key_that_a_family_lacks_or_has_wrong_ends_in_a_traceback(name):
    read_mutations(name, shipped_families().names().index(name), 6)


@pytest.mark.conformance
def test_no_key_that_any_family_lacks_or_has_wrong_ends_in_a_traceback():
    for name in shipped_families().names():
        read_mutations(name, 0, 1)


def test_the_example_of_the_page_is_a_complete_family(tmp_path):
    page = (PACKAGE.parents[2] / "docs/import.md").read_text("utf-8")
    example = page.partition("### Adding a family")[2].split("```")[1].removeprefix("yaml\n")
    config = {"model_type": "zephyrus", "moe_layer_freq": 2}
    notes = model_spec_from_config(config, "x", families=folder(tmp_path, example)).notes
    assert ("K02", "moe_layer_freq") in {(note.code, note.key) for note in notes}
    assert not [note for note in notes if "zephyrus.yaml" in note.message]


def test_a_broken_family_file_stops_a_compile_with_a_diagnostic(monkeypatch):
    from parc.compiler.catalog.library import Library
    from parc.compiler.diagnostics import Sink
    from parc.compiler.resolve import resolve_model

    broken = Changed("llama", {"extends": "nothing"})
    monkeypatch.setattr(resolve_model, "shipped_families", lambda: broken)
    sink = Sink()
    assert resolve_model.resolve_model("llama-3-8b", Library(None), sink) is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-K02"
    assert "families/llama.yaml: extends is nothing" in found.finding.message


SWITCHES = (
    {},
    {"use_sliding_window": True},
    {"hybrid_override_pattern": "M-*E" * 13},
    {"topk_method": "group_limited_greedy"},
    {"score_function": "sigmoid"},
    {"n_routed_experts": 8},
)
"""Keys on which it depends whether other keys are read."""


def bases(name):
    """Return ``name`` and the families that it extends, directly or not."""
    base = shipped_families()._parse_file_once(f"families/{name}").get("extends")
    return [name, *(bases(base) if base else ())]


class Recorder(ConfigKeys):
    """ConfigKeys that record which of them a reader accesses."""

    def __init__(self, config, family):
        super().__init__(config, family.defaults)
        self.accessed = set()

    def value(self, key):
        self.accessed.add(key)
        return super().value(key)


@pytest.mark.parametrize("name", shipped_families().names())
def test_a_family_has_defaults_only_for_keys_that_it_or_a_family_based_on_it_reads(name):
    accessed = set()
    for other in (one for one in shipped_families().names() if name in bases(one)):
        family = shipped_families().load_family(other)
        for switch in SWITCHES:
            keys = Recorder(config_of(other) | switch, family)
            read_model(keys, family)
            accessed |= keys.accessed
    unused = (
        set(shipped_families()._parse_file_once(f"families/{name}").get("defaults", {})) - accessed
    )
    assert unused == set()


def test_every_family_names_the_source_of_its_defaults():
    for name in shipped_families().names():
        family = shipped_families().load_family(name)
        assert "configuration" in family.source, name
        assert json.loads(json.dumps(family.defaults)) == family.defaults, name


def test_a_family_that_is_refused_cannot_be_loaded():
    assert not shipped_families().is_supported("grok")
    assert shipped_families().reason_unsupported("grok")
    with pytest.raises(FamilyError, match=r"families/grok\.yaml: .* is (not a valid key|missing)"):
        shipped_families().load_family("grok")
