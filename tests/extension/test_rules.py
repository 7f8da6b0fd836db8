"""Rules of context extension, against their papers' formulas, pair by pair in plain Python."""

import dataclasses
import json
import math

import pytest
import torch

import ropewalk as rw
from ropewalk import extension
from ropewalk.extension.by_parts import ByParts, Llama3, YaRN
from ropewalk.extension.longrope import LongRoPE, YarnArticle
from ropewalk.extension.scaling import DynamicNTK, Linear, NTKAware, Proportional

SHAPES = [(10000.0, 128, 2048), (500000.0, 64, 8192), (150.0, 12, 64), (1e6, 6, 4096)]
FACTORS = [1.0, 1.5, 4.0, 32.0]
RULES = [
    Linear(factor=4.0),
    Linear(original_max_position_embeddings=512),
    NTKAware(factor=4.0),
    DynamicNTK(factor=2.0, original_max_position_embeddings=512),
    ByParts(factor=4.0, original_max_position_embeddings=512),
    YaRN(factor=4.0, original_max_position_embeddings=512),
    YaRN(original_max_position_embeddings=512, ramp="turns", mscale=0.7, mscale_all_dim=0.3),
    YaRN(factor=4.0, original_max_position_embeddings=512, truncate=False, attention_factor=1.3),
    Llama3(factor=4.0, original_max_position_embeddings=512),
    LongRoPE(short_factor=(1.0,) * 6, long_factor=(1, 2, 3, 4, 5, 6), original_max_position_embeddings=512, factor=4.0),
    Proportional(partial_rotary_factor=0.5, factor=2.0),
    YarnArticle(factor=4.0, original_max_position_embeddings=512),
]


def name_of(rule):
    return json.dumps(rule.spec())


def plain(base, width):
    return [base ** (-2 * i / width) for i in range(width // 2)]


def extended(rule, base, width, length=None):
    frequency = torch.tensor(plain(base, width), dtype=torch.float64)
    return rule(frequency, base=base, rotary_dim=width, length=length)


def assert_frequencies(found, expected):
    torch.testing.assert_close(found.frequency, torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0)


# Each rule and its formula


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("base", "width", "original"), SHAPES)
def test_interpolation_divides_positions(base, width, original, factor):
    found = extended(Linear(factor=factor), base, width)
    assert_frequencies(found, [omega / factor for omega in plain(base, width)])
    assert found.attention_factor == 1


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("base", "width", "original"), SHAPES)
def test_ntk_aware_is_a_larger_base(base, width, original, factor):
    found = extended(NTKAware(factor=factor), base, width)
    assert_frequencies(found, plain(base * factor ** (width / (width - 2)), width))
    assert found.attention_factor == 1


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100, 4096])
@pytest.mark.parametrize("factor", FACTORS)
def test_dynamic_ntk_grows_from_the_length_of_training_on(factor, length):
    rule = DynamicNTK(factor=factor, original_max_position_embeddings=64)
    larger = 1000.0 if length <= 64 else 1000.0 * (factor * length / 64 - (factor - 1)) ** (20 / 18)
    assert_frequencies(extended(rule, 1000.0, 20, length), plain(larger, 20))


def gamma(omega, original, slow, fast):
    often = original * omega / (2 * math.pi)
    return 0.0 if often < slow else 1.0 if often > fast else (often - slow) / (fast - slow)


@pytest.mark.parametrize("kind", [ByParts, YaRN])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (0.5, 4.0)])
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("base", "width", "original"), SHAPES)
def test_by_parts_and_the_paper_s_yarn(base, width, original, factor, slow, fast, kind):
    options = {"ramp": "turns"} if kind is YaRN else {}
    rule = kind(factor=factor, original_max_position_embeddings=original, beta_slow=slow, beta_fast=fast, **options)
    shares = [(omega, gamma(omega, original, slow, fast)) for omega in plain(base, width)]
    found = extended(rule, base, width)
    assert_frequencies(found, [(1 - share) * omega / factor + share * omega for omega, share in shares])
    assert found.attention_factor == pytest.approx(0.1 * math.log(factor) + 1 if kind is YaRN else 1, abs=1e-15)


