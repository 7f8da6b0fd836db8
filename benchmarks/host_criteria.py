"""Judges what `install` does in a model of transformers: five criteria, all of which must hold.

agreement   Outputs agree with the host's to TOLERANCE of the largest: float32, eager and SDPA attention, generation with a
            cache, and after saving and loading.
own         The host's own rotary functions are not called.
wired       A frequency changed by 1 % changes the outputs, for each encoding in the model.
learned     `install(model, learned=True)` agrees as well, gives finite gradients that are not zero to all parameters of the
            encodings, and changed frequencies survive saving and loading.
traceless   `uninstall` restores outputs bit by bit, and leaves no trace in the model, its config or the modelling files.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from host_traces import collect_traces, find_rotary, recorded_calls
from tiny_inputs import Inputs, make_inputs, split_parts
from tiny_models import build_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.encoding import Encoding

TOLERANCE = 1e-5
TRIED = 8  # frequencies, the largest first, of which one must change outputs: those of time change none of a single frame
SENSITIVE = 2 * TOLERANCE  # the least change of outputs when a frequency changes by 1 %
CACHES = {"past_key_values", "cache_params", "encoder_past_key_values", "decoder_past_key_values"}
MASKED = 1e30  # models mask logits by the least number there is, beside which all others are nothing
NEW_TOKENS = 4
Outputs = dict[str, Tensor]


class Adapter(Protocol):
    """What is judged."""

    def install(self, model: Any, **options: Any) -> Any: ...

    def uninstall(self, model: Any) -> Any: ...


@dataclass
class Verdict:
    """What was found of a family: the reason why it is refused or fails, and the figures behind it."""

    status: str = "counts"
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class Failed(Exception):
    """A criterion does not hold."""

    def __init__(self, criterion: str, sentence: str) -> None:
        super().__init__(sentence)
        self.criterion = criterion


def judge_family(family: str, adapter: Adapter) -> Verdict:
    """Whether a family counts: "counts", "refused" by the adapter, "fails" a criterion, or "unbuilt" (no tiny model)."""
    model, host = None, None
    try:
        model = build_model(family)
        host = _Host(model, make_inputs(model, family))
    except Exception as error:  # whatever goes wrong here is not the adapter's
        unbuilt = Verdict("unbuilt", _sentence(error))
        if model is None:
            return unbuilt
    try:
        adapter.install(model)
    except Exception as error:
        return Verdict("refused", _sentence(error), {"error": type(error).__name__})
    if host is None:
        return unbuilt
    figures: dict[str, Any] = {"attention": list(host.attentions), "generation": host.generation, "saving": host.saving}
    try:
        _judge(host, adapter, figures)
    except Failed as failed:
        return Verdict(f"fails {failed.criterion}", str(failed), figures)
    except Exception as error:
        return Verdict("fails running", _sentence(error), figures)
    return Verdict(figures=figures)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class _Host:
    """A model before anything is installed: its outputs, its own rotary functions, and everything that could be a trace."""

    def __init__(self, model: PreTrainedModel, inputs: Inputs) -> None:
        self.model, self.inputs = model, inputs
        self.first = model.config._attn_implementation
        self.attentions: dict[str, Outputs] = {}
        rotary = find_rotary(model)
        with recorded_calls() as called:
            for attention in ("eager", "sdpa"):
                if _choose_attention(model, attention):
                    self.attentions[attention] = run(model, inputs)
        self.rotary = {code: name for code, name in rotary.items() if code in called}
        self.generation, self.generated = "no", {}
        if model.can_generate():
            try:
                self.generated, self.generation = generate(model, inputs), "yes"
            except Exception as error:
                self.generation = f"the host itself: {_sentence(error)[:200]}"
        _choose_attention(model, "eager")
        try:  # before traces are collected: saving writes into the config
            _compare_loaded(model, inputs, self.attentions["eager"], "agreement")
            self.saving = "yes"
        except Exception as error:
            self.saving = f"the host itself: {_sentence(error)[:200]}"
        _choose_attention(model, self.first)
        self.traces = collect_traces(model)


def _choose_attention(model: PreTrainedModel, attention: str) -> bool:
    try:
        model.set_attn_implementation(attention)
    except (ValueError, ImportError):
        return False
    return True


def _judge(host: _Host, adapter: Adapter, figures: dict[str, Any]) -> None:
    model = host.model
    if not host.rotary:
        raise Failed("own", "the host calls none of its rotary functions, and yet an encoding goes in")
    figures["agreement"] = _agree(host, model, "agreement")
    _refuse_host_calls(host, model)
    figures["wired"] = _change_frequencies(host, model)
    figures["saved"] = _save_and_load(host, model, adapter, host.attentions["eager"], "agreement")
    _leave(host, adapter)
    adapter.install(model, learned=True)
    figures["learned"] = _learn(host, model, adapter)
    _leave(host, adapter)


def _agree(host: _Host, model: PreTrainedModel, criterion: str) -> float:
    """The largest difference from the host's outputs, as a share of the largest of them."""
    worst = 0.0
    for attention, wanted in host.attentions.items():
        _choose_attention(model, attention)
        worst = max(worst, _compare(criterion, f"{attention} attention", run(model, host.inputs), wanted))
    if host.generation == "yes":
        worst = max(worst, _compare(criterion, "generation", generate(model, host.inputs), host.generated))
    _choose_attention(model, host.first)
    return worst


