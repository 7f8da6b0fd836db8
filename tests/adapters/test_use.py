"""Installed models in the hands of other libraries: quantisation, offloading, trainers, traces."""

import copy
import warnings

import pytest
import timm
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.adapters import timm as for_timm
from ropewalk.adapters.transformers import install, installed, uninstall
from tests.adapters.timm.test_install import host as vit_host
from tests.adapters.timm.test_install import images
from tests.adapters.transformers.test_install import SMALL, llama, words

KINDS = {"own": (None, {}), "learned": (None, {"learned": True}), "comrope-ld": ("comrope-ld", {}), "alibi": ("alibi", {})}
IMAGE_KINDS = {"own": (None, {}), "comrope-ld": ("comrope-ld", {"block": 4}), "swin-bias": ("swin-bias", {})}
IN_FULL = ["model.embed_tokens", "model.rotary_emb", "model.layers.0", "model.layers.1", "model.norm", "lm_head"]


def small_llama():
    return llama(num_hidden_layers=2)


def installed_llama(kind):
    name, options = KINDS[kind]
    return install(small_llama(), name, **options)


def installed_vit(kind):
    name, options = IMAGE_KINDS[kind]
    return for_timm.install(vit_host("plain"), name, **options)


def logits_of(model, given):
    with torch.no_grad():
        return model(given).logits


