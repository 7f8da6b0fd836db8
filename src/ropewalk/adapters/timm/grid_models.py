"""Models in which each attention has its own grid and its own encoding: windows, stages of a hierarchy, branches."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from ropewalk.adapters.timm.class_swap import Swapped, restore, swap
from ropewalk.adapters.timm.grid_kinds import FRAME, LEFT, Kind, Tapped, find_kind, find_taps, name_kind
from ropewalk.adapters.timm.grids import Grid
from ropewalk.adapters.timm.naflex_tokens import Tokens
from ropewalk.adapters.timm.rope import Rule
from ropewalk.adapters.timm.scoring import Coding, Noting
from ropewalk.code import Code
from ropewalk.encoding import Encoding
from ropewalk.image_sizes import settle_size


@dataclass(frozen=True)
class Spot:
    """An attention that can have an encoding, as it was seen at the model's image size."""

    path: str
    kind: Kind
    sizes: tuple[int, int]
    heads: int
    kv_heads: int | None
    head_dim: int

    @property
    def shape(self) -> dict[str, Any]:
        """The arguments of `rw.create`."""
        shape = {"head_dim": self.head_dim, "heads": self.heads, "kv_heads": self.kv_heads, "axes": 2}
        return shape | {"layers": None, "size": self.sizes}

    def describe(self) -> str:
        """Heads, channels and grid in words."""
        return f"{self.heads} heads of {self.head_dim} channels on {self.sizes[0]} × {self.sizes[1]}"


@dataclass(frozen=True)
class Survey:
    """What was found in a model: attention that can have an encoding, and reasons why others are left as they are."""

    spots: tuple[Spot, ...]
    left: dict[str, str]

    def describe(self) -> str:
        """In a line."""
        counts = Counter(spot.describe() for spot in self.spots)
        found = "; ".join(f"{count} × {words}" for words, count in counts.items())
        left = "; ".join(f"{name} stays as it is: {reason}" for name, reason in self.left.items())
        return ". ".join(part for part in (found, left) if part)

    def refuse(self, kind: type[nn.Module]) -> str:
        """Why no attention can have an encoding."""
        name = f"{kind.__module__}.{kind.__name__}"
        if not self.left:
            known = "a plain ViT of timm, or have attention of a known class (the docs' page on timm lists supported models)"
            return f"the model must be {known}, got {name}: register(ITS_ATTENTION_CLASS, place) adds one"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left.items())
        return f"no attention of {name} compares tokens that have positions ({reasons}): an encoding has nothing to act on"


class GridAttention(Swapped):
    """Attention of any class, with an encoding that acts where it compares q and k."""

    encoding: Encoding
    grid_kind: Kind
    grid_rule: Rule
    grid_model: tuple[nn.Module]  # in a tuple, so that it is no child

    def forward(self, *given: Any, **named: Any) -> Any:
        tokens = named.get("attn_mask")
        if isinstance(tokens, Tokens):
            named["attn_mask"] = tokens.mask
            code = self._code_tokens(tokens, given[0].device)
        else:
            code = self._code(self.grid_kind.place(self, self.grid_model[0], *given, **named), given[0].device)
        mode = Coding(code, self.encoding.heads, self.grid_kind.layout)
        if self.grid_kind.without:
            named[self.grid_kind.without] = None
        with mode:
            out = super().forward(*given, **named)
        if not mode.met:
            raise RuntimeError(f"{type(self).__name__} has compared no queries with keys: its encoding was not used")
        return out

    def _code(self, grid: Grid, device: torch.device) -> Code:
        q, k = grid.places(self.grid_rule(self.encoding, grid.sizes, device))
        encoding = settle_size(self.encoding, grid.sizes)
        code = cast(Code, encoding(q) if k is None else encoding(q, k))
        return code.prefixed(q=grid.prefix, k=grid.prefix)

    def _code_tokens(self, tokens: Tokens, device: torch.device) -> Code:
        encoding = self.encoding if tokens.sizes is None else settle_size(self.encoding, tokens.sizes)
        code = cast(Code, encoding(tokens.place(self.grid_rule, self.encoding, device)))
        return code.prefixed(q=tokens.prefix, k=tokens.prefix)


class GridModel(Swapped):
    """A model with such attention."""

    grid_spots: tuple[Spot, ...]

    @property
    def encoding(self) -> dict[str, Encoding]:
        """The encoding of each attention, by the attention's name in the model."""
        return {spot.path: cast(Any, self.get_submodule(spot.path)).encoding for spot in self.grid_spots}

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay would spoil: timm's, and those of the encodings."""
        own = super().no_weight_decay() if hasattr(self.host, "no_weight_decay") else set()  # type: ignore[misc]
        named = ((path, name) for path, encoding in self.encoding.items() for name, _ in encoding.named_parameters())
        return set(own) | {f"{path}.encoding.{name}" for path, name in named}


class FlexibleModel(GridModel):
    """NaFlexViT, which says to its attention where the patches of each image are."""

    num_prefix_tokens: int

    def _forward_embeds(self, x: Any, patch_coord: Any, patch_valid: Any, attn_mask: Any) -> dict[str, Any]:
        embeds = super()._forward_embeds(x, patch_coord, patch_valid, attn_mask)  # type: ignore[misc]
        sizes = FRAME.sizes if patch_coord is None else None
        kept = embeds.get("keep_indices")
        tokens = Tokens(embeds["attn_mask"], sizes, patch_coord, kept, self.num_prefix_tokens)
        return embeds | {"attn_mask": tokens, "rope_embeds": None}