@pytest.mark.parametrize(("low", "high", "truncate"), [(16, 41, True), (16.7, 40.8, False)])
def test_the_code_s_yarn_ramps_in_the_index_of_the_pair(low, high, truncate):
    """Ends of d = 128, base 10,000 and L = 2,048, computed by hand: 64 ln(2048 / 2πn) / ln 10,000 for n = 32 and 1."""
    rule = YaRN(factor=4.0, original_max_position_embeddings=2048, truncate=truncate)
    if not truncate:
        low, high = (64 * math.log(2048 / (2 * math.pi * n)) / math.log(10000) for n in (32, 1))
    divided = [min(max((i - low) / (high - low), 0), 1) for i in range(64)]
    expected = [omega * (1 - d + d / 4) for omega, d in zip(plain(1e4, 128), divided, strict=True)]
    assert_frequencies(extended(rule, 1e4, 128), expected)


@pytest.mark.parametrize(("base", "width", "original"), SHAPES)
def test_llama_3_is_by_parts_with_a_beta_of_4(base, width, original):
    ours = extended(Llama3(factor=8.0, original_max_position_embeddings=original), base, width)
    parts = extended(ByParts(factor=8.0, original_max_position_embeddings=original, beta_fast=4.0), base, width)
    assert torch.equal(ours.frequency, parts.frequency)
    assert ours == (ours.frequency, 1.0)


def test_longrope_divides_each_pair_by_its_own():
    lists = {"short_factor": [1.0, 1.1, 1.2], "long_factor": [1.0, 4.0, 9.5]}
    rule = LongRoPE(**lists, original_max_position_embeddings=4096, factor=32.0)
    for length, chosen in ((1, "short_factor"), (4096, "short_factor"), (4097, "long_factor"), (131072, "long_factor")):
        found = extended(rule, 1e4, 6, length)
        assert_frequencies(found, [omega / by for omega, by in zip(plain(1e4, 6), lists[chosen], strict=True)])
        assert found.attention_factor == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)), abs=1e-15)
    moe = dataclasses.replace(rule, short_mscale=1.24, long_mscale=1.25)
    assert [moe.attention(length) for length in (4096, 4097)] == [1.24, 1.25]


def test_proportional_stops_the_slow_pairs():
    found = extended(Proportional(partial_rotary_factor=0.5, factor=2.0), 1e4, 14)
    assert_frequencies(found, [omega / 2 if i < 3 else 0.0 for i, omega in enumerate(plain(1e4, 14))])


def test_the_article_s_rule_jumps():
    found = extended(YarnArticle(factor=4.0, original_max_position_embeddings=2048), 1e4, 128)
    expected = []
    for i, omega in enumerate(plain(1e4, 128)):
        beta = 1 + 31 * i / 63
        expected.append(omega * ((beta * 4 - beta + 1) / (beta * 4) if 2 * math.pi / omega <= 2048 else 0.25))
    assert_frequencies(found, expected)
    ratio = found.frequency / torch.tensor(plain(1e4, 128), dtype=torch.float64)
    assert ratio[40] > 0.76 > 0.25 == ratio[41]


def test_the_article_s_rule_leaves_short_texts_alone():
    rule = YarnArticle(original_max_position_embeddings=64)
    assert_frequencies(extended(rule, 1e4, 12, 64), plain(1e4, 12))
    assert extended(rule, 1e4, 12, 65).frequency[0] == 1
    assert extended(rule, 1e4, 12, 65).frequency[1] < 0.99 * plain(1e4, 12)[1]


# Attention factors


@pytest.mark.parametrize("factor", FACTORS)
def test_yarn_s_attention_factor(factor):
    by = {"factor": factor, "original_max_position_embeddings": 4096}
    grown = math.log(factor)
    for options, expected in [
        ({}, 0.1 * grown + 1),
        ({"attention_factor": 0.9}, 0.9),
        ({"attention_factor": 0.9, "mscale": 1.0, "mscale_all_dim": 0.5}, 0.9),
        ({"mscale": 0.707, "mscale_all_dim": 0.5}, (0.0707 * grown + 1) / (0.05 * grown + 1)),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 0.707}, 0.1 * grown + 1),
        ({"mscale": 0.707, "mscale_all_dim": 0}, 0.1 * grown + 1),
    ]:
        assert YaRN(**by, **options).attention(None) == pytest.approx(expected, abs=1e-15), options