# Quantisation


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_eight_bits(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchao warns of kernels that it does not find
        quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    plain, given = installed_llama(kind), words(2, 9)
    first = copy.deepcopy(plain)
    quantization.quantize_(first, quantization.Int8WeightOnlyConfig())
    rounded = copy.deepcopy(plain)
    for module, other in zip(rounded.modules(), first.modules(), strict=True):
        if isinstance(module, nn.Linear):
            module.weight.data = other.weight.dequantize()
    wanted = logits_of(rounded, given)
    assert (wanted - logits_of(plain, given)).abs().max() > 1e-3
    torch.testing.assert_close(logits_of(first, given), wanted, **SMALL)
    later = uninstall(copy.deepcopy(plain))
    quantization.quantize_(later, quantization.Int8WeightOnlyConfig())
    assert torch.equal(logits_of(install(later, copy.deepcopy(installed(plain))), given), logits_of(first, given))


# Offloading


@pytest.mark.parametrize("where", ["cpu_offload", "disk_offload", "parts"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_lie_elsewhere(kind, where, tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="accelerate, which offloads weights, is not installed")
    plain, given = installed_llama(kind), words(2, 9)
    offload = {
        "cpu_offload": lambda model: accelerate.cpu_offload(model, "cpu"),
        "disk_offload": lambda model: accelerate.disk_offload(model, tmp_path, "cpu"),
        "parts": lambda model: accelerate.dispatch_model(model, dict.fromkeys(IN_FULL, "cpu"), force_hooks=True),
    }[where]
    model = copy.deepcopy(plain)
    offload(model)
    assert all(weight.is_meta for weight in model.parameters()) == (where != "parts")
    wanted = logits_of(plain, given)
    assert torch.equal(logits_of(model, given), wanted)
    later = uninstall(copy.deepcopy(plain))
    offload(later)
    install(later, copy.deepcopy(installed(plain)))
    assert torch.equal(logits_of(later, given), wanted)
    assert not any(weight.is_meta for weight in installed(later).parameters())
    assert torch.equal(logits_of(uninstall(later), given), logits_of(uninstall(plain), given))


@pytest.mark.parametrize("places", ["cpu", {**dict.fromkeys(IN_FULL, "cpu"), "model.layers.1": "disk"}], ids=["one", "two"])
@pytest.mark.parametrize("kind", ["learned", "alibi"])
def test_loaded_to_where_a_map_of_devices_says(kind, places, tmp_path):
    plain, given = installed_llama(kind), words(2, 9)
    plain.save_pretrained(tmp_path / "saved")
    offloaded = {"offload_folder": tmp_path / "offloaded"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", device_map=places, **offloaded).eval()
    assert torch.equal(logits_of(model, given), logits_of(plain, given))


@pytest.mark.parametrize("kind", ["plain", "axial", "mixed"])
def test_vision_transformers_whose_weights_lie_elsewhere(kind):
    accelerate = pytest.importorskip("accelerate", reason="accelerate, which offloads weights, is not installed")
    plain = vit_host(kind)
    model = for_timm.install(copy.deepcopy(plain), "comrope-ld", block=4)
    wanted, encoding = model(images()), copy.deepcopy(model.encoding)
    accelerate.cpu_offload(model, "cpu")
    later = copy.deepcopy(plain)
    accelerate.cpu_offload(later, "cpu")
    for_timm.install(later, encoding)
    assert all(weight.is_meta for name, weight in later.named_parameters() if "encoding" not in name)
    for each in (model, later):
        assert torch.equal(each(images()), wanted)
    assert (wanted - plain(images())).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["plain", "eva02", "dinov3"])
def test_vision_transformers_all_of_whose_modules_are_hooked(kind):
    hooks = pytest.importorskip("accelerate.hooks", reason="accelerate, which hooks modules, is not installed")
    plain = vit_host(kind)
    model = for_timm.install(copy.deepcopy(plain), "comrope-ld", block=4)
    hooked = copy.deepcopy(plain)
    for module in hooked.modules():
        hooks.add_hook_to_module(module, hooks.ModelHook())
    for_timm.install(hooked, copy.deepcopy(model.encoding))
    assert torch.equal(hooked(images()), model(images()))
    for_timm.uninstall(hooked)
    assert torch.equal(hooked(images()), plain(images()))


def test_windows_are_installed_before_they_are_offloaded():
    accelerate = pytest.importorskip("accelerate", reason="accelerate, which offloads weights, is not installed")
    shape = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)}
    model = timm.create_model("swin_tiny_patch4_window7_224", **shape).eval()
    accelerate.cpu_offload(model, "cpu")
    with pytest.raises(ValueError, match=r"offloaded: install before"):
        for_timm.install(model, "mixed")


# Trainers


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_with_accelerate(kind):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    plain, given = installed_llama(kind), words(2, 9)
    by_hand = copy.deepcopy(plain)
    by_hand(given, labels=given).loss.backward()
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    accelerator.backward(model(given, labels=given).loss)
    optimizer.step()
    assert installed(accelerator.unwrap_model(model)) is installed(plain)
    for (name, weight), other in zip(plain.named_parameters(), by_hand.parameters(), strict=True):
        assert other.grad.abs().max() > 0, name
        torch.testing.assert_close(weight.data, other.data - 0.1 * other.grad, msg=name)


def training(path, **options):
    fixed = {"max_steps": 1, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}
    return {"output_dir": str(path), "lr_scheduler_type": "constant", **fixed, **options}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of pinned memory without an accelerator
@pytest.mark.parametrize("kind", ["own", "learned", "comrope-ld"])
def test_weight_decay_of_the_trainer_spares_encodings(kind, tmp_path):
    model = installed_llama(kind)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    given = words(2, 9)
    rows = [{"input_ids": row, "labels": row} for row in given]
    arguments = TrainingArguments(**training(tmp_path, learning_rate=1e-8, weight_decay=1e7))
    Trainer(model, arguments, train_dataset=rows).train()
    for name, weight in model.named_parameters():
        if weight.ndim > 1 or "encoding" in name:
            share = 1.0 if "encoding" in name else 0.9
            torch.testing.assert_close(weight.data, share * before[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.filterwarnings("ignore")  # of a library that is imported here alone
@pytest.mark.parametrize("kind", ["learned"])
def test_a_step_of_supervised_fine_tuning(kind, tmp_path):
    trl = pytest.importorskip("trl", reason="trl is not installed")
    datasets = pytest.importorskip("datasets", reason="trl takes data of datasets, which is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="trl needs a tokenizer")
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"word{i}": i for i in range(95)} | {"<pad>": 95, "<eos>": 96}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    model = installed_llama(kind)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    arguments = trl.SFTConfig(**training(tmp_path, learning_rate=1e-2, bf16=False, per_device_train_batch_size=2))
    rows = datasets.Dataset.from_dict({"input_ids": words(4, 9).tolist()})
    trl.SFTTrainer(model, args=arguments, train_dataset=rows, processing_class=tokenizer).train()
    assert not [name for name, weight in model.named_parameters() if torch.equal(weight, before[name])]
    assert installed(model).learned


# Traces

TRACED = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit.trace", "ignore:.is_gradient")


@TRACED
@pytest.mark.parametrize("kind", KINDS)
def test_traced_language_models(kind):
    class Logits(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, given):
            return self.model(given, use_cache=False).logits

    model = installed_llama(kind)
    with torch.no_grad():
        traced = torch.jit.trace(Logits(model), (words(2, 9),), check_trace=False)
    given = words(3, 9).flip(1)[:2]
    torch.testing.assert_close(traced(given), logits_of(model, given), **SMALL)


@TRACED
@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_traced_vision_transformers(kind):
    model = installed_vit(kind)
    with torch.no_grad():
        traced = torch.jit.trace(model, (images(),), check_trace=False)
        torch.testing.assert_close(traced(images().flip(0)), model(images().flip(0)), **SMALL)


@TRACED
def test_traced_attention_of_grouped_queries():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    traced = torch.jit.trace(rw.attend, (q, k, v))
    torch.testing.assert_close(traced(q + 1, k, v), rw.attend(q + 1, k, v))
