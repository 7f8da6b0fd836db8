"""The kinds of attention in timm's models whose tokens stand on grids of their own: how each knows where its tokens are.

A kind is a line of KINDS, under the name of its class. Attention whose scores are not between tokens with positions is in
LEFT, with the reason.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ropewalk.adapters.timm import grids
from ropewalk.adapters.timm.class_swap import Swapped, host_of
from ropewalk.adapters.timm.grids import Grid, Place, pair
from ropewalk.adapters.timm.scoring import LAYOUTS
from ropewalk.arguments import one_of


class Frame(threading.local):
    """Sizes of the latest map that was seen on its way to attention that gets tokens alone, in each thread."""

    sizes: tuple[int, int] | None = None


FRAME = Frame()


def framed(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """The map that was seen on its way."""
    if FRAME.sizes is None:
        wanted = "the model must be called as a whole, and its blocks not be checkpointed one by one"
        raise ValueError(f"{wanted}: the sizes of the map of {type(attention).__name__} are not known")
    return grids.fit_tokens([FRAME.sizes], model, x)


def lines_of_keys(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """The same; of keys, tokens that follow each other are averaged."""
    grid = framed(attention, model, x)
    return grid if attention.sr is None else Grid(grid.sizes, keys=grids.lined(attention.N_ratio))


def of_model(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """timm's own attention, which gets tokens alone: their map is seen on its way, or is the model's grid of patches."""
    place = framed if host_of(model).__name__ in FRAMED else grids.patches
    return place(attention, model, x)


FRAMED = {"PoolingVisionTransformer", "ByobNet", "CSATv2", "NaFlexVit"} | {
    f"{family}{part}" for family in ("Qwen3Vit", "DeepseekVit") for part in ("Encoder", "Classifier")
}


@dataclass(frozen=True)
class Kind:
    """How to place the tokens of an attention, how its q lies, and which argument, its own rotation, it does without."""

    place: Place
    layout: str = "bhnd"
    without: str = ""


KINDS: dict[str, Kind] = {
    "beit.Attention": Kind(grids.patches),
    "cait.TalkingHeadAttn": Kind(grids.patches),
    "convit.GPSA": Kind(grids.patches),
    "convit.MHSA": Kind(grids.patches),
    "cpubone.ConvAttention": Kind(grids.strided),
    "davit.WindowAttention": Kind(grids.window),
    "efficientformer.Attention": Kind(grids.square),
    "efficientformer_v2.Attention2d": Kind(grids.resolution),
    "efficientformer_v2.Attention2dDownsample": Kind(grids.halved),
    "eva.EvaAttention": Kind(of_model, without="rope"),
    "fastvit.Attention": Kind(grids.rows_first),
    "gcvit.WindowAttentionGlobal": Kind(grids.window),
    "hiera.MaskUnitAttention": Kind(grids.mask_units, "bhwnd"),
    "hieradet_sam2.MultiScaleAttention": Kind(grids.channels_last),
    "iformer.SHMA": Kind(grids.windows_or_map, "bnd"),
    "levit.Attention": Kind(grids.resolution),
    "levit.AttentionDownsample": Kind(grids.halved),
    "lowformer.ConvAttention": Kind(grids.strided),
    "maxxvit.Attention2d": Kind(grids.rows_first),
    "maxxvit.AttentionCl": Kind(grids.channels_last),
    "metaformer.Attention": Kind(framed),
    "mvitv2.MultiScaleAttention": Kind(grids.multi_scale),
    "nest.Attention": Kind(grids.square, "bhwnd"),
    "nextvit.EfficientAttention": Kind(lines_of_keys),
    "pvt_v2.Attention": Kind(grids.given_sizes),
    "shvit.SHSA": Kind(grids.rows_first, "bnd"),
    "swin_transformer.WindowAttention": Kind(grids.window),
    "swin_transformer_v2.WindowAttention": Kind(grids.window),
    "swin_transformer_v2_cr.WindowMultiHeadAttention": Kind(grids.window),
    "tiny_vit.Attention": Kind(grids.resolution),
    "tnt.Attention": Kind(grids.pixels),
    "twins.GlobalSubSampleAttn": Kind(grids.given_sizes),
    "twins.LocallyGroupedAttn": Kind(grids.local_windows, "bwhnd"),
    "vision_transformer.Attention": Kind(of_model),
    "vision_transformer.DiffParallelScalingBlock": Kind(grids.patches),
    "vision_transformer.ParallelScalingBlock": Kind(grids.patches),
    "vision_transformer_relpos.RelPosAttention": Kind(grids.patches),
    "vision_transformer_sam.Attention": Kind(grids.channels_last, "(bh)nd"),
    "visformer.Attention": Kind(grids.rows_first),
    "volo.Attention": Kind(grids.channels_last),
    "swin_transformer.ShiftedWindowAttention": Kind(grids.window),  # torchvision's, as the next two
    "swin_transformer.ShiftedWindowAttentionV2": Kind(grids.window),
    "activation.MultiheadAttention": Kind(grids.patches),
    "attention.Attention": Kind(of_model),
    "attention.AttentionRope": Kind(of_model, without="rope"),
    "attention2d.Attention2d": Kind(grids.rows_first),
    "attention2d.MultiQueryAttention2d": Kind(grids.multi_query),
    "diff_attention.DiffAttention": Kind(grids.patches),
}

CHANNELS = "it compares channels, which have no positions"
SUMMARY = "its query is a class token or another summary, which has no position"
LINEAR = "it is linear: no query is compared with a key"
LEFT: dict[str, str] = {
    "attention_pool.AttentionPoolLatent": SUMMARY,
    "attention_pool2d.AttentionPool2d": SUMMARY,
    "attention_pool2d.RotAttentionPool2d": SUMMARY,
    "byobnet.SelfAttnBlock": "its halos and bottlenecks have relative positions for each axis, which stay",
    "cait.ClassAttn": SUMMARY,
    "coat.FactorAttnConvRelPosEnc": LINEAR,
    "crossvit.CrossAttention": SUMMARY,
    "davit.ChannelAttention": CHANNELS,
    "davit.ChannelAttentionV2": CHANNELS,
    "edgenext.CrossCovarianceAttn": CHANNELS,
    "efficientvit_mit.LiteMLA": LINEAR,
    "efficientvit_msra.CascadedGroupAttention": "its heads attend one after another, each to what the last one found",
    "mobilevit.LinearSelfAttention": LINEAR,
    "swiftformer.EfficientAdditiveAttention": LINEAR,
    "volo.ClassAttention": SUMMARY,
    "volo.OutlookAttention": LINEAR,
    "xcit.ClassAttn": SUMMARY,
    "xcit.XCA": CHANNELS,
}


def name_kind(module: nn.Module) -> str:
    """The last two parts of the name of a module's class: "swin_transformer.WindowAttention"."""
    kind = host_of(module)
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