def survey(model: nn.Module, image_size: Sequence[int] | None = None) -> Survey:
    """Run a model on the meta device and note where its attention compares which q and k."""
    found = {path: (module, kind) for path, module in model.named_modules() if (kind := find_kind(module)) is not None}
    left = {name.rpartition(".")[2]: LEFT[name] for module in model.modules() if (name := name_kind(module)) in LEFT}
    if not found:
        return Survey((), left)
    size = tuple(image_size or _image_size(model))
    try:
        seen = _shapes(model, found, size)
    except (AssertionError, RuntimeError) as error:
        words = f"{type(model).__name__} does not run on images of {size}, at which its attention was to be looked at"
        raise ValueError(f"{words}: give image_size=(rows, columns) of images that it takes ({error})") from error
    spots = []
    for path, (grid, q, k) in seen.items():
        heads, keys = q[1], k[1]
        spots.append(Spot(path, found[path][1], grid.sizes, heads, None if keys == heads else keys, q[3]))
    return Survey(tuple(spots), left)


def _image_size(model: Any) -> tuple[int, int]:
    """The image size that a model was made for."""
    holders = [getattr(model, name, None) for name in ("patch_embed", "pixel_embed", "encoder")]
    for size in (*(getattr(holder, "img_size", None) for holder in (*holders, model)), getattr(model, "image_size", None)):
        if isinstance(size, int) or (isinstance(size, tuple) and len(size) == 2 and isinstance(size[0], int)):
            return (size, size) if isinstance(size, int) else size
    config = getattr(model, "pretrained_cfg", None) or {}
    if "input_size" not in config:
        raise ValueError(f"{type(model).__name__} does not say for which images it is: give image_size=(rows, columns)")
    return config["input_size"][-2:]


def _shapes(model: nn.Module, found: dict[str, tuple[nn.Module, Kind]], image_size: Sequence[int]) -> dict[str, Any]:
    """The grid of each attention that runs, and the shapes of its q and k as (B H N D)."""
    seen: dict[str, Any] = {}
    running: list[Any] = []
    handles, taps = [], [(module, tap) for module, tap in find_taps(model) if not isinstance(module, Tapped)]
    training = {module: module.training for module in model.modules()}
    for path, (module, kind) in found.items():

        def enter(module: nn.Module, given: Any, named: Any, path: str = path, kind: Kind = kind) -> None:
            grid = kind.place(module, model, *given, **named)
            mode = Noting(int(getattr(module, "num_heads", 0) or 0), kind.layout)
            running.append((path, grid, mode.__enter__()))

        def leave(module: nn.Module, given: Any, out: Any) -> None:
            path, grid, mode = running.pop()
            mode.__exit__(None, None, None)
            if mode.shapes is not None:
                seen[path] = (grid, *mode.shapes)

        handles += [module.register_forward_pre_hook(enter, with_kwargs=True), module.register_forward_hook(leave)]
    for module, tap in taps:
        put_tap(module, tap)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in state.items()}
    channels = (getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3,))[0]
    images = torch.empty(1, getattr(model, "in_chans", channels), *image_size, device="meta", dtype=_dtype(model))
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            torch.func.functional_call(model, empty, (images,))
    finally:
        for *_, mode in reversed(running):
            mode.__exit__(None, None, None)
        for handle in handles:
            handle.remove()
        for module, _ in taps:
            take_tap(module)
        for module, before in training.items():
            module.training = before
            getattr(module, "attention_bias_cache", {}).pop("meta", None)
    return seen


def _dtype(model: nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def put_tap(module: Any, tap: Any) -> None:
    """Let a module note the sizes of maps."""
    module.tap = tap
    swap(module, Tapped)


def take_tap(module: Any) -> None:
    """Let it no longer."""
    restore(module)
    del module.tap


def put_grids(model: Any, spots: Sequence[Spot], encodings: Sequence[Encoding], rule: Rule) -> None:
    """Give each attention its encoding."""
    for spot, encoding in zip(spots, encodings, strict=True):
        attention = model.get_submodule(spot.path)
        attention.encoding = encoding
        attention.grid_kind, attention.grid_rule = spot.kind, replace(rule, known=spot.sizes)
        attention.grid_model = (model,)
        swap(attention, GridAttention)
    for module, tap in find_taps(model):
        put_tap(module, tap)
    model.grid_spots = tuple(spots)
    swap(model, FlexibleModel if name_kind(model) == "naflexvit.NaFlexVit" else GridModel)


@dataclass(frozen=True)
class Installed:
    """What can be put back into a model."""

    spots: tuple[Spot, ...]
    encodings: tuple[Encoding, ...]
    rule: Rule


def taken_grids(model: Any) -> Installed | None:
    """Take all of it away, and return what was there."""
    if not isinstance(model, GridModel):
        return None
    attentions = [cast(Any, model.get_submodule(spot.path)) for spot in model.grid_spots]
    had = Installed(model.grid_spots, tuple(each.encoding for each in attentions), attentions[0].grid_rule)
    for attention in attentions:
        restore(attention)
        for name in ("encoding", "grid_kind", "grid_rule", "grid_model"):
            delattr(attention, name)
    for module in model.modules():
        if isinstance(module, Tapped):
            take_tap(module)
    restore(model)
    del model.grid_spots
    return had


def put_back(model: Any, had: Installed | None) -> None:
    """Undo `taken_grids`."""
    if had is not None:
        put_grids(model, had.spots, had.encodings, had.rule)
