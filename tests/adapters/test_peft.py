"""LoRA of PEFT on installed models: on q and k, merged, saved, and with the encoding trained beside it."""

import copy

import pytest
import torch

from ropewalk.adapters.transformers import fold_into, install, installed, uninstall
from tests.adapters.test_use import IMAGE_KINDS, KINDS, installed_llama, installed_vit, logits_of, small_llama
from tests.adapters.timm.test_install import images
from tests.adapters.transformers.test_install import SMALL, words

peft = pytest.importorskip("peft", reason="LoRA on installed models is tested with peft, which is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing")  # of transformers, to peft


def adapted(model, **options):
    """A model with LoRA on q and k that is far from its start."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "k_proj"], init_lora_weights=False, **options)
    return peft.get_peft_model(model, config).eval()


def merged_by_hand(model, whole):
    """A copy of a model whose projections have what the adapters of another add to them."""
    model = copy.deepcopy(model)
    for layer, other in zip(model.model.layers, whole.base_model.model.model.layers, strict=True):
        for name in ("q_proj", "k_proj"):
            lora = getattr(other.self_attn, name)
            added = lora.lora_B["default"].weight @ lora.lora_A["default"].weight * lora.scaling["default"]
            getattr(layer.self_attn, name).weight.data += added.data
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_lora_adds_to_q_and_k(kind, tmp_path):
    plain, given = installed_llama(kind), words(2, 9)
    whole = adapted(copy.deepcopy(plain))
    wanted = logits_of(merged_by_hand(plain, whole), given)
    assert (wanted - logits_of(plain, given)).abs().max() > 0.1
    torch.testing.assert_close(logits_of(whole, given), wanted, **SMALL)
    whole.merge_adapter()
    torch.testing.assert_close(logits_of(whole, given), wanted, **SMALL)
    whole.unmerge_adapter()
    whole.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(plain), tmp_path).eval()
    torch.testing.assert_close(logits_of(again, given), wanted, **SMALL)
    alone = whole.merge_and_unload()
    torch.testing.assert_close(logits_of(alone, given), wanted, **SMALL)
    assert installed(alone).name == installed(plain).name


@pytest.mark.parametrize("kind", ["learned", "comrope-ld"])
def test_lora_trains_an_encoding_that_it_is_told_to_save(kind, tmp_path):
    plain, given = installed_llama(kind), words(2, 9)
    assert not [name for name, weight in adapted(copy.deepcopy(plain)).named_parameters()
                if weight.requires_grad and "lora" not in name]  # fmt: skip
    whole = adapted(copy.deepcopy(plain), modules_to_save=["rotary_emb"])
    whole(given, labels=given).loss.backward()
    own = [weight for name, weight in whole.named_parameters() if "encoding" in name and weight.requires_grad]
    assert own
    with torch.no_grad():
        for weight in own:
            assert weight.grad.abs().max() > 0
            weight.add_(0.1)
    assert (logits_of(whole, given) - logits_of(merged_by_hand(plain, whole), given)).abs().max() > 1e-2
    whole.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(plain), tmp_path).eval()
    assert torch.equal(logits_of(again, given), logits_of(whole, given))
    torch.testing.assert_close(logits_of(whole.merge_and_unload(), given), logits_of(again, given), **SMALL)


def test_what_peft_wraps_is_what_holds_the_encoding():
    with pytest.raises(TypeError, match=r"ModulesToSaveWrapper.*modules_to_save.*rotary_emb"):
        adapted(installed_llama("learned"), modules_to_save=["encoding"])(words(1, 5))


def test_a_model_with_lora_gets_an_encoding():
    whole, given = adapted(small_llama()), words(2, 9)
    before = logits_of(whole, given)
    torch.testing.assert_close(logits_of(install(whole), given), before, **SMALL)
    assert (logits_of(install(whole, "comrope-ld"), given) - before).abs().max() > 1e-3
    with pytest.raises(TypeError, match="merge them first"):
        fold_into(whole)
    assert torch.equal(logits_of(uninstall(whole), given), before)


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_lora_in_vision_transformers(kind):
    plain, given = installed_vit(kind), images()
    whole = peft.get_peft_model(
        copy.deepcopy(plain), peft.LoraConfig(target_modules=["qkv"], init_lora_weights=False)
    ).eval()
    for block, other in zip(plain.blocks, whole.base_model.model.blocks, strict=True):
        lora = other.attn.qkv
        added = lora.lora_B["default"].weight @ lora.lora_A["default"].weight * lora.scaling["default"]
        block.attn.qkv.weight.data += added.data
    torch.testing.assert_close(whole(given), plain(given), **SMALL)
    torch.testing.assert_close(whole.merge_and_unload()(given), plain(given), **SMALL)