# Rules that depend on the length


@pytest.mark.parametrize("kind", [Linear, NTKAware, ByParts, YaRN, YarnArticle])
@pytest.mark.parametrize("length", [1, 512, 513, 2048])
def test_without_a_factor_it_comes_from_the_length(kind, length):
    rule, fixed = (kind(original_max_position_embeddings=512, factor=f) for f in (None, max(1.0, length / 512)))
    assert (rule.needs_length, fixed.needs_length) == (True, False)
    ours, expected = extended(rule, 1e4, 12, length), extended(fixed, 1e4, 12)
    assert torch.equal(ours.frequency, expected.frequency)
    assert ours.attention_factor == expected.attention_factor
    if length <= 512:
        assert_frequencies(ours, plain(1e4, 12))


def test_dynamic_ntk_of_factor_1_is_dynamic_scaling():
    for length in (100, 512, 700, 4096):
        both = (rule(original_max_position_embeddings=512) for rule in (NTKAware, lambda **o: DynamicNTK(factor=1, **o)))
        a, b = (extended(rule, 1e4, 12, length).frequency for rule in both)
        torch.testing.assert_close(a, b, rtol=1e-14, atol=0)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_nothing_is_remembered(rule):
    fresh = extended(rule, 1e4, 12, 600)
    for length in (10, 100_000, 512):
        extended(rule, 1e4, 12, length)
    again = extended(rule, 1e4, 12, 600)
    assert torch.equal(again.frequency, fresh.frequency)
    assert again.attention_factor == fresh.attention_factor
    lengths = {tuple(extended(rule, 1e4, 12, length).frequency.tolist()) for length in (512, 600, 4000)}
    assert (len(lengths) > 1) == rule.needs_length


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.needs_length], ids=name_of)
def test_a_rule_that_needs_a_length_says_so(rule):
    with pytest.raises(ValueError, match=f"{rule.rope_type!r} depends on the length of the text, got length=None"):
        extended(rule, 1e4, 12)


