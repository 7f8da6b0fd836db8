"""Codes reach blocks as they were made, whatever a wrapper of modules does to the tensors among a block's inputs."""

import timm
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.utils import _cast_forward_inputs
from transformers import LlamaConfig, LlamaForCausalLM

import ropewalk as rw
from ropewalk.adapters.timm import install as install_in_timm
from ropewalk.adapters.transformers import install as install_in_transformers
from ropewalk.code import Sealed, unseal
from ropewalk.models import LM, ViT


def cast_as_fsdp2_does(module, args, kwargs):
    """A hook before a block: every floating tensor that FSDP2 finds among its inputs becomes bfloat16."""
    args, kwargs = _cast_forward_inputs(torch.bfloat16, *args, **kwargs)
    return args, kwargs


def run_with_cast_inputs(model, blocks, *inputs):
    """Outputs of a bfloat16 model with and without hooks that cast the inputs of its blocks to bfloat16."""
    narrow = model.bfloat16()
    expected = narrow(*inputs)
    for block in blocks:
        block.register_forward_pre_hook(cast_as_fsdp2_does, with_kwargs=True)
    return expected, narrow(*inputs)


def test_a_code_is_found_by_a_cast_and_a_sealed_one_is_not():
    code = rw.create("rope", head_dim=12)(torch.arange(5))
    (bare, sealed), _ = _cast_forward_inputs(torch.bfloat16, code, Sealed(code))
    assert bare.q_angle.dtype is torch.bfloat16
    assert unseal(sealed) is code
    assert unseal(code) is code
    assert "Rotation" in repr(sealed)


def test_vit_and_lm_hand_sealed_codes_to_blocks():
    images, tokens = torch.randn(2, 3, 12, 20).bfloat16(), torch.randint(11, (2, 9))
    size = {"width": 24, "depth": 2, "heads": 2}
    vit = ViT(**size, encoding="mixed", size=(12, 20), patch=4, classes=3)
    biased = LM(11, **size, encoding="alibi")
    for model, given in ((vit, images), (LM(11, **size), tokens), (biased, tokens)):
        expected, out = run_with_cast_inputs(model, model.blocks, given)
        assert torch.equal(out, expected)


def test_the_timm_adapter_hands_sealed_codes_to_blocks():
    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 3}
    for name in ("vit_tiny_patch16_224", "vit_small_patch16_rope_224"):
        model = install_in_timm(timm.create_model(name, **shape).eval(), "mixed")
        expected, out = run_with_cast_inputs(model, model.blocks, torch.randn(2, 3, 32, 32).bfloat16())
        assert torch.equal(out, expected)


def test_the_transformers_adapter_hands_sealed_codes_to_layers():
    config = LlamaConfig(
        vocab_size=11, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, head_dim=12
    )
    tokens = torch.randint(11, (2, 9))
    for name in (None, "rope", "alibi", "string-circulant"):  # rope's code goes through without hooks
        model = install_in_transformers(LlamaForCausalLM(config).eval(), name)
        expected, out = run_with_cast_inputs(model, model.model.layers, tokens)
        assert torch.equal(out.logits, expected.logits)


@torch.no_grad()
def test_compiled_blocks_take_sealed_codes():
    compiled = CompileCounterWithBackend("eager")
    vit = ViT(width=24, depth=2, heads=2, encoding="mixed", size=(12, 20), patch=4, classes=3)
    images = torch.randn(2, 3, 12, 20)
    expected = vit(images)
    for block in vit.blocks:
        block.compile(fullgraph=True, backend=compiled)
    torch.testing.assert_close(vit(images), expected)
    torch.testing.assert_close(vit(images), expected)
    assert compiled.frame_count == 1


def test_carriers_of_codes_are_no_containers():
    """A dataclass, a tuple or a pytree would be looked into."""
    from ropewalk.adapters.timm.attention import Handed
    from ropewalk.adapters.transformers.apply_rotary import Few
    from ropewalk.adapters.transformers.code_state import Carried, Scored
    from ropewalk.adapters.transformers.token_rows import Rows, SealedTable

    for kind in (Sealed, Handed, Few, Carried, Scored, Rows, SealedTable):
        assert not issubclass(kind, tuple | list | dict | torch.nn.Module)
        assert not hasattr(kind, "__dataclass_fields__")
        assert kind not in torch.utils._pytree.SUPPORTED_NODES
