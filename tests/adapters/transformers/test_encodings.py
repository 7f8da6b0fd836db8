"""Models of transformers with other encodings, against matrices, masks and embeddings written out; and with caches."""

import copy
import sys

import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.models.t5.modeling_t5 import T5Attention

import ropewalk as rw
from ropewalk.adapters.transformers import attention_functions, install, installed
from tests.adapters.transformers.test_install import (
    DECODERS,
    LAYERS,
    SMALL,
    answers,
    dinov3,
    gemma3,
    gpt_neox,
    llama,
    one_for_all,
    pictures,
    unturned,
    words,
)

ROPE_ALIBI = {"name": "chain", "parts": [{"name": "rope"}, {"name": "alibi"}]}
ROTARY = {
    "rope": dict(base=100.0, interleaved=True),
    "learned": dict(name="rope", learned=True, layers=LAYERS),
    "xpos": dict(),
    "mixed": dict(layers=LAYERS),
    "comrope-ld": dict(std=0.02, block=4),
    "liere": dict(scale=0.01, layers=LAYERS, block=5),
    "string-cayley": dict(axes=1),
}


def asked(name):
    return {"name": name, **ROTARY[name]}


def turned_by_matrices(monkeypatch, model, encoding, positions):
    """Let a model of transformers turn q and k by the matrices of an encoding, layer after layer."""
    code = encoding(positions)
    every = [code] * LAYERS if code.layers is None else [code[i] for i in range(LAYERS)]
    calls = iter(range(1000))

    def turn(x, matrices):
        return torch.einsum("...hnij,bhnj->bhni", matrices.repeat_interleave(x.shape[1] // matrices.shape[-4], -4), x)

    def apply(q, k, cos, sin):
        own = every[next(calls) % LAYERS]
        return turn(q, own.matrices()), turn(k, own.key_matrices())

    monkeypatch.setattr(sys.modules[type(model).__module__], "apply_rotary_pos_emb", apply)


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize("make", [llama, gemma3, gpt_neox])
def test_q_and_k_are_turned_by_the_matrices_of_each_layer(make, name, monkeypatch):
    host, given = make(), words(3, 5)
    model = install(copy.deepcopy(host), one_for_all(make, asked(name)))
    ours, gradients = answers(model, given)
    turned_by_matrices(monkeypatch, host, installed(model), torch.arange(5))
    theirs, wanted = answers(host, given)
    torch.testing.assert_close(ours, theirs, **SMALL)
    torch.testing.assert_close({each: gradients[each] for each in wanted}, wanted, rtol=1e-3, atol=1e-3)
    learned = {each for each in gradients if "encoding" in each}
    assert bool(learned) is any(True for _ in installed(model).parameters())
    assert all(gradients[each].abs().max() > 0 for each in learned)


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
@pytest.mark.parametrize("name", ["mixed", "spherical", "liere", "string-cayley"])
def test_pictures_are_turned_by_the_matrices_of_each_layer(name, monkeypatch):
    host, given = dinov3(), pictures()
    model = install(copy.deepcopy(host), name, layers=LAYERS)
    ours = model(given).last_hidden_state
    encoding = installed(model)
    code = encoding(encoding.grid(3, 5)).prefixed(q=3, k=3)
    turned_by_matrices(monkeypatch, host, lambda _: code, None)
    torch.testing.assert_close(ours, host(given).last_hidden_state, **SMALL)


@pytest.mark.parametrize("make", DECODERS)
def test_comrope_without_deviation_begins_without_rotation(make):
    host = unturned(make())
    model, given = install(copy.deepcopy(host), "comrope-ld", std=0.0, layers=LAYERS), words(3, 9)
    assert torch.equal(model(given).logits, host(given).logits)
    assert torch.equal(install(model, "none")(given).logits, host(given).logits)


def looked_back(length):
    back = torch.arange(length)[:, None] - torch.arange(length)
    return back, torch.where(back >= 0, 0.0, float("-inf"))


def wide():
    """A Gemma whose windows hide nothing, and whose scale is not that of its heads."""
    return gemma3(sliding_window=64)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("make", "encoding"), [(llama, "alibi"), (gpt_neox, "alibi"), (wide, "alibi"), (llama, ROPE_ALIBI)])
def test_alibi_is_a_mask_written_out(make, encoding, attention):
    host, given = unturned(make()) if encoding == "alibi" else make(), words(3, 9)
    host.set_attn_implementation(attention)
    model = install(copy.deepcopy(host), encoding)
    back, causal = looked_back(9)
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
    mask = (causal - slopes[:, None, None] * back.abs()).expand(3, -1, -1, -1)
    torch.testing.assert_close(model(given).logits, host(given, attention_mask=mask).logits, **SMALL)
    weights = model(given, output_attentions=True).attentions if attention == "eager" else None
    if weights is not None:
        theirs = host(given, attention_mask=mask, output_attentions=True).attentions
        torch.testing.assert_close(weights, theirs, **SMALL)


def test_attention_with_a_bias_has_dropout():
    model, given = install(llama(attention_dropout=0.5), "alibi"), words(1, 9)
    before = model(given).logits
    assert torch.equal(model(given).logits, before)
    assert not torch.equal(model.train()(given).logits, before)


def test_the_bias_of_t5_is_a_mask_written_out_and_learns():
    host, given = unturned(llama()), words(1, 9)
    model = install(copy.deepcopy(host), "t5-bias", bidirectional=False, buckets=8, max_distance=6)
    back, causal = looked_back(9)
    bucket = T5Attention._relative_position_bucket(-back, bidirectional=False, num_buckets=8, max_distance=6)
    table = installed(model).table.detach()
    mask = (causal + table[:, bucket].repeat_interleave(4 // len(table), 0))[None]
    ours, gradients = answers(model, given)
    torch.testing.assert_close(ours, host(given, attention_mask=mask).logits.detach(), **SMALL)
    assert gradients["model.rotary_emb.encoding.table"].abs().max() > 0


@pytest.mark.parametrize("name", ["alibi", "swin-bias", "sincos", "learned-ape"])
def test_pictures_with_biases_and_embeddings(name):
    model = install(dinov3(), name, size=(3, 5))
    code = installed(model)(installed(model).grid(3, 5)).prefixed(q=3, k=3)
    seen = {}
    model.model.layer[0].norm1.register_forward_pre_hook(lambda _, args: seen.setdefault("first", args[0]))
    model.model.layer[1].norm1.register_forward_pre_hook(lambda _, args: seen.setdefault("second", args[0]))
    given = pictures()
    model(given)
    x = code.tokens(model.embeddings(given))
    torch.testing.assert_close(seen["first"], x)
    layer = model.model.layer[0]
    q, k, v = (
        getattr(layer.attention, f"{each}_proj")(layer.norm1(x)).unflatten(-1, (4, 16)).transpose(1, 2) for each in "qkv"
    )
    bias = code.scores(q, k)
    mixed = ((q @ k.mT / 4 + (0 if bias is None else bias)).softmax(-1) @ v).transpose(1, 2).flatten(2)
    x = x + layer.layer_scale1(layer.attention.o_proj(mixed))
    x = x + layer.layer_scale2(layer.mlp(layer.norm2(x)))
    torch.testing.assert_close(seen["second"], x, **SMALL)


@pytest.mark.parametrize("make", DECODERS)
@pytest.mark.parametrize("name", ["sincos", "learned-ape"])
def test_what_is_added_to_tokens_is_added_to_embeddings(make, name):
    host, given = unturned(make()), words(3, 5)
    model = install(copy.deepcopy(host), name, size=(80,))
    added = installed(model)(torch.arange(5)).offset
    embeddings = host.get_input_embeddings()(given) + added
    torch.testing.assert_close(model(given).logits, host(inputs_embeds=embeddings).logits, **SMALL)


ENCODINGS = {
    "rope": None,
    "comrope-ld": {"name": "comrope-ld", "std": 0.05, "layers": LAYERS},
    "alibi": "alibi",
    "rope + alibi": ROPE_ALIBI,
    "t5-bias": {"name": "t5-bias", "layers": LAYERS},
    "transformer-xl": "transformer-xl",
    "learned-ape": {"name": "learned-ape", "size": (80,)},
}


def padded(batch):
    """Texts that begin at different places."""
    given, mask = words(batch, 7), torch.ones(batch, 7, dtype=torch.long)
    for row in range(batch - 1):
        mask[row, : 3 - row] = 0
    return given * mask, mask


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("make", DECODERS)
def test_generating_with_a_cache_is_reading_anew(make, name):
    model = install(make(), ENCODINGS[name])
    options = dict(max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True)
    for batch, cache in ((1, None), (3, None), (3, "static")):
        given, mask = padded(batch)
        quick = model.generate(given, attention_mask=mask, cache_implementation=cache, **options)
        slow = model.generate(given, attention_mask=mask, use_cache=False, **options)
        assert torch.equal(quick.sequences, slow.sequences)
        torch.testing.assert_close(quick.logits, slow.logits, rtol=1e-4, atol=1e-4)
    last = given[-1:, mask[-1].bool()]
    alone = model(torch.cat([last, slow.sequences[-1:, 7:-1]], 1)).logits[:, 6:]
    torch.testing.assert_close(torch.stack(slow.logits, 1)[-1:], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_is_finite_in_half_precision(attention, dtype):
    """A query of padding may look at nothing."""
    model = llama()
    model.set_attn_implementation(attention)
    given, mask = padded(2)
    wanted = install(copy.deepcopy(model), ROPE_ALIBI)(given, attention_mask=mask).logits
    found = install(model, ROPE_ALIBI).to(dtype)(given, attention_mask=mask).logits.float()
    assert found.isfinite().all()
    seen = mask.bool()
    assert (found[seen] - wanted[seen]).abs().mean() < 0.05 * wanted[seen].abs().mean()


@pytest.mark.parametrize("name", ["alibi", "rope + alibi", "t5-bias"])
@pytest.mark.parametrize("make", DECODERS)
def test_reading_in_pieces_at_any_positions(make, name):
    model, given = install(make(), ENCODINGS[name]), words(3, 12)
    places = torch.stack([torch.arange(12), 2 * torch.arange(12), torch.arange(12) + 5])
    options = dict(attention_mask=torch.ones(3, 12, dtype=torch.long), position_ids=places)
    whole = model(given, **options).logits
    caches = [DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=16)]
    for cache in caches:
        found, begun = [], 0
        for size in (5, 4, 1, 2):
            piece = slice(begun, begun + size)
            mask = torch.ones(3, begun + size, dtype=torch.long)
            now = dict(attention_mask=mask, position_ids=places[:, piece], past_key_values=cache)
            found.append(model(given[:, piece], **now).logits)
            begun += size
        torch.testing.assert_close(torch.cat(found, 1), whole, rtol=1e-4, atol=1e-4)


def test_a_cache_that_is_cut_and_one_that_is_not_ours():
    model, given = install(llama(), "alibi"), words(1, 9)
    cache = DynamicCache(config=model.config)
    model(given[:, :6], past_key_values=cache)
    cache.crop(-2)
    torch.testing.assert_close(model(given[:, 4:], past_key_values=cache).logits, model(given).logits[:, 4:], **SMALL)
    other = DynamicCache(config=model.config)
    llama()(given[:, :6], past_key_values=other)
    with pytest.raises(ValueError, match=r"positions.*6.*got 0"):
        model(given[:, 6:], past_key_values=other)


@pytest.mark.parametrize("change", ["select", "repeat", "reorder", "copy"])
@torch.no_grad()
def test_positions_go_where_the_batch_of_a_cache_goes(change):
    model = install(llama(), ROPE_ALIBI)
    given, mask = padded(2)
    rows = {"select": [1, 0], "repeat": [0, 0, 1, 1], "reorder": [1, 1], "copy": [0, 1]}[change]
    cache = DynamicCache(config=model.config)
    model(given[:, :5], attention_mask=mask[:, :5], past_key_values=cache)
    if change == "select":
        cache.batch_select_indices(torch.tensor(rows))
    elif change == "repeat":
        cache.batch_repeat_interleave(2)
    elif change == "reorder":
        cache.reorder_cache(torch.tensor(rows))
    else:
        cache = copy.deepcopy(cache)
    found = model(given[rows, 5:], attention_mask=mask[rows], past_key_values=cache).logits
    wanted = model(given[rows], attention_mask=mask[rows], use_cache=False).logits[:, 5:]
    torch.testing.assert_close(found, wanted, **SMALL)
    assert isinstance(cache, DynamicCache)


def test_packed_texts_do_not_see_each_other():
    model, given = install(llama(), ROPE_ALIBI), words(1, 12)
    places = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed = model(given, position_ids=places, use_cache=False).logits
    torch.testing.assert_close(packed[:, 5:], model(given[:, 5:]).logits, **SMALL)


def test_types_of_layers_may_have_different_encodings():
    model, given = gemma3(), words(1, 9)
    both = install(copy.deepcopy(model), {"sliding_attention": None, "full_attention": "alibi"})
    none = install(copy.deepcopy(model), {"sliding_attention": None, "full_attention": "none"})
    assert not torch.allclose(both(given).logits, none(given).logits, atol=1e-3)
    for each in (both, none):
        cached = each.generate(given, max_new_tokens=5, do_sample=False)
        assert torch.equal(cached, each.generate(given, max_new_tokens=5, do_sample=False, use_cache=False))
    assert isinstance(installed(both)["full_attention"], rw.ALiBi)


def test_a_bias_is_not_lost_to_another_attention():
    model = install(llama(), "alibi")
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match=r"'ropewalk'.*'ropewalk_eager'.*got 'sdpa'"):
        model(words(1, 5))


def test_attention_that_returns_no_weights_says_so(monkeypatch):
    model, said = install(llama(), "alibi"), []
    monkeypatch.setattr(attention_functions.logger, "warning_once", said.append)
    model(words(1, 5))
    assert said == []
    assert model(words(1, 5), output_attentions=True).attentions == ()
    assert set(said) == {"attention 'ropewalk' returns no weights with output_attentions=True: 'ropewalk_eager' does"}
    model.set_attn_implementation("ropewalk_eager")
    weights = model(words(1, 5), output_attentions=True).attentions
    assert [each.shape for each in weights] == [(1, 4, 5, 5)] * LAYERS


def enable_checkpointing(model, reentrant):
    """By the name that the release of transformers has for it."""
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["rope", "comrope-ld", "t5-bias", "learned-ape"])
@pytest.mark.parametrize("make", DECODERS)
def test_checkpointing_changes_no_gradient(make, name, reentrant):
    asked = ENCODINGS[name] or {"name": "rope", "learned": True}
    model, given = install(make(), asked).train(), words(3, 5)
    plain = answers(model, given)
    enable_checkpointing(model, reentrant)
    torch.testing.assert_close(answers(model, given), plain, rtol=1e-4, atol=1e-4)
    assert any("encoding" in name and gradient.abs().max() > 0 for name, gradient in plain[1].items())


@pytest.mark.parametrize("name", ["comrope-ld", "t5-bias"])
def test_codes_are_made_once_and_by_reentrant_checkpointing_for_each_layer(name):
    model, calls = install(llama(use_cache=False), name).train(), []
    installed(model).register_forward_hook(lambda *_: calls.append("a code"))
    answers(model, words(3, 5))
    assert len(calls) == 1
    for reentrant, more in ((False, 1), (True, 1 + LAYERS)):
        calls.clear()
        enable_checkpointing(model, reentrant)
        answers(model, words(3, 5))
        assert len(calls) == more


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_of_types_of_layers_and_of_pictures(reentrant):
    both = install(gemma3(), {"sliding_attention": "mixed", "full_attention": {"name": "rope", "learned": True}})
    for model, given in ((both, words(3, 5)), (install(dinov3(), "mixed"), pictures().requires_grad_())):
        found = []
        for checkpointing in (False, True):
            if checkpointing:
                enable_checkpointing(model, reentrant)
            torch.manual_seed(0)  # DINOv3 moves its patches
            found.append(answers(model.train(), given))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
        assert any("encoding" in name and gradient.abs().max() > 0 for name, gradient in found[1][1].items())


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_one_graph(name):
    model, given = install(llama(), name), words(3, 5)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(given, use_cache=False).logits, model(given).logits, **SMALL)
