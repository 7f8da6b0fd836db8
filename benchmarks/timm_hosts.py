"""Which transformers of timm take an encoding: each is made small, given encodings, and judged.

python benchmarks/timm_hosts.py --path results/timm-hosts.json

A host is a name of `timm.list_models()` (pretrained weights aside) with a module that owns a projection of queries or keys,
by the names in PROJECTIONS. Each is made with the widths that it has, with two of each run of equal blocks, and with weights
that make attention uneven. A host works if

- `install(model, "none")` gives its own outputs to 1e-5,
- `install(model, "axial")` changes them, and they and all gradients are finite, nonzero in each projection of q and k,
- `install(model, "mixed")` has gradients for all parameters of the encodings,
- at another image size, where the host itself has one, the same holds of "none" and "axial",
- `uninstall` gives back its outputs to the last bit, and the names in its state dict.

It is refused if `install` says why, and fails otherwise. Hosts are grouped by structure: class and classes of all modules.
Of each group the smallest is judged so; the others, which differ in depth, widths and sizes, must take the encoding on the
meta device at their own size, and keep the shapes of their outputs. Rows of a file that is there stay unless judged again.
"""

import datetime
import json
import multiprocessing
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
import tyro
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ropewalk.adapters.timm import install, uninstall

PROJECTIONS = {
    "q",
    "k",
    "qk",
    "kv",
    "qkv",
    "qkvs",
    "query",
    "key",
    "to_q",
    "to_kv",
    "to_qkv",
    "wq",
    "wk",
    "in_proj",
    "q_proj",
}
RULE = (
    f"names of timm.list_models() with a module that has a child or parameter named one of {', '.join(sorted(PROJECTIONS))}"
)
LARGE, HUGE, TOLERANCE = 200_000, 900_000_000, 1e-5
SIZES, LIMIT = (112, 128, 192, 224, 256), 120
INITS = {
    f"{name}_"
    for name in ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "trunc_normal", "constant")
}
FILLERS = {"normal_", "uniform_", "zero_", "zeros_", "fill_", "mul_", "add_", "clamp_", "erfinv_", "div_"} | INITS


class Unfilled(TorchFunctionMode):
    """Large weights are not drawn, so that their memory is never touched: most are dropped with their blocks."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        filled = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        fills = getattr(func, "__name__", "") in FILLERS and filled is not None
        if fills and filled.is_floating_point() and filled.numel() > LARGE:
            return filled
        return func(*args, **kwargs)


@dataclass
class Host:
    """A host, its structure (its class and those of all its modules), and its size."""

    name: str
    structure: tuple[str, ...]
    weights: int


def list_hosts() -> list[Host]:
    """The denominator: see RULE."""
    found = []
    for name in timm.list_models():
        with torch.device("meta"):
            model = timm.create_model(name)
        if any(PROJECTIONS & {*module._modules, *module._parameters} for module in model.modules()):
            kinds = {f"{type(module).__module__}.{type(module).__name__}" for module in model.modules()}
            structure = (type(model).__name__, *sorted(kinds))
            found.append(Host(name, structure, sum(weight.numel() for weight in model.parameters())))
    return found


def build_small(name: str, sizes: tuple[int, ...] = SIZES) -> tuple[nn.Module, int]:
    """The model with two of each run of equal blocks and drawn weights, and the side of its images."""
    with torch.device("meta"):
        model = timm.create_model(name)
    side, narrow = model.pretrained_cfg["input_size"][-1], {}
    blocks: Any = getattr(model, "blocks", None)
    if blocks is not None and sum(weight.numel() for weight in model.parameters()) > HUGE and hasattr(blocks[0], "attn"):
        narrow = {"num_heads": 4, "embed_dim": 4 * model.embed_dim // blocks[0].attn.num_heads}  # type: ignore[operator]
    with Unfilled():
        ways: list[dict[str, Any]] = [{**narrow, "img_size": size} for size in sizes if size < side]
        for options in (*ways, narrow, {}):
            try:
                model = timm.create_model(name, **options)
                if "img_size" not in options or takes_images(model, options["img_size"]):
                    side = options.get("img_size", side)
                    break
            except (TypeError, ValueError, AssertionError, RuntimeError):
                if not options:
                    raise
    model.pretrained_cfg["input_size"] = (3, side, side)
    drop_all_repeats(model, side)
    side = next((size for size in sizes[1:] if size < side and takes_images(model, size)), side)
    normalize_maps(draw_weights(model), torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0)))
    return model, side


@torch.no_grad()
def takes_images(model: nn.Module, side: int) -> bool:
    """Whether a host runs at an image size that it was not made for."""
    try:
        model.eval()
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in state.items()}
        torch.func.functional_call(model, empty, (torch.zeros(1, 3, side, side, device="meta"),))
    except Exception:  # whatever a host says to a size that it does not take
        return False
    return True


@torch.no_grad()
def normalize_maps(model: nn.Module, images: Tensor) -> None:
    """Running statistics of these images, so that maps of drawn weights neither vanish nor explode."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    model.train(bool(norms))
    if norms:
        model(images)
    model.eval()