# Any spectrum


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_each_head_of_a_spectrum_is_extended_alike_and_learns(rule):
    draw = torch.randn(3, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def new(frequency):
        return rule(frequency, base=1e4, rotary_dim=12, length=2000).frequency

    whole = new(draw)
    assert whole.shape == draw.shape
    assert torch.equal(whole[1, 0], new(draw[1, 0]))
    torch.testing.assert_close(new(-draw), -whole)
    assert torch.autograd.gradcheck(new, draw)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_frequencies_never_grow(rule):
    found = extended(rule, 1e4, 12, 2000).frequency
    assert (found <= torch.tensor(plain(1e4, 12), dtype=torch.float64) * (1 + 1e-15)).all()
    assert (found >= 0).all()


# Specifications


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_survives_json(rule):
    assert extension.parse(json.loads(json.dumps(rule.spec()))) == rule


def test_every_rule_is_known_by_its_name():
    assert {type(rule) for rule in RULES} == set(extension.RULES.values())
    assert all(kind.rope_type == name for name, kind in extension.RULES.items())


def test_names_and_old_spellings():
    assert extension.parse("llama3") == Llama3()
    assert extension.parse(None) is extension.parse("default") is extension.parse({"rope_type": "default"}) is None
    assert extension.parse({"type": "linear", "factor": 2}) == Linear(factor=2)
    assert extension.parse({"type": "linear", "rope_type": "linear", "factor": 2, "beta_fast": None}) == Linear(factor=2)
    lists = {"short_factor": [1], "long_factor": [2], "original_max_position_embeddings": 8.0, "factor": 2}
    assert extension.parse({"type": "su", **lists}) == extension.parse({"rope_type": "longrope", **lists})


BY = {"factor": 2.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("yan", r"rope_type 'yan'.*default, linear, .*yarn.*'yarn'"),
        (3, r"extension.*got 3"),
        ("yarn", r"'yarn'.*original_max_position_embeddings"),
        ("linear", r"'linear'.*original_max_position_embeddings"),
        ({"rope_type": "yarn", **BY, "beta": 3}, r"'yarn'.*mscale_all_dim, got beta$"),
        ({"rope_type": "yarn", **BY, "rope_theta": 3}, r"got rope_theta; extension.options.*config's"),
        ({"rope_type": "yarn", **BY, "attn_factor": 3}, r"got attn_factor; attn_factor.*vLLM's"),
        ({"rope_type": "default", "factor": 3}, r"'default'.*got factor"),
        ({"rope_type": "yarn", "type": "linear", **BY}, r"got 'yarn'.*'linear'"),
        ({"rope_type": "linear", "factor": 0.5}, r"factor.*1, got 0.5"),
        ({"rope_type": "linear", "factor": "4"}, r"factor.*got '4'"),
        ({"rope_type": "linear", "factor": math.nan}, r"factor.*got nan"),
        ({"rope_type": "dynamic", **BY, "factor": 0.5}, r"factor.*1, got 0.5"),
        ({"rope_type": "llama3", "factor": 0.5}, r"factor.*1, got 0.5"),
        ({"rope_type": "llama3", "low_freq_factor": 5}, r"high_freq_factor.*low_freq_factor, got 4.0.*5"),
        ({"rope_type": "yarn", **BY, "truncate": 0}, r"truncate.*True.*False, got 0"),
        ({"rope_type": "yarn", **BY, "ramp": "log"}, r"ramp.*'index'.*'turns', got 'log'"),
        ({"rope_type": "yarn", **BY, "ramp": 3}, r"ramp.*got 3"),
        ({"rope_type": "yarn", **BY, "ramp": "turns", "truncate": False}, "ramp in turns"),
        ({"rope_type": "yarn", **BY, "beta_fast": 0.5}, r"beta_fast.*beta_slow.*got 0.5.*1.0"),
        ({"rope_type": "yarn-article", **BY, "beta_fast": 0.5}, r"beta_fast.*beta_slow.*got 0.5.*1.0"),
        ({"rope_type": "yarn", **BY, "attention_factor": 0.0}, r"attention_factor.*got 0.0"),
        ({"rope_type": ["yarn"]}, r"rope_type.*got \['yarn'\]"),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6.5}, r"whole number.*got 6.5"),
        ({"rope_type": "proportional", "partial_rotary_factor": 1.5}, "above 0 and at most 1, got 1.5"),
        (
            {"rope_type": "longrope", **BY, "short_factor": [1], "long_factor": [1, 2]},
            "pair, got 1 and 2",
        ),
        ({"rope_type": "longrope", **BY, "short_factor": [0], "long_factor": [1]}, "short_factor"),
        ({"rope_type": "longrope", **BY, "short_factor": [1], "long_factor": [1], "long_mscale": 1}, "got one of them"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(spec, words):
    with pytest.raises((ValueError, TypeError), match=words):
        extension.parse(spec)


def test_what_does_not_fit_a_spectrum_is_said():
    lists = {"short_factor": [1, 1], "long_factor": [1, 2], "original_max_position_embeddings": 8}
    with pytest.raises(ValueError, match=r"attention_factor.*short_mscale.*long_mscale"):
        LongRoPE(**lists)
    with pytest.raises(ValueError, match="2 pairs, got 6"):
        extended(LongRoPE(**lists, factor=2.0), 1e4, 12, 9)
    with pytest.raises(ValueError, match="got rotary_dim=2"):
        extended(NTKAware(factor=2.0), 1e4, 2)
    with pytest.raises(ValueError, match=r"base.*1, got 1"):
        extended(YaRN(**BY), 1.0, 12)


# Whole configs, and how frameworks read them

YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096, "rope_theta": 5e5}


def read(parameters, **options):
    return extension.options(parameters, head_dim=64, **options)


