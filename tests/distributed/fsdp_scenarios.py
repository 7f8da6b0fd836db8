"""Models sharded by FSDP2 over two processes, compared with the same models unsharded; run by `test_fsdp.py`.

    python -m tests.distributed.fsdp_scenarios RANK FOLDER

A scenario is a function that raises an error if sharding changes something. Both processes run all of them, in one order,
and write what went wrong to FOLDER/RANK.json, by name of the scenario.
"""

import copy
import datetime
import json
import sys
import traceback
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import ropewalk as rw
from ropewalk.code import unseal
from ropewalk.encodings import REGISTRY
from ropewalk.factory import Chained
from ropewalk.models import LM, ViT

SECONDS = 60
"""After which a process that waits for the other one gives up."""

POLICIES = {
    "float32": MixedPrecisionPolicy(),
    "bfloat16": MixedPrecisionPolicy(param_dtype=torch.bfloat16),  # casts forward inputs by default
}
SMALL = {"width": 32, "depth": 2, "heads": 2}
CHAINS = {
    1: {"parts": [{"name": "rope"}, {"name": "t5-bias"}]},
    2: {"parts": [{"name": "mixed"}, {"name": "swin-bias"}]},
}


# Models


def make_vit(name, axes=2):
    size, patch = ((8, 12), 4) if axes == 2 else ((4, 8, 4), (2, 4, 2))
    options = CHAINS[axes] if name == "chain" else {}
    return ViT(**SMALL, encoding=name, options=options, size=size, patch=patch, classes=3, pool="class")


def make_lm(name):
    options = CHAINS[1] if name == "chain" else {}
    return LM(11, **SMALL, kv_heads=1, encoding=name, options=options, length=9)


def make_timm(model, name):
    import timm

    from ropewalk.adapters.timm import install

    shape = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 3}
    return install(timm.create_model(model, **shape), name)


def make_llama(name):
    from transformers import LlamaConfig, LlamaForCausalLM

    from ropewalk.adapters.transformers import install

    config = LlamaConfig(
        vocab_size=11, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, head_dim=12
    )
    options = {"layers": 2} if name == "mixed" else {}
    return install(LlamaForCausalLM(config), name, **options)


def draw_images(*sides):
    return torch.randn(2, 3, *sides, generator=torch.Generator().manual_seed(3 + dist.get_rank()))


def draw_tokens():
    return torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(3 + dist.get_rank()))


def find_parts(model):
    """The blocks of a model and its encoding, each of which is sharded by itself."""
    if isinstance(model, ViT | LM):
        return list(model.blocks), model.encoding
    if hasattr(model, "rope"):
        return list(model.blocks), model.rope.encoding
    return list(model.model.layers), model.model.rotary_emb.encoding


def shard(model, policy):
    """Shard blocks and encoding apart: blocks and what is around them by the policy, the encoding in float32."""
    blocks, encoding = find_parts(model)
    for block in blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(encoding)
    return fully_shard(model, mp_policy=policy)


# Scenarios


def compare_with_unsharded(make, draw, policy):
    """Outputs and gradients. Each process has a batch of its own; gradients are averaged.

    Nothing is asserted before the last exchange between the processes: one of them alone may find an error.
    """
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for parameter in find_parts(model)[1].parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    whole = copy.deepcopy(model)
    exact = policy is POLICIES["float32"]
    if not exact:
        whole.bfloat16()  # which leaves encodings alone
    given = draw()
    shard(model, policy)
    outputs = []
    for each in (model, whole):
        narrow = each is whole and not exact and given.is_floating_point()
        found = each(given.bfloat16() if narrow else given)
        outputs.append(found if isinstance(found, torch.Tensor) else found.logits)
        outputs[-1].float().square().sum().backward()
    gradients = {}
    for (name, sharded), plain in zip(model.named_parameters(), whole.parameters(), strict=True):
        average = torch.zeros_like(plain, dtype=torch.float32) if plain.grad is None else plain.grad.float()
        dist.all_reduce(average)
        found = torch.zeros_like(average) if sharded.grad is None else sharded.grad.full_tensor()
        gradients[name] = found, average / 2
    mine, theirs = outputs
    assert mine.dtype is theirs.dtype is (torch.float32 if exact else torch.bfloat16)
    assert theirs.abs().max() > 0
    # In bfloat16 too: a code that has lost anything changes some output.
    assert_near("outputs", mine, theirs, 1e-6 if exact else 0.0)
    for name, (sharded, average) in gradients.items():
        assert sharded.dtype is torch.float32, name
        assert_near(f"gradient of {name}", sharded, average, 1e-5 if exact else 2**-6)


def assert_near(what, mine, theirs, tolerance):
    error, size = (mine - theirs).abs().max().item(), theirs.abs().max().item()
    assert error <= tolerance * size, f"{what}: the error is {error:.3g}, the largest value {size:.3g}"


def reset_sharded(make):
    """From the meta device, sharded: parameters and buffers are what the first process alone would have drawn."""
    torch.manual_seed(0)
    plain = make()
    with torch.device("meta"):
        sharded = make()
    fully_shard(sharded)
    for start, seed in ((type(sharded).reset_parameters, 0), (type(sharded).init_non_persistent_buffers, None)):
        before = [parameter.full_tensor() for parameter in sharded.parameters()] if seed is None else []
        if seed is not None:
            sharded.to_empty(device="cpu")
            torch.manual_seed(seed + dist.get_rank())
            with torch.no_grad():
                for tensor in (*sharded.parameters(), *sharded.buffers()):
                    tensor.fill_(float("nan"))
        start(sharded)
        wanted = before or [parameter.detach() for parameter in plain.parameters()]
        for parameter, value in zip(sharded.parameters(), wanted, strict=True):
            assert torch.equal(parameter.full_tensor(), value)
        for buffer, value in zip(sharded.buffers(), plain.buffers(), strict=True):
            assert torch.equal(buffer, value)
            buffer.fill_(float("nan"))