def drop_all_repeats(model: nn.Module, side: int) -> None:
    """Keep two of each run of equal blocks, unless blocks of equal shape are not alike and the model does not run then."""
    lists: dict[Any, Any] = {
        each: each._modules for each in model.modules() if isinstance(each, nn.Sequential | nn.ModuleList)
    }
    for blocks in lists:
        drop_repeats(blocks)
    if not takes_images(model, side):  # some blocks are not like others of equal shape
        for blocks, all_of_them in lists.items():
            blocks._modules = all_of_them


def drop_repeats(blocks: Any) -> None:
    """Keep two of each run of blocks of one class and one shape."""
    kinds = [(type(each), [tuple(weight.shape) for weight in each.parameters()]) for each in blocks]
    kept = [each for i, each in enumerate(blocks) if i < 2 or not kinds[i][1] or kinds[i - 2 : i] != [kinds[i]] * 2]
    names = list(blocks._modules)
    if len(kept) < len(names) and names == [str(i) for i in range(len(names))]:
        blocks._modules = {str(i): each for i, each in enumerate(kept)}


@torch.no_grad()
def draw_weights(model: nn.Module) -> nn.Module:
    """Weights so large that attention is far from even: otherwise a lost rotation would hardly show."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        spread = 0.7 * weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.3
        start = 1.0 if weight.ndim == 1 and "bias" not in name else 0.0
        weight.copy_(start + spread * torch.randn(weight.shape, generator=generator))
    return model


def run(model: nn.Module, images: Tensor) -> list[Tensor]:
    """All floating outputs."""
    outputs = [each for each in pytree.tree_leaves(model(images)) if isinstance(each, Tensor)]
    return [each for each in outputs if each.is_floating_point()]


def mean_output(outputs: list[Tensor]) -> Tensor:
    """A loss of outputs of any size: weights that are drawn may make them large."""
    return torch.stack([(each / each.detach().abs().max()).mean() for each in outputs]).sum()


def distance(some: list[Tensor], others: list[Tensor]) -> float:
    """The largest difference, over the largest value where that is above one."""
    pairs = list(zip(some, others, strict=True))
    return max(float((a - b).abs().max() / max(1.0, float(b.abs().max()))) for a, b in pairs)


def judge_model(model: nn.Module, side: int) -> str:
    """What is wrong with an encoding in this model, or nothing."""
    images = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(1))
    wider = torch.randn(1, 3, side, side + 64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        before, names = run(model, images), list(model.state_dict())
        try:
            other = run(model, wider)
        except Exception:  # whatever a host says to a size that it does not take
            other = None
    for wrong in (check_none, check_axial, check_mixed):
        if found := wrong(model, images, before):
            return found
    if other is not None and (found := check_none(model, wider, other) or check_axial(model, wider, other)):
        return f"{found}, at another image size"
    uninstall(model)
    with torch.no_grad():
        same = all(torch.equal(a, b) for a, b in zip(run(model, images), before, strict=True))
    if not same or list(model.state_dict()) != names:
        return "uninstall does not give the model back"
    return ""


def check_none(model: nn.Module, images: Tensor, before: list[Tensor]) -> str:
    """No encoding is the model itself; of one that has a rotation, that without it."""
    turning = any(getattr(module, "rope", None) is not None for module in model.modules())
    install(model, "none")
    with torch.no_grad():
        off = distance(run(model, images), before)
    return "" if turning or off <= TOLERANCE else f"the encoding 'none' changes outputs by {off:.1e}"


def check_axial(model: nn.Module, images: Tensor, before: list[Tensor]) -> str:
    """A fixed rotation changes outputs, and gradients reach q and k."""
    install(model, "axial")
    model.zero_grad()
    after = run(model, images)
    if not all(each.isfinite().all() for each in after):
        return "outputs are not finite"
    if distance([each.detach() for each in after], before) <= TOLERANCE:
        return "the encoding 'axial' changes nothing"
    mean_output(after).backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None and not weight.grad.isfinite().all():
            return f"the gradient of {name} is not finite"
    for name, module in model.named_modules():
        if getattr(module, "encoding", None) is None or not PROJECTIONS & {*module._modules, *module._parameters}:
            continue
        for part in sorted(PROJECTIONS & {*module._modules, *module._parameters}):
            weights = [w for n, w in module.named_parameters() if n.split(".")[0] == part and w.ndim > 1]
            if weights and not any(w.grad is not None and w.grad.abs().max() > 0 for w in weights):
                return f"no gradient reaches {name}.{part}"
    return ""


def check_mixed(model: nn.Module, images: Tensor, before: list[Tensor]) -> str:
    """All learned frequencies get gradients."""
    install(model, "mixed")
    model.zero_grad()
    mean_output(run(model, images)).backward()
    learned = {name: weight for name, weight in model.named_parameters() if re.search(r"(wave|freqs)$", name)}
    idle = [name for name, weight in learned.items() if weight.grad is None or not weight.grad.abs().max() > 0]
    return "it has no learned frequencies" if not learned else f"no gradient reaches {idle[0]}" if idle else ""


def judge_host(name: str) -> dict[str, str]:
    """The row of a host, at its own image size if it does not work at a small one."""
    row = judge_at(name, SIZES)
    return judge_at(name, ()) if row["status"] == "fails" else row


def judge_at(name: str, sizes: tuple[int, ...]) -> dict[str, str]:
    """The row of a host that is made for the first of these sizes that it takes."""
    try:
        model, side = build_small(name, sizes)
    except Exception as error:
        return {"name": name, "status": "fails", "reason": f"it cannot be made small: {type(error).__name__}: {error}"[:200]}
    kind = {"name": name, "class": type(model).__name__, "judged": "whole"}
    try:
        install(model, "axial")
        uninstall(model)
    except (TypeError, ValueError) as error:
        return kind | {"status": "refused", "reason": str(error)}
    except Exception as error:
        return kind | {"status": "fails", "reason": f"{type(error).__name__}: {error}"[:300]}
    try:
        wrong = judge_model(model, side)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"[:300]
    return kind | {"status": "fails" if wrong else "works", "reason": wrong}


def judge_apart(name: str) -> dict[str, str]:
    """Judge a host in a separate process with a time limit, and return its row."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(judge_host(name)))
    process.start()
    theirs.close()
    try:
        if ours.poll(LIMIT):
            return ours.recv()
        reason = f"it takes longer than {LIMIT} seconds"
    except EOFError:
        reason = "its process ended without a word, for example for want of memory"
    finally:
        process.kill()
        process.join()
    return {"name": name, "status": "fails", "reason": reason}