def attention(framework, **keys):
    return extension.parse(read(YARN | keys, framework=framework)["extension"]).attention(None)


def test_options_are_those_of_rope():
    made = read({**YARN, "partial_rotary_factor": 0.5})
    assert made == {
        "base": 5e5,
        "rotary_dim": 32,
        "extension": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096},
    }
    assert rw.create("rope", head_dim=64, **made).rotary_dim == 32
    assert read(None) == read({}) == {"base": 10000.0}
    assert read({"type": "default"}, rope_theta=7.0) == {"base": 7.0}
    with pytest.raises(ValueError, match="got mrope_section"):
        read({"rope_type": "default", "mrope_section": [1, 2, 3]})


def test_what_lacks_comes_from_the_longest_position():
    assert read({"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=512)["extension"] == {
        "rope_type": "dynamic",
        "factor": 2.0,
        "original_max_position_embeddings": 512,
    }
    yarn = {"rope_type": "yarn", "original_max_position_embeddings": 512, "factor": None}
    assert read(yarn, max_position_embeddings=2048)["extension"]["factor"] == 4
    assert "factor" not in read(yarn)["extension"]
    assert read({**yarn, "factor": 3.0}, max_position_embeddings=2048)["extension"]["factor"] == 3


def test_layers_of_several_types():
    nested = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "linear": None}
    assert read(nested, layer_type="sliding_attention") == {"base": 1e4}
    assert read(nested, layer_type="full_attention") == read(YARN)
    with pytest.raises(ValueError, match=r"one of full_attention, sliding_attention, linear: .*got None"):
        read(nested)
    with pytest.raises(ValueError, match=r"layer_type 'full'.*Did you mean 'full_attention'"):
        read(nested, layer_type="full")
    with pytest.raises(ValueError, match=r"layers.*'linear'"):
        read(nested, layer_type="linear")


def test_transformers_does_not_see_truncate_in_a_nested_dictionary():
    nested = {"full_attention": {**YARN, "truncate": False}}
    kept, lost = (read(nested, layer_type="full_attention", framework=name)["extension"] for name in (None, "transformers"))
    assert kept["truncate"] is False
    assert "truncate" not in lost
    assert read(nested["full_attention"], framework="transformers")["extension"]["truncate"] is False


def test_vllm_reads_attn_factor_alone():
    own = 0.1 * math.log(16) + 1
    assert attention("vllm", attention_factor=1.0) == pytest.approx(own)
    assert attention("vllm", mscale=1.0, mscale_all_dim=1.0) == pytest.approx(own)
    assert attention("vllm", attn_factor=0.5) == pytest.approx(0.5 * own)
    assert attention("vllm", attn_factor=0.5, apply_yarn_scaling=False) == 0.5
    assert attention(None, mscale=1.0, mscale_all_dim=1.0) == attention("transformers", attention_factor=1.0) == 1
    with pytest.raises(ValueError, match=r"extrapolation_factor.*1"):
        attention("vllm", extrapolation_factor=0.5)


def test_vllm_s_dynamic_is_static():
    spec = {"rope_type": "dynamic", "factor": 4.0}
    rule = extension.parse(read(spec, max_position_embeddings=512, framework="vllm")["extension"])
    grown = extension.parse(read(spec, max_position_embeddings=512)["extension"])
    assert not rule.needs_length
    torch.testing.assert_close(extended(rule, 1e4, 12).frequency, extended(grown, 1e4, 12, 2048).frequency)
    assert read({"rope_type": "dynamic", "alpha": 7.0}, framework="vllm")["extension"] == NTKAware(factor=7.0).spec()


