"""Parameter counts against published integers and against modules that Megatron-Core built."""

from dataclasses import replace

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model


def model_of(name, **changes):
    model = resolve_model(name, Library(None), Sink())
    assert model is not None
    return replace(model, **changes)


# Active parameters as counted from the published weights; the router bias is a buffer (58 x 256).
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mixtral-8x7b", 12_879_925_248),
        ("qwen3-30b-a3b", 3_353_032_704),
        ("qwen3-235b-a22b", 22_190_763_520),
        ("deepseek-v3", 37_552_297_472 - 58 * 256),
        ("llama-3-8b", 8_030_261_248),
    ],
)
def test_active_parameters_equal_published_numbers(name, expected):
    model = model_of(name)
    experts = model.experts
    passed_by = 0
    if experts is not None:
        idle = experts.count - experts.top_k
        passed_by = experts.layers * idle * params.expert_params(model)
    assert params.total_params(model) - passed_by == expected


def test_attention_of_deepseek_v3_has_the_published_size():
    assert params.attention_params(model_of("deepseek-v3")) == 187_107_328


def test_a_prediction_layer_is_part_of_the_total_only_on_request():
    plain, trained = model_of("deepseek-v3"), model_of("deepseek-v3", mtp_layers=1)
    assert params.total_params(trained) == params.total_params(plain)
    added = params.total_params(trained, mtp=True) - params.total_params(plain)
    assert added == params.mtp_params(plain)
    # One block, 2 x 7168 -> 7168, and three norms of 7168.
    assert (
        added == sum(params.layer_params_on_rank(plain, 60, 1, 1, 1)) + 2 * 7168 * 7168 + 3 * 7168
    )


# Numbers of parameters on one rank, (dense, expert), counted on the modules that Megatron-Core
# 0.19.2 builds (GPTModel on the meta device, local transformer layers). Vocabulary as padded there.
# name, (tp, etp, ep), layers, first stage, last stage, padded vocabulary, dense, expert
MEASURED = [
    ("llama-3-70b", (8, 8, 1), range(20), True, False, 129024, 2_271_543_296, 0),
    ("llama-3-70b", (8, 8, 1), range(60, 80), False, True, 129024, 2_271_551_488, 0),
    ("llama-3-70b", (16, 16, 1), range(80), True, True, 129024, 4_411_629_568, 0),
    ("mixtral-8x7b", (2, 1, 8), range(8), True, False, 32000, 233_635_840, 1_409_286_144),
    ("mixtral-8x7b", (4, 2, 4), range(24, 32), False, True, 32256, 117_248_000, 1_409_286_144),
    ("deepseek-v3", (1, 1, 64), (0, 1, 2, 33, 34), True, False, 129280, 3_143_122_944, 352_321_536),
    ("gpt2-small", (2, 2, 1), range(12), True, True, 50432, 62_708_736, 0),
    ("qwen2.5-7b", (4, 4, 1), range(28), True, True, 152064, 1_904_057_344, 0),
    ("qwen3-8b", (2, 2, 1), range(18), True, False, 152064, 2_048_020_992, 0),
    ("qwen3-30b-a3b", (4, 1, 8), range(48), True, True, 152064, 394_999_808, 3_623_878_656),
    ("qwen3-30b-a3b", (8, 1, 8), range(48), True, True, 152576, 204_158_976, 3_623_878_656),
    ("gpt-oss-20b", (8, 1, 4), range(24), True, True, 201728, 227_308_800, 4_779_233_280),
    ("qwen1.5-moe-a2.7b", (2, 1, 4), range(24), True, True, 152064, 931_162_112, 3_114_270_720),
    ("nemotron-4-15b", (4, 4, 1), range(32), True, True, 256000, 3_907_792_896, 0),
]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[0]}-tp{row[1][0]}-{row[2]}")
def test_parameters_per_rank_equal_what_megatron_builds(row):
    name, (tp, etp, ep), layers, first, last, vocab, dense, expert = row
    model = model_of(name)
    parts = [params.layer_params_on_rank(model, layer, tp, etp, ep) for layer in layers]
    held = sum(part[0] for part in parts)
    if first:
        held += params.embedding_params(model, vocab) // tp + params.position_table_params(model)
    if last:
        held += (
            params.final_norm_params(model) + params.output_projection_params(model, vocab) // tp
        )
    assert (held, sum(part[1] for part in parts)) == (dense, expert)


def test_the_second_stage_of_gpt2_has_a_copy_of_the_tied_embedding():
    # Measured as above: gpt2-small, tp 1, pp 2, the last rank.
    model = model_of("gpt2-small")
    layers = sum(params.layer_params_on_rank(model, layer, 1, 1, 1)[0] for layer in range(6, 12))
    held = layers + params.final_norm_params(model) + params.embedding_params(model, 50304)
    assert held == 81_162_240


def test_a_stage_with_a_prediction_layer_has_a_copy_of_the_embedding():
    # Measured as above: deepseek-v3, tp 1, ep 64, layers 29 and 30 and the prediction layer.
    model = model_of("deepseek-v3", mtp_layers=1)
    parts = [params.layer_params_on_rank(model, layer, 1, 1, 64) for layer in (29, 30)]
    parts.append(params.mtp_params_on_rank(model, 1, 1, 64))
    held = sum(part[0] for part in parts) + params.embedding_params(model, 129280)
    assert (held, sum(part[1] for part in parts)) == (1_728_451_584, 528_482_304)


def test_down_projections_of_latent_attention_are_not_split():
    # Transformer Engine's layers have parallel_mode "duplicated" there, local layers are split.
    model = model_of("deepseek-v3")
    whole = 7168 * (1536 + 512 + 64) + 1536 + 512
    split = params.attention_params(model) - whole
    assert params.attention_params(model, 8) == whole + split // 8


def test_norms_over_all_heads_are_split_with_the_heads():
    model = model_of("qwen3-8b")
    wide = replace(model, attention=replace(model.attention, qk_norm="full"))
    bare = replace(model, attention=replace(model.attention, qk_norm="none"))
    for tp, width in ((1, 40 * 128), (4, 10 * 128)):
        added = params.attention_params(wide, tp) - params.attention_params(bare, tp)
        assert added == width


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v2-lite", "gpt2-xl", "gemma-2-9b"])
def test_the_total_is_the_sum_of_its_parts(name):
    model = model_of(name)
    layers = sum(
        sum(params.layer_params_on_rank(model, layer, 1, 1, 1)) for layer in range(model.layers)
    )
    ends = params.embedding_params(model) + params.position_table_params(model)
    ends += params.final_norm_params(model) + params.output_projection_params(model)
    assert params.total_params(model) == layers + ends


def test_a_router_bias_counts_only_if_it_is_trained():
    model = model_of("deepseek-v3")
    experts = model.experts
    assert experts is not None
    trained = replace(model, experts=replace(experts, router_bias="parameter"))
    assert params.total_params(trained) == 671_026_419_200


@pytest.mark.parametrize(("norm", "vectors"), [("rmsnorm", 1), ("layernorm", 2)])
def test_a_model_without_a_final_norm_has_exactly_its_vectors_less(norm, vectors):
    model = model_of("llama-3-8b", norm=norm)
    bare = replace(model, final_norm=False)
    assert params.total_params(model) - params.total_params(bare) == vectors * model.hidden
    assert params.final_norm_params(bare) == 0