@torch.no_grad()
def compare_shapes(name: str, like: dict[str, str]) -> dict[str, str]:
    """The row of a host of a structure that was judged: it takes the encoding, and its outputs keep their shapes."""
    row = {"name": name, "class": like.get("class", ""), "judged": f"on the meta device, as {like['name']}"}
    with torch.device("meta"):
        model = timm.create_model(name)
        images = torch.empty(1, 3, *model.pretrained_cfg["input_size"][1:])
    drop_all_repeats(model, images.shape[-1])
    model.eval()
    try:
        before = [each.shape for each in run(model, images)]
        install(model, "axial")
        wrong = "" if [each.shape for each in run(model, images)] == before else "outputs have other shapes"
    except (TypeError, ValueError) as error:
        return row | {"status": "refused", "reason": str(error)}
    except Exception as error:
        return row | {"status": "fails", "reason": f"{type(error).__name__}: {error}"[:300]}
    return row | {"status": "fails" if wrong else like["status"], "reason": wrong or like["reason"]}


def main(path: Path, only: str = "", again: str = "") -> None:
    """Judge and write.

    Args:
        path: The file.
        only: Those hosts alone whose names match this regular expression; all by default.
        again: Judge those anew whose status it is ("refused", "fails"); hosts that have no row are judged in any case.
    """
    found = {row["name"]: row for row in (json.loads(path.read_text())["entries"] if path.exists() else ())}
    hosts = sorted(list_hosts(), key=lambda host: host.weights)
    first = {host.structure: host.name for host in reversed(hosts)}
    for host in sorted(hosts, key=lambda host: host.name != first[host.structure]):
        name, judged = host.name, first[host.structure]
        if re.search(only, name) if only else name not in found or found[name]["status"] in again.split(","):
            found[name] = judge_apart(name) if name == judged else compare_shapes(name, found[judged])
            print(found[name], flush=True)
            write_rows(path, sorted(host.name for host in hosts), found)


def write_rows(path: Path, names: list[str], found: dict[str, dict[str, str]]) -> None:
    """The file, with counts."""
    rows = [found[name] for name in names if name in found]
    counts = dict(Counter(row["status"] for row in rows))
    head = {"timm": timm.__version__, "torch": torch.__version__, "date": datetime.date.today().isoformat(), "rule": RULE}
    path.write_text(json.dumps(head | {"hosts": len(names), **counts, "entries": rows}, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