def _compare(criterion: str, what: str, found: Outputs, wanted: Outputs) -> float:
    if found.keys() != wanted.keys():
        raise Failed(criterion, f"{what}: outputs {sorted(found)}, those of the host {sorted(wanted)}")
    worst = 0.0
    for name, value in wanted.items():
        if found[name].shape != value.shape:
            raise Failed(criterion, f"{what}: {name} has shape {tuple(found[name].shape)}, {tuple(value.shape)} in the host")
        worst = max(worst, compute_difference(found[name], value))
        if not worst <= TOLERANCE:
            raise Failed(criterion, f"{what}: {name} differs by {worst:.1e} of its largest value")
    return worst


def compute_difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference as a share of the largest value; infinite and masked values must be the same."""
    finite = wanted.abs() < MASKED
    if not torch.allclose(found[~finite], wanted[~finite], rtol=0, atol=0, equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    found, wanted = found[finite].double().nan_to_num(nan=float("inf")), wanted[finite].double()
    return ((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30)).item()


def _refuse_host_calls(host: _Host, model: PreTrainedModel) -> None:
    with recorded_calls() as called:
        run(model, host.inputs)
        if host.generation == "yes":
            generate(model, host.inputs)
    own = sorted(name for code, name in host.rotary.items() if code in called)
    if own:
        raise Failed("own", f"the host's own {', '.join(own)} is called")


def _change_frequencies(host: _Host, model: PreTrainedModel) -> float:
    """The least change of outputs, as a share of the largest, when a large value of each encoding is changed by 1 %."""
    least = float("inf")
    before = run(model, host.inputs)
    tensors = list(find_tensors(model))
    if not tensors:
        raise Failed("wired", "the model holds no encoding with frequencies")
    for name, tensor in tensors:
        change = 0.0
        for index in tensor.detach().abs().flatten().argsort(descending=True, stable=True)[:TRIED].tolist():
            with changed_by(tensor, 1.01, index):
                after = run(model, host.inputs)
            change = max(compute_difference(after[key], before[key]) for key in before)
            if change >= SENSITIVE:
                break
        if not change >= SENSITIVE:
            by = f"only by {change:.0e}" if change else "not at all"
            raise Failed("wired", f"{name} changed by 1 % changes outputs {by}")
        least = min(least, change)
    return least


def _compare_loaded(
    model: PreTrainedModel, inputs: Inputs, wanted: Outputs, criterion: str
) -> tuple[float, PreTrainedModel]:
    """The difference after saving and loading, and what was loaded; with eager attention."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = type(model).from_pretrained(folder).eval()
    _choose_attention(loaded, "eager")
    return _compare(criterion, "saved and loaded", run(loaded, inputs), wanted), loaded


def _save_and_load(host: _Host, model: PreTrainedModel, adapter: Adapter, wanted: Outputs, criterion: str) -> float:
    if host.saving != "yes":
        return 0.0
    worst, loaded = _compare_loaded(model, host.inputs, wanted, criterion)
    adapter.uninstall(loaded)
    return worst


