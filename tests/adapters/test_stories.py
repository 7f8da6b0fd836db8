"""A trained Llama of 260,032 weights that tells stories: what people do with an installed model, on weights that learned."""

import copy
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk import export
from ropewalk.adapters.transformers import fold_into, install, installed

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the checkout: a trained Llama"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing"),  # of transformers, to peft
]
TRAINED = 512  # positions
BEGIN, END = 1, 2
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": TRAINED}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stories")
    subprocess.run([sys.executable, SHARED / "unpack.py", "stories260k", path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture
def host(trained):
    return copy.deepcopy(trained)


@pytest.fixture(scope="module")
def stories(trained):
    """Texts of twice as many tokens as in training: stories that the model tells, one after another."""
    torch.manual_seed(0)
    begin = torch.full((16, 1), BEGIN)
    told = trained.generate(
        begin, attention_mask=begin, max_new_tokens=300, do_sample=True, top_k=0, bos_token_id=None, pad_token_id=END
    )
    flat = [token for story in told.tolist() for token in story if token != END]
    count = len(flat) // (2 * TRAINED)
    return torch.tensor(flat[: count * 2 * TRAINED]).view(count, -1)


def losses(model, text):
    """The loss of each token but the first, in nats, averaged over texts."""
    with torch.no_grad():
        logits = model(text, use_cache=False).logits
    return F.cross_entropy(logits[:, :-1].mT, text[:, 1:], reduction="none").mean(0)


def next_tokens(model, count):
    """The likeliest story, token by token, with a cache; and the logits of each step."""
    tokens, cache, found = [BEGIN], None, []
    for _ in range(count):
        with torch.no_grad():
            out = model(torch.tensor([tokens[-1:]]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        found.append(out.logits[0, -1])
        tokens.append(int(found[-1].argmax()))
    return tokens, torch.stack(found)


def extend(model):
    with pytest.warns(UserWarning, match=r"extension=.*replaces extension=None"):
        return install(model, "rope", extension=YARN)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("options", [{}, {"learned": True}], ids=["own", "learned"])
def test_nothing_changes(host, stories, options):
    text = stories[:, :TRAINED]
    before = host(text).logits
    assert losses(host, text).mean() < 2, "trained: a guess at random costs 6.2"
    close(install(host, **options)(text).logits, before)
    frequency = installed(host).frequency
    with torch.no_grad():
        frequency.mul_(1.01)
    assert (host(text).logits - before).abs().max() > 0.1


def test_the_same_story_is_told(host, folder):
    tokens, logits = next_tokens(host, 150)
    again, same = next_tokens(install(host), 150)
    assert again == tokens
    close(same, logits)
    words = json.loads((folder / "vocab.json").read_text())
    assert "Once upon a time" in "".join(words[token] for token in tokens)
    generated = host.generate(
        torch.tensor([[BEGIN]]), max_new_tokens=150, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert generated[0].tolist() == tokens


def test_longer_texts(host, stories):
    """YaRN without training: late tokens of twice the length cost less than without, and those of training little more."""
    plain = losses(install(host), stories)
    extended = losses(extend(host), stories)
    late = slice(TRAINED + TRAINED // 2, None)
    assert plain[late].mean() > plain[:TRAINED].mean() + 0.1, "so far the model was never trained"
    assert extended[late].mean() < plain[late].mean() - 0.05
    assert extended[:TRAINED].mean() < plain[:TRAINED].mean() + 0.15


def test_longer_texts_as_transformers_extends_them(host, folder, stories):
    config = type(host.config).from_pretrained(folder, rope_parameters={**YARN, "rope_theta": 10000.0})
    theirs = AutoModelForCausalLM.from_pretrained(folder, config=config).eval()
    with torch.no_grad():
        wanted = theirs(stories).logits
        close(extend(host)(stories).logits, wanted)


@pytest.mark.parametrize("layers", [None, 5], ids=["shared", "by layer"])
def test_a_trained_encoding_is_folded(host, stories, layers):
    text = stories[:2, :128]
    install(host, "comrope-ld", layers=layers, std=0.1)
    before = losses(host, text).mean()
    optimizer = torch.optim.Adam(installed(host).parameters(), lr=0.02)
    for _ in range(8):
        optimizer.zero_grad()
        host(text, labels=text).loss.backward()
        optimizer.step()
    with torch.no_grad():
        wanted = host(text).logits
    assert losses(host, text).mean() < before - 0.1
    told, _ = next_tokens(host, 20)
    fold_into(host)
    assert isinstance(installed(host), rw.Mixed)
    with torch.no_grad():
        torch.testing.assert_close(host(text).logits, wanted, rtol=0, atol=1e-4 * wanted.abs().max().item())
    again, _ = next_tokens(host, 20)
    assert again == told


def test_a_folded_encoding_is_served_as_stock_rope(host, folder, stories):
    """One set of frequencies for all heads, which a rule of transformers divides those of RoPE by."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        install(host, "comrope-ld", shared=True, std=0.3)
    text = stories[:2, :128]
    wave = installed(fold_into(host)).wave.detach().double().flatten()
    assert wave.max() > 0.05, "over these positions, more than a turn"
    divisors = torch.where(wave == 0, 1e30, 10000.0 ** (-torch.arange(4).double() / 4) / wave).tolist()
    rule = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": divisors, "long_factor": divisors}
    rule |= {"factor": 1.0, "original_max_position_embeddings": TRAINED}
    served = AutoModelForCausalLM.from_config(type(host.config).from_pretrained(folder, rope_parameters=rule)).eval()
    weights = {name: weight for name, weight in host.state_dict().items() if "rotary_emb" not in name}
    served.load_state_dict(rw.layouts.convert(weights, head_dim=8, to="half-split"))
    with torch.no_grad():
        wanted = host(text).logits
        torch.testing.assert_close(served(text).logits, wanted, rtol=0, atol=1e-4 * wanted.abs().max().item())


def test_lora_learns_what_weights_may_not(host, stories, tmp_path):
    peft = pytest.importorskip("peft", reason="LoRA is tested with peft, which is not installed")
    text = stories[:2, :128].flip(1)  # stories from their end: new to the model
    install(host, learned=True)
    before, weights = losses(host, text).mean(), copy.deepcopy(host.state_dict())
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "k_proj"], modules_to_save=["rotary_emb"])
    model = peft.get_peft_model(copy.deepcopy(host), config)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=0.02)
    for _ in range(8):
        optimizer.zero_grad()
        model(text, labels=text).loss.backward()
        optimizer.step()
    after = losses(model.eval(), text)
    assert after.mean() < before - 0.02
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(host, tmp_path).eval()
    assert torch.equal(losses(again, text), after)
    close(losses(again.merge_and_unload(), text), after)
    assert not torch.equal(host.model.rotary_emb.encoding.frequency, weights["model.rotary_emb.encoding.frequency"])


def test_a_program_of_onnx(host, stories):
    runtime = pytest.importorskip("onnxruntime", reason="programs of ONNX are run by onnxruntime, which is not installed")
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript, which is not installed")
    install(host, "comrope-ld", std=0.1)
    buffer = io.BytesIO()
    export.onnx(host, length=64).save(buffer)
    session = runtime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    for text in (stories[:1, :9], stories[:3, :64]):
        (found,) = session.run(None, {session.get_inputs()[0].name: text.numpy()})
        close(torch.from_numpy(found), host(text).logits)