def reset_whole_model():
    """A ViT begun on the meta device trains, and all of it has values."""
    with torch.device("meta"):
        vit = make_vit("mixed")
    shard(vit, POLICIES["float32"])
    vit.to_empty(device="cpu")
    vit.reset_parameters()
    for name, parameter in vit.named_parameters():
        assert parameter.full_tensor().isfinite().all(), name
    assert vit(draw_images(8, 12)).isfinite().all()


def leave_meta_unset(name):
    """Sharded on the meta device and emptied: what nobody drew or loaded is refused; loaded, it is what was saved."""
    torch.manual_seed(0)
    plain = make_vit(name)
    images, state = draw_images(8, 12), {key: value.clone() for key, value in plain.state_dict().items()}

    def empty():
        with torch.device("meta"):
            model = make_vit(name)
        return shard(model, POLICIES["float32"]).to_empty(device="cpu")

    if list(plain.encoding.parameters()):
        words = find_refusal(lambda: empty()(images))
        assert "reset_parameters()" in words, words
    vit = empty()  # another one: after a forward pass that fails, FSDP2 leaves parameters unsharded
    set_model_state_dict(vit, state, options=StateDictOptions(full_state_dict=True))
    torch.testing.assert_close(vit(images), plain(images))


def find_refusal(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


def refuse_cast_positions():
    """Positions that the root casts are refused, not rounded."""
    vit = shard(make_vit("axial"), POLICIES["bfloat16"])
    words = find_refusal(lambda: vit(draw_images(8, 12), 100 * torch.rand(6, 2)))
    assert "floating positions must be at least float32, got torch.bfloat16" in words, words
    assert "cast_forward_inputs=False" in words, words


def refuse_cast_encodings():
    """An encoding that is sharded with the model, and so in bfloat16, is refused."""
    vit = fully_shard(make_vit("mixed"), mp_policy=POLICIES["bfloat16"])
    words = find_refusal(lambda: vit(draw_images(8, 12)))
    assert "mixed computes in float32 or better" in words, words
    assert "without mixed precision" in words, words


class OwnBlock(nn.Module):
    """Somebody's block, which gets the code as it is."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)

    def forward(self, x, code):
        return rw.attend_qkv(self.qkv(x).unflatten(-1, (6, 12)), 2, unseal(code))


def refuse_cast_codes():
    """Codes that are handed to a block unsealed are refused; without the cast they are used."""
    for name in ("rope", "alibi", "t5-bias"):
        code = rw.create(name, head_dim=12, heads=2)(torch.arange(9))
        block = fully_shard(OwnBlock(), mp_policy=POLICIES["bfloat16"])
        words = find_refusal(lambda block=block, code=code: block(torch.zeros(1, 9, 24), code))
        assert "cast_forward_inputs=False" in words, words
        kept = MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False)
        block = fully_shard(OwnBlock(), mp_policy=kept)
        assert block(torch.zeros(1, 9, 24, dtype=torch.bfloat16), code).dtype is torch.bfloat16


def list_scenarios():
    """All scenarios by name."""
    found = {}
    for policy, mixed in POLICIES.items():
        compare = partial(compare_with_unsharded, policy=mixed)
        for name in [*REGISTRY, "chain"]:
            allowed = None if name == "chain" else REGISTRY[name].allowed_axes
            if allowed is None or 1 in allowed:
                found[f"LM, {name}, {policy}"] = partial(compare, partial(make_lm, name), draw_tokens)
            if allowed is None or 2 in allowed:
                found[f"ViT, {name}, {policy}"] = partial(compare, partial(make_vit, name), partial(draw_images, 8, 12))
        for name in ("mrope", "axial"):
            make = partial(make_vit, name, axes=3)
            found[f"volumes, {name}, {policy}"] = partial(compare, make, partial(draw_images, 4, 8, 4))
        for model in ("vit_tiny_patch16_224", "vit_small_patch16_rope_mixed_224"):
            for name in (None, "mixed", "swin-bias", "learned-ape"):
                make = partial(make_timm, model, name)
                found[f"{model}, {name}, {policy}"] = partial(compare, make, partial(draw_images, 16, 16))
        for name in (None, "mixed", "t5-bias", "alibi", "transformer-xl", "string-cayley"):
            found[f"Llama, {name}, {policy}"] = partial(compare, partial(make_llama, name), draw_tokens)
    for name, kind in [*REGISTRY.items(), ("chain", Chained)]:
        for i, example in enumerate(kind.examples()):
            found[f"reset, {name}, {i}"] = partial(reset_sharded, partial(rw.factory.from_config, example.config()))
    for name in ("mixed", "axial", "learned-ape", "comrope-ap"):
        found[f"unset, {name}"] = partial(leave_meta_unset, name)
    refusals = (refuse_cast_positions, refuse_cast_encodings, refuse_cast_codes)
    return found | {each.__name__: each for each in (reset_whole_model, *refusals)}


def main(rank, folder):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="DTensor random operators may not have complete support")
    store, patience = f"file://{folder / 'store'}", datetime.timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=patience)
    errors = {}
    for name, scenario in list_scenarios().items():
        try:
            scenario()
        except Exception:
            errors[name] = traceback.format_exc(limit=-3)
            print(name, errors[name], file=sys.stderr)
        dist.barrier()  # if one process waits for what the other left out, both end here, after SECONDS
    (folder / f"{rank}.json").write_text(json.dumps(errors))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