REGISTERED: dict[type[nn.Module], Kind] = {}


def register(attention: type[nn.Module], place: Place = grids.patches, *, layout: str = "bhnd") -> None:
    """Register an attention class of your own, or of another library, so that `install` supports it.

    It must compute its scores by `scaled_dot_product_attention`, or by q @ kᵀ as the first matrix product of its `forward`.

    attention  The class. Its instances have `num_heads` if heads are in the batch.
    place      A function of the attention, the model and the attention's arguments that returns the `Grid` of its tokens. By
               default they are the patches of `model.patch_embed`, row by row after `model.num_prefix_tokens` others.
    layout     How q lies where the scores are computed: "bhnd", batch, heads, tokens and channels; "bwhnd" or "bhwnd", with
               windows before or after heads; "(bh)nd", heads in the batch; "bnd", one head.
    """
    if not (isinstance(attention, type) and issubclass(attention, nn.Module)):
        raise TypeError(f"attention must be a class of modules, got {attention!r}")
    if not callable(place):
        raise TypeError(f"place must be a function that returns a Grid, got {place!r}")
    REGISTERED[attention] = Kind(place, one_of("layout", layout, LAYOUTS))


def find_kind(module: nn.Module) -> Kind | None:
    """The kind of an attention, if it is one that is known."""
    return REGISTERED.get(host_of(module)) or KINDS.get(name_kind(module))


# Maps on their way to attention that gets tokens alone


@dataclass(frozen=True)
class Tap:
    """A child of a module, or the module itself, that sees a map: its sizes, from the arguments or the output."""

    child: str
    sizes: Callable[[Any, tuple[Any, ...], Any], tuple[int, int] | None]
    before: bool = False


def _rows_first(module: Any, given: Any, out: Any) -> tuple[int, int]:
    return pair((out[0] if isinstance(out, tuple) else out).shape[-2:])


def _channels_last(module: Any, given: Any, out: Any) -> tuple[int, int]:
    return pair(out.shape[1:3])


def _unfolded(module: Any, given: Any, out: Any) -> tuple[int, int]:
    sides = zip(given[0].shape[-2:], module.patch_size, strict=True)
    return pair([-(-size // side) for size, side in sides])


TAPS: dict[str, Tap] = {
    "csatv2.PosConv": Tap("", lambda module, given, out: pair(given[1]), before=True),
    "deepseek_vit.DeepseekVitEncoder": Tap("patch_embed", _channels_last),
    "metaformer.Downsampling": Tap("", _rows_first),
    "mobilevit.MobileVitBlock": Tap("", _unfolded, before=True),
    "naflexvit.NaFlexEmbeds": Tap("", lambda module, given, out: None if out[1] is None else pair(out[1])),
    "nextvit.PatchEmbed": Tap("", _rows_first),
    "pit.ConvEmbedding": Tap("", _rows_first),
    "pit.Pooling": Tap("", _rows_first),
    "qwen3_vit.Qwen3VitEncoder": Tap("patch_embed", _channels_last),
}


class Tapped(Swapped):
    """Any module that sees a map: it notes its sizes."""

    tap: Tap

    def forward(self, *given: Any, **named: Any) -> Any:
        if self.tap.before:
            FRAME.sizes = self.tap.sizes(self, given, None)
        out = super().forward(*given, **named)
        if not self.tap.before:
            FRAME.sizes = self.tap.sizes(self, given, out)
        return out


def find_taps(model: nn.Module) -> list[tuple[nn.Module, Tap]]:
    """Modules of a model that see maps."""
    owners = [(module, TAPS[name]) for module in model.modules() if (name := name_kind(module)) in TAPS]
    return [(owner.get_submodule(tap.child), tap) for owner, tap in owners]
