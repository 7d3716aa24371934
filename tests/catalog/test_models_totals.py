"""Catalog models have the published number of parameters."""

import pytest

from parc.compiler.catalog.huggingface.family_files import shipped_families
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts import params
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model

# Exact: the count that the model page states, that of the paper (Pythia), or that of the model
# that transformers builds from its config. Load-balancing biases are buffers, so that DeepSeek-V3
# has 58 x 256, Kimi K2 60 x 384 and Nemotron 3 Nano 23 x 128 fewer than the page; the classes of
# Qwen3-Next and Qwen3.5 have no multi-token prediction, which the counts of their pages include.
EXACT = {
    "codellama-34b": 33_743_970_304,
    "command-r-35b": 34_980_831_232,
    "dbrx": 131_596_523_520,
    "deepseek-r1": 671_026_404_352,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "deepseek-v3.2": 671_877_929_216,
    "dots.llm1": 142_774_373_888,
    "ernie-4.5-21b-a3b": 21_825_436_160,
    "ernie-4.5-300b-a47b": 298_636_910_592,
    "falcon-180b": 179_522_565_120,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-4-26b-a4b": 25_233_141_760,
    "glm-4-9b": 9_399_951_360,
    "glm-4.6": 352_797_814_784,
    "glm-4.7-flash": 29_943_390_976,
    "glm-5": 743_911_199_232,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "granite-3.3-8b": 8_170_864_640,
    "hunyuan-a13b": 80_393_183_232,
    "kimi-k2": 1_026_408_209_408,
    "ling-lite-1.5": 16_801_974_272,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-3.3-nemotron-super-49b": 49_867_145_216,
    "llama-65b": 65_285_660_672,
    "mimo-7b": 7_622_619_136,
    "minimax-m2.5": 228_689_748_992,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-large-123b": 122_610_069_504,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "nemotron-3-nano-30b-a3b": 31_577_937_344,
    "nemotron-h-56b": 56_324_350_464,
    "nemotron-h-8b": 8_100_852_736,
    "olmo-2-32b": 32_234_279_936,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-3-medium": 13_960_238_080,
    "phi-3-mini": 3_821_079_552,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "qwen3.5-397b-a17b": 396_346_350_336,
    "seed-oss-36b": 36_151_104_512,
    "smollm3-3b": 3_075_098_624,
    "starcoder2-3b": 3_030_371_328,
    "yi-34b": 34_388_917_248,
}
# Within 2 %: the page or the paper states a rounded number.
STATED = {
    "bloom-176b": 176.2473e9,
    "gemma-3-12b": 11.77e9,
    "gemma-3-27b": 27.01e9,
    "gemma-3-4b": 3.88e9,
    "glm-4.5": 352.8e9,
    "glm-4.5-air": 106.85e9,
    "gpt3-175b": 175e9,
    "grok-1": 314e9,
    "megatron-1t": 1008e9,
    "megatron-22b": 22e9,
    "moonlight-16b-a3b": 15.96e9,
    "mt-nlg-530b": 530e9,
    "nemotron-4-15b": 15.6e9,
    "nemotron-4-340b": 341e9,
    "opt-175b": 175e9,
    "qwen2-57b-a14b": 57.41e9,
}


def resolved(name):
    sink = Sink()
    model = resolve_model(name, Library(None), sink)
    assert model is not None, sink.diagnostics
    return model, sink.diagnostics


def test_every_model_of_the_catalog_has_a_published_count():
    assert set(Library(None).names("models")) == EXACT.keys() | STATED.keys()
    assert len(EXACT) + len(STATED) >= 45


@pytest.mark.parametrize("name", sorted(EXACT))
def test_the_total_is_the_published_integer(name):
    assert params.total_params(resolved(name)[0]) == EXACT[name]


@pytest.mark.parametrize("name", sorted(STATED))
def test_the_total_is_within_two_percent_of_the_stated_one(name):
    assert params.total_params(resolved(name)[0]) == pytest.approx(STATED[name], rel=0.02)


@pytest.mark.parametrize("name", sorted(EXACT | STATED))
def test_an_entry_names_its_source_and_reports_only_parts_and_constants_without_a_field(name):
    model, found = resolved(name)
    assert model.source.startswith("https://")
    assert model.name == name
    families = shipped_families()
    texts = (families.unsupported_parts(model.family), families.assumed_constants(model.family))
    expected = ["PARC-K06" for text in texts if text]
    assert [diagnostic.code for diagnostic in found] == expected


def test_no_entry_sets_a_base_or_a_name():
    library = Library(None)
    for name in library.names("models"):
        written = library.entry("models", name).keys()
        assert not written & {"base", "name"}, name