def test_mlx_reads_one_mscale_alone():
    assert attention("mlx", attention_factor=1.0) == pytest.approx(0.1 * math.log(16) + 1)
    assert attention("mlx", mscale=0.5) == pytest.approx(0.05 * math.log(16) + 1)
    assert attention("mlx", mscale=0.5, mscale_all_dim=0.5) == 1
    assert "truncate" not in read({**YARN, "truncate": False}, framework="mlx")["extension"]
    with pytest.raises(ValueError, match=r"mlx-lm.*rope_type 'dynamic'"):
        read({"rope_type": "dynamic", "factor": 2.0}, framework="mlx")
    lists = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0], "original_max_position_embeddings": 8}
    long = read({"rope_type": "longrope", "factor": 2.0, **lists}, max_position_embeddings=16, framework="mlx")["extension"]
    assert long["short_factor"] == [3.0, 4.0]
    assert read({"rope_type": "llama3"}, max_position_embeddings=64, framework="mlx") == read({"rope_type": "llama3"})
    short = read({"rope_type": "yarn", "factor": 4.0}, max_position_embeddings=64, framework="mlx")["extension"]
    assert short["original_max_position_embeddings"] == 4096


@pytest.mark.parametrize("framework", ["vllm", "mlx"])
def test_longrope_goes_by_the_config_s_length(framework):
    lists = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0], "original_max_position_embeddings": 8}
    spec = {"rope_type": "longrope", **lists, "attention_factor": 1.5, "factor": 3.0}
    found = extension.parse(read(spec, max_position_embeddings=64, framework=framework)["extension"])
    assert found.attention(64) == pytest.approx(math.sqrt(1 + math.log(8) / math.log(8)))
    with pytest.raises(ValueError, match=r"longrope.*max_position_embeddings"):
        read(spec, framework=framework)
    scaled = {**spec, "short_mscale": 1.1, "long_mscale": 1.2}
    found = extension.parse(read(scaled, max_position_embeddings=64, framework=framework)["extension"])
    assert (found.attention(64) == 1.2) is (framework == "vllm")


def test_vllm_s_deepseek_has_the_mscales():
    spec = {**YARN, "rope_type": "deepseek_yarn", "mscale": 0.7, "mscale_all_dim": 1.0}
    wanted = (0.07 * math.log(16) + 1) / (0.1 * math.log(16) + 1)
    for framework in (None, "vllm"):
        assert extension.parse(read(spec, framework=framework)["extension"]).attention(None) == pytest.approx(wanted)
    halved = read({**spec, "attn_factor": 0.5}, framework="vllm")["extension"]
    assert extension.parse(halved).attention(None) == pytest.approx(0.5 * wanted)


def test_frameworks_pass_over_keys_that_they_do_not_know():
    llama = {**YARN, "finetuned": True}
    assert read(llama, framework="transformers") == read(YARN, framework="transformers")
    hunyuan = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}
    assert read(hunyuan, framework="vllm")["extension"] == NTKAware(factor=1000.0).spec()
    with pytest.raises(ValueError, match="got finetuned"):
        read(llama)


def test_what_a_dictionary_says_of_its_length_counts_unless_a_framework_does_not_look():
    spec = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512}
    found = {name: read(spec, max_position_embeddings=2048, framework=name)["extension"] for name in (None, "transformers")}
    assert [each["original_max_position_embeddings"] for each in found.values()] == [512, 2048]
    nested, beside = {"full": {**YARN, "original_max_position_embeddings": 512}}, {"original_max_position_embeddings": 64}
    assert read(nested, layer_type="full", **beside)["extension"]["original_max_position_embeddings"] == 512
    assert read(nested["full"], **beside)["extension"]["original_max_position_embeddings"] == 64


def test_channels_that_turn_are_told_beside_the_dictionary_too():
    assert read(YARN, partial_rotary_factor=0.5)["rotary_dim"] == read({**YARN, "partial_rotary_factor": 0.5})["rotary_dim"]
    assert read({"rope_type": None}) == read({})
    share = read({"rope_type": "proportional"}, partial_rotary_factor=0.25)["extension"]
    assert share["partial_rotary_factor"] == 0.25


def test_frameworks_are_these():
    with pytest.raises(ValueError, match=r"framework 'tgi'.*transformers, vllm, mlx"):
        read(YARN, framework="tgi")
    for name in ("vllm", "mlx"):
        with pytest.raises(ValueError, match="'yarn'"):
            read({"rope_type": "yarn", "original_max_position_embeddings": 8}, framework=name)
