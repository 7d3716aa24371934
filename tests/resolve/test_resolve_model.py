"""``model:`` as a name, a path and a mapping."""

import pytest

import parc
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec

SMALL = {
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "ffn": 128,
    "vocab": 1000,
    "position": {"max_positions": 512},
}
ROUTED = SMALL | {"ffn": 0, "experts": {"count": 8, "top_k": 2, "size": 32}}


def resolved(spec):
    sink = Sink()
    model = resolve_model(
        spec if isinstance(spec, str) else ModelSpec.model_validate(spec), Library(None), sink
    )
    assert (model is None) == sink.failed()
    return model, sink.diagnostics


def test_a_mapping_has_its_defaults_filled():
    model, found = resolved(SMALL)
    assert not found
    assert (model.attention.kv_heads, model.attention.head_dim) == (4, 16)
    assert (model.norm, model.norms_per_layer, model.ffn.gated) == ("rmsnorm", 2, True)
    assert model.position.original_max_positions == 512


def test_a_base_keeps_what_is_not_changed():
    model, _ = resolved({"base": "mixtral-8x7b", "layers": 8, "experts": {"top_k": 1}})
    assert (model.layers, model.experts.count, model.experts.top_k) == (8, 8, 1)
    assert model.experts.pattern == (True,) * 8
    assert model.name == "mixtral-8x7b (changed)"


def test_prediction_layers_are_trained_if_the_spec_sets_them():
    model, found = resolved({"base": "deepseek-v3", "mtp_layers": 1})
    assert model.mtp_layers == 1
    assert params.total_params(model, mtp=True) > params.total_params(model)
    assert not found


def test_null_removes_the_experts():
    model, _ = resolved({"base": "mixtral-8x7b", "experts": None, "ffn": 14336})
    assert model.experts is None
    assert params.total_params(model) == 7_241_732_096


def test_yarn_as_kind_and_as_scaling_mean_the_same():
    by_kind, _ = resolved(SMALL | {"position": {"max_positions": 512, "kind": "yarn"}})
    by_scaling, _ = resolved(SMALL | {"position": {"max_positions": 512, "scaling": "yarn"}})
    assert by_kind == by_scaling


def test_layers_have_experts_after_the_dense_ones_and_every_nth():
    experts = {"count": 8, "top_k": 2, "size": 32, "every": 2, "first_dense_layers": 2}
    model, _ = resolved(SMALL | {"layers": 6, "experts": experts})
    assert model.experts.pattern == (False, False, False, True, False, True)


def test_a_misspelled_name_gets_a_suggestion():
    _, (found,) = resolved("llama3-70b")
    assert found.code == "PARC-K01"
    assert "llama-3-70b" in found.finding.help
    assert found.finding.fix == "model: llama-3-70b"


def test_a_missing_file_is_a_finding():
    _, (found,) = resolved("./no/such/config.json")
    assert found.code == "PARC-K07"


@pytest.mark.parametrize("key", ["layers", "hidden", "heads", "vocab", "ffn", "position"])
def test_a_number_that_is_missing_is_named(key):
    _, (found,) = resolved({k: v for k, v in SMALL.items() if k != key})
    assert found.code == "PARC-K03"
    assert found.path.startswith(f"model.{key}")


@pytest.mark.parametrize(
    ("spec", "code", "path"),
    [
        (SMALL | {"kv_heads": 3}, "K03", "model.kv_heads"),
        (SMALL | {"hidden": 66}, "D07", "model.hidden"),
        (SMALL | {"experts": {"count": 8}}, "K03", "model.experts.top_k"),
        (SMALL | {"experts": {"count": 8, "top_k": 9, "size": 8}}, "D17", "model.experts.top_k"),
        (
            SMALL | {"experts": {"count": 8, "top_k": 2, "size": 8, "groups": 3}},
            "D17",
            "model.experts.groups",
        ),
        (
            SMALL | {"experts": {"count": 8, "top_k": 2, "size": 8, "group_top_k": 2}},
            "D17",
            "model.experts.group_top_k",
        ),
        (
            SMALL | {"experts": {"count": 8, "top_k": 2, "size": 8, "groups": 8}},
            "D17",
            "model.experts.group_top_k",
        ),
        (
            SMALL | {"experts": {"count": 8, "top_k": 2, "size": 8, "first_dense_layers": 4}},
            "K03",
            "model.experts",
        ),
        (
            ROUTED | {"experts": {"count": 8, "top_k": 2, "size": 8, "every": 2}},
            "K03",
            "model.ffn",
        ),
        (SMALL | {"latent": {"kv_lora_rank": 8}}, "K03", "model.latent.v_dim"),
        ({"base": "deepseek-v3", "kv_heads": 8}, "K03", "model.kv_heads"),
        ({"base": "deepseek-v3", "qk_norm": "head"}, "K03", "model.qk_norm"),
        (
            SMALL | {"position": {"max_positions": 512, "percent": 1.5}},
            "K03",
            "model.position.percent",
        ),
        (
            SMALL | {"position": {"max_positions": 9, "kind": "learned", "scaling": "linear"}},
            "K03",
            "model.position.scaling",
        ),
        ({"base": "mixtral-8x7b", "experts": None}, "K03", "model.ffn"),
    ],
)
def test_facts_that_contradict_each_other_are_reported_at_their_key(spec, code, path):
    _, found = resolved(spec)
    assert (f"PARC-{code}", path) in {(item.code, item.path) for item in found}


def test_width_of_a_head_may_differ_from_hidden_over_heads():
    model, _ = resolved(SMALL | {"hidden": 66, "head_dim": 32})
    assert model.attention.head_dim == 32


def test_computations_that_no_field_expresses_concern_only_training() -> None:
    spec = {"parc": 1, "name": "k", "model": "kimi-k2", "cluster": {"node": "hgx-h200", "nodes": 2}}
    # Without a plan, because an error of the job ends the run after the model.
    train = {**spec, "job": {"sequence_length": 4096, "global_batch": 7}, "layout": {"dp": 16}}
    traffic = {"input_tokens": 10, "output_tokens": 10**7}
    serve = {**spec, "job": {"kind": "serve", "precision": "fp8", "traffic": traffic}}
    assert "PARC-K06" in {one.code for one in parc.check(train)}
    assert "PARC-K06" not in {one.code for one in parc.check(serve)}