def _learn(host: _Host, model: PreTrainedModel, adapter: Adapter) -> float:
    """The least of the largest gradients of the parameters of encodings."""
    _agree(host, model, "learned")
    parameters = [(name, tensor) for name, tensor in find_tensors(model) if isinstance(tensor, nn.Parameter)]
    if not parameters:
        raise Failed("learned", "learned=True gives the encodings no parameters")
    source = torch.Generator().manual_seed(1)
    outputs = _compute(model, host.inputs)
    sum(
        (value * torch.randn(value.shape, generator=source)).sum() for value in outputs.values() if value.requires_grad
    ).backward()
    least = float("inf")
    for name, parameter in parameters:
        gradient = None if parameter.grad is None else parameter.grad
        if gradient is None or not gradient.isfinite().all() or not gradient.any():
            kind = "no" if gradient is None else "a zero" if not gradient.any() else "an infinite"
            raise Failed("learned", f"{name} gets {kind} gradient")
        least = min(least, gradient.abs().max().item())
    model.zero_grad(set_to_none=True)
    _choose_attention(model, "eager")
    with torch.no_grad():
        for _, parameter in parameters:
            parameter.mul_(1 + 0.2 * torch.rand(parameter.shape, generator=source))
    _save_and_load(host, model, adapter, run(model, host.inputs), "learned")
    _choose_attention(model, host.first)
    return least


def _leave(host: _Host, adapter: Adapter) -> None:
    model = host.model
    adapter.uninstall(model)
    now = collect_traces(model)
    for name, before in host.traces.items():
        if now[name] != before:
            added, lost = (sorted(map(str, one))[:3] for one in (now[name] - before, before - now[name]))
            raise Failed("traceless", f"uninstall leaves {name}: now {added}, before {lost}")
    for attention, wanted in host.attentions.items():
        _choose_attention(model, attention)
        found = run(model, host.inputs)
        different = [name for name, value in wanted.items() if not torch.equal(found[name], value)]
        if different:
            raise Failed("traceless", f"after uninstall {different[0]} is not bit by bit what it was ({attention})")
    _choose_attention(model, host.first)


# What a model computes.


@torch.no_grad()
def run(model: PreTrainedModel, inputs: Inputs) -> Outputs:
    """The floating point outputs of a forward pass, by their names."""
    torch.manual_seed(0)  # some models draw noise
    return _compute(model, inputs)


def _compute(model: PreTrainedModel, inputs: Inputs) -> Outputs:
    """What the model gives, and those parts of it that this does not reach."""
    whole, parts = split_parts(inputs)
    found = _tensors(model(**whole)) if whole else {}
    for path, part in parts.items():
        found |= _tensors(model.get_submodule(path)(**part), path)
    return found


def _tensors(outputs: Any, name: str = "outputs") -> Outputs:
    if isinstance(outputs, Tensor):
        return {name: outputs} if outputs.is_floating_point() and outputs.numel() else {}
    if isinstance(outputs, dict):
        named = [(f"{name}.{key}", value) for key, value in outputs.items() if key not in CACHES]
    elif isinstance(outputs, list | tuple):
        named = [(f"{name}[{index}]", value) for index, value in enumerate(outputs)]
    else:
        return {}
    return {key: tensor for one, value in named for key, tensor in _tensors(value, one).items()}


@torch.no_grad()
def generate(model: PreTrainedModel, inputs: Inputs) -> Outputs:
    """Logits and ids of tokens that are generated with a cache, each the likeliest."""
    torch.manual_seed(0)
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "use_cache": True} | split_parts(inputs)[0]
    found = model.generate(**options, output_logits=True, return_dict_in_generate=True)
    return {"sequences": found.sequences.float(), "logits": torch.stack(list(found.logits))}


# What stands in a model.


def find_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers of the encodings in a model, floating point ones."""
    for place, module in model.named_modules():
        if isinstance(module, Encoding):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            yield from ((f"{place}.{name}", tensor) for name, tensor in own if tensor.is_floating_point())


@contextmanager
def changed_by(tensor: Tensor, factor: float, index: int = 0) -> Iterator[None]:
    """One value of a tensor times a factor, for a while."""
    place = torch.unravel_index(torch.tensor(index), tensor.shape)
    kept = tensor.detach()[place].clone()
    tensor.detach()[place] *= factor
    try:
        yield
    finally:
        tensor.detach()[place] = kept
