"""Wrong encodings, each with a fault that a real library has had or could have, and the check that must reject it."""

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ropewalk as rw
from ropewalk import testing
from ropewalk.encodings.alibi import Distance

MUTANTS = []


def rejected_by(*checks, **options):
    """Register a wrong encoding, built with these options, together with the checks that must reject it."""

    def register(kind):
        MUTANTS.extend(pytest.param(kind, options, check, id=f"{kind.__name__}-{check.__name__}") for check in checks)
        return kind

    return register


SMALL = {"head_dim": 12, "heads": 2}
PLANE = SMALL | {"size": (3, 5)}
YARN = {"extension": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}
DYNAMIC = {"extension": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2}, "length": 9}


# Behaviour


@rejected_by(testing.check_layers, testing.check_groups, **SMALL)
class ClaimsAFixedShape(rw.Mixed):
    """To have an option that fixes its heads and layers, which would leave it out of the checks with other numbers."""

    pinned = ("heads", "layers")


@rejected_by(testing.check_errors, **SMALL)
class SwallowsOptions(rw.RoPE):
    def __init__(self, **options):
        options.pop("colour", None)
        super().__init__(**options)


@rejected_by(testing.check_errors, **SMALL)
class TakesAnyShape(rw.RoPE):
    def forward(self, positions, key_positions=None):
        return self.encode(positions.reshape(-1, 1).to(self.frequency.dtype), None)


@rejected_by(testing.check_errors, **SMALL)
class IgnoresNaN(rw.RoPE):
    def _coordinates(self, name, positions, *where):
        return super()._coordinates(
            name, torch.nan_to_num(positions) if positions.is_floating_point() else positions, *where
        )


@rejected_by(testing.check_pure, **SMALL, **DYNAMIC)
class RemembersTheLongest(rw.RoPE):
    """Dynamic NTK that follows the longest text so far."""

    def rotation(self, q, k):
        self.length = max(self.length, q.shape[-2] + 4)
        self.init_non_persistent_buffers()
        return super().rotation(q, k)


@rejected_by(testing.check_settings, **SMALL, **DYNAMIC)
class ForgetsTheLength(rw.RoPE):
    """A length that is taken and not looked at."""

    def start(self):
        return self.initial()


@rejected_by(testing.check_pure, **SMALL)
class CachesByLength(rw.RoPE):
    """A table kept for its number of tokens: 28 x 7 gets the answer of 14 x 14."""

    def encode(self, q, k):
        cache = self.__dict__.setdefault("cache", {})
        return cache.setdefault((len(q), None if k is None else len(k)), super().encode(q, k))


@rejected_by(testing.check_pure, **SMALL)
class RemembersLongest(rw.RoPE):
    """Dynamic scaling that a long call leaves behind for short ones."""

    def encode(self, q, k):
        self.__dict__["longest"] = max(self.__dict__.get("longest", 0), q.shape[-2])
        return super().encode(q / self.__dict__["longest"], None if k is None else k / self.__dict__["longest"])


@rejected_by(testing.check_pure, **SMALL)
class ChangesPositions(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q.mul_(0.5), k)


@rejected_by(testing.check_settings, **SMALL)
class CachesWithoutBase(rw.RoPE):
    """A cache of the module whose key leaves the base out."""

    cache: ClassVar[dict] = {}

    def encode(self, q, k):
        return self.cache.setdefault(tuple(q.flatten().tolist()), super().encode(q, k))


@rejected_by(testing.check_pure, **SMALL)
class CachesInInference(rw.RoPE):
    """A cache that only runs without gradients fill, by length."""

    def encode(self, q, k):
        if torch.is_grad_enabled():
            return super().encode(q, k)
        cache = self.__dict__.setdefault("cache", {})
        return cache.setdefault((q.shape, None if k is None else k.shape), super().encode(q, k))


@rejected_by(testing.check_pure, **SMALL)
class ScalesInEvaluation(rw.Axial):
    def encode(self, q, k):
        return super().encode(q if self.training else q / 2, k if self.training or k is None else k / 2)


@rejected_by(testing.check_settings, **SMALL)
class LooksBothWays(rw.T5Bias):
    """`bidirectional` taken and not used."""

    def __init__(self, *, bidirectional=True, **options):
        super().__init__(**options)
        self.bidirectional = bidirectional


@rejected_by(testing.check_settings, **SMALL)
class IgnoresItsVariant(rw.Uniform):
    def initial(self):
        return {"frequency": torch.ones(1, 2, 3, dtype=torch.float64)}


@rejected_by(testing.check_decoding, **SMALL)
class ScalesByTheKeys(rw.ALiBi):
    """Distances measured by the extent of the keys that are there."""

    def encode(self, q, k):
        code = super().encode(q, k)
        return replace(code, table=code.table / (1 + code.k_positions.amax()))


@rejected_by(testing.check_batch, **SMALL)
class ReadsTheFirstKeys(rw.RoPE):
    """Keys of all samples where the first sample's are."""

    def encode(self, q, k):
        return super().encode(q, k[0] if k is not None and k.ndim == 3 else k)


@rejected_by(testing.check_integers, **SMALL)
class CountsIntegerKeysFromOne(rw.RoPE):
    def _coordinates(self, name, positions, *where):
        late = name == "key_positions" and not positions.is_floating_point()
        return super()._coordinates(name, positions + 1 if late else positions, *where)


@rejected_by(testing.check_grid, **PLANE)
class ReadsColumnsFirst(rw.Axial):
    def grid(self, *sizes, **options):
        return super().grid(*sizes, **options).unflatten(0, sizes).transpose(0, 1).flatten(0, 1)


@rejected_by(testing.check_grid, **PLANE)
class KnowsOneResolution(rw.Axial):
    def grid(self, *sizes, resolution="extrapolate", **options):
        super().grid(*sizes, resolution=resolution)
        return super().grid(*sizes, resolution="extrapolate", **options)


@rejected_by(testing.check_decoding, **SMALL)
class CountsTokens(rw.RoPE):
    """Places counted from the start of the call, whatever the positions say."""

    def encode(self, q, k):
        def count(p):
            return torch.arange(p.shape[-2], dtype=p.dtype).unsqueeze(-1).expand_as(p)

        return super().encode(count(q), None if k is None else count(k))


@rejected_by(testing.check_batch, **PLANE)
class ScalesByBatch(rw.Axial):
    """One scale for the batch: an image's code depends on its neighbours."""

    def encode(self, q, k):
        scale = q.abs().max()
        return super().encode(q / scale, None if k is None else k / scale)


@rejected_by(testing.check_integers, **SMALL)
class CountsIntegersFromOne(rw.RoPE):
    def _coordinates(self, name, positions, *where):
        return super()._coordinates(name, positions if positions.is_floating_point() else positions + 1, *where)


@dataclass(frozen=True, eq=False, kw_only=True)
class PrefixLast(rw.Rotation):
    def prefixed(self, q=0, k=0):
        k_angle = self.q_angle if self.k_angle is None else self.k_angle
        return replace(self, q_angle=F.pad(self.q_angle, (0, 0, 0, q)), k_angle=F.pad(k_angle, (0, 0, 0, k)))


@rejected_by(testing.check_prefix, **SMALL)
class PrefixAtTheEnd(rw.RoPE):
    """The still row appended while the class token stands in front."""

    def encode(self, q, k):
        return PrefixLast(**vars(super().encode(q, k)))


@dataclass(frozen=True, kw_only=True)
class PrefixAtZero(rw.Bias):
    def prefixed(self, q=0, k=0):
        q_positions, k_positions = F.pad(self.q_positions, (0, 0, q, 0)), F.pad(self.k_positions, (0, 0, k, 0))
        return replace(self, q_positions=q_positions, k_positions=k_positions)


@rejected_by(testing.check_prefix, **SMALL)
class BiasesThePrefix(rw.ALiBi):
    def encode(self, q, k):
        return PrefixAtZero(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class PrefixOffset(rw.Offset):
    def prefixed(self, q=0, k=0):
        return replace(self, offset=F.pad(self.offset, (0, 0, 0, q)))


@rejected_by(testing.check_prefix, **PLANE)
class OffsetsThePrefix(rw.LearnedAPE):
    def encode(self, q, k):
        return PrefixOffset(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class SwapsPrefixes(rw.Bias):
    def scores(self, q, k):
        late = self.q_prefix - self.k_prefix
        return super().scores(q, k).roll((-late, late), (-2, -1))


@rejected_by(testing.check_prefix, **SMALL)
class SwapsItsPrefixes(rw.ALiBi):
    def encode(self, q, k):
        return SwapsPrefixes(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class LastPrefixWins(rw.Rotation):
    def prefixed(self, q=0, k=0):
        return replace(self, q_prefix=q, k_prefix=k)


@rejected_by(testing.check_prefix, **SMALL)
class ForgetsTheFirstPrefix(rw.RoPE):
    def encode(self, q, k):
        return LastPrefixWins(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class TurnsNoPrefix(rw.Basis):
    def q(self, q):
        return torch.cat([q[:, :, : self.q_prefix], super().q(q[:, :, self.q_prefix :])], 2)


@rejected_by(testing.check_prefix, **SMALL)
class ForgetsTheBasisOfThePrefix(rw.StringCayley):
    """Class tokens are left alone, though the tokens that they meet are written in another basis."""

    def encode(self, q, k):
        code = super().encode(q, k)
        return replace(code, codes=(TurnsNoPrefix(**vars(code.codes[0])), code.codes[1]))


@dataclass(frozen=True, eq=False, kw_only=True)
class PrefixInTheTable(rw.Bias):
    """The class token is taken for a token at the first token's place."""

    def scores(self, q, k):
        bias = super().scores(q, k)
        return (
            bias
            if not self.k_prefix
            else torch.cat([bias[..., -1:].expand(*bias.shape[:-1], self.k_prefix), bias[..., self.k_prefix :]], -1)
        )


@rejected_by(testing.check_prefix, **SMALL, **YARN)
class SharpensOnlyPlaces(rw.RoPE):
    """YaRN's temperature for tokens with a position, and not for class tokens that they meet."""

    def rotation(self, q, k):
        return replace(super().rotation(q, k), prefix_gain=1.0)


@rejected_by(testing.check_matrices, testing.check_prefix, **SMALL, **YARN)
class SharpensQueriesAlone(rw.RoPE):
    """All of the temperature on q, but for the prefix, which keeps its half."""

    def rotation(self, q, k):
        made = super().rotation(q, k)
        return replace(made, q_gain=made.q_gain.square(), k_gain=None)


@rejected_by(testing.check_isometric, **SMALL, **YARN)
class ClaimsNorms(rw.RoPE):
    """YaRN that stretches and does not say so."""

    @property
    def traits(self):
        return replace(super().traits, isometric=True)


@rejected_by(testing.check_prefix, **PLANE, class_token=True)
class AnchorsByPosition(rw.SwinBias):
    def encode(self, q, k):
        return PrefixInTheTable(**vars(super().encode(q, k)))


@rejected_by(testing.check_prefix, testing.check_gradients, **PLANE, class_token=True)
class ForgetsItsAnchors(rw.SwinBias):
    def encode(self, q, k):
        return replace(super().encode(q, k), prefix=None)


@rejected_by(testing.check_prefix, **PLANE, class_token=True)
class HidesItsAnchors(rw.SwinBias):
    @property
    def traits(self):
        return replace(super().traits, anchored=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class OtherSign(rw.Bias):
    def score_mod(self, q, k):
        modify = super().score_mod(q, k)
        return lambda score, *where: 2 * score - modify(score, *where)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ForgetsItsGain(rw.Rotation):
    """What has no position is not stretched, but the prefix is."""

    def _marked(self, q, k):
        return super()._marked(q, k) | self._marked_tables("gain", q, k, 1.0, shared=False)


@rejected_by(testing.check_unrotated, **SMALL, **YARN)
class StretchesTheRest(rw.RoPE):
    def encode(self, q, k):
        return ForgetsItsGain(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LooksAtNoMask(rw.Bias):
    """Masks say nothing."""

    def _marked(self, q, k):
        return super()._marked(replace(q, mask=None), replace(k, mask=None))


@rejected_by(testing.check_unrotated, **SMALL)
class IgnoresMasks(rw.ALiBi):
    def encode(self, q, k):
        return LooksAtNoMask(**vars(super().encode(q, k)))


@rejected_by(testing.check_score_mod, **SMALL)
class FlexesTheOtherWay(rw.ALiBi):
    """Right as a dense mask, wrong inside flex attention."""

    def encode(self, q, k):
        return OtherSign(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NoModification(rw.Bias):
    def score_mod(self, q, k):
        return None


@rejected_by(testing.check_score_mod, **SMALL)
class FlexesWithoutBias(rw.ALiBi):
    def encode(self, q, k):
        return NoModification(**vars(super().encode(q, k)))


@rejected_by(testing.check_layers, **SMALL)
class OneParameterForAllLayers(rw.Mixed):
    def lead(self, *, shared=False):
        return (1 if shared else self.own_heads,)


@rejected_by(testing.check_layers, **SMALL)
class WrongOnlyInBatches(rw.Mixed):
    """Right for one layer, right for one grid, wrong for several layers of samples with positions of their own."""

    def encode(self, q, k):
        code = super().encode(q, k)
        layered = self.layers is not None and q.ndim == 3
        return replace(code, q_angle=code.q_angle[:, :1].expand_as(code.q_angle)) if layered else code


@dataclass(frozen=True, eq=False, kw_only=True)
class ValuesTurned(rw.Rotation):
    def qkv(self, x, heads):
        q, k, v = super().qkv(x, heads)
        return q, k, self.k(v)


@rejected_by(testing.check_views, **SMALL)
class TurnsValuesOfProjections(rw.Mixed):
    def encode(self, q, k):
        return ValuesTurned(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NowhereInPlace(rw.Rotation):
    def qk_(self, q, k):
        return self.qk(q, k)


@rejected_by(testing.check_views, **SMALL)
class TurnsNothingInPlace(rw.Mixed):
    def encode(self, q, k):
        return NowhereInPlace(**vars(super().encode(q, k)))


@dataclass(frozen=True, eq=False, kw_only=True)
class LastLayerFirst(rw.Rotation):
    def unbind(self):
        return super().unbind()[::-1]


@rejected_by(testing.check_layers, **SMALL)
class UnbindsBackwards(rw.Mixed):
    def encode(self, q, k):
        return LastLayerFirst(**vars(super().encode(q, k)))


@rejected_by(testing.check_layers, testing.check_gradients, **SMALL, layers=3)
class UsesLayerZero(rw.Mixed):
    """Every layer turns by the first layer's parameters; the others never learn."""

    def waves(self):
        return self.wave if self.layers is None else self.wave[:1].expand_as(self.wave)


@rejected_by(testing.check_groups, **SMALL)
class TilesGroups(rw.Mixed):
    """Query heads 0, 1, 2, 3 meet key heads 0, 1, 0, 1 where attention pairs them 0, 0, 1, 1."""

    def encode(self, q, k):
        code = super().encode(q, k)
        tiled = code.q_angle.repeat(*[1] * (code.q_angle.ndim - 3), self.heads // self.own_heads, 1, 1)
        return replace(code, q_angle=tiled, k_angle=code.q_angle if k is None else code.k_angle)


@dataclass(frozen=True, kw_only=True)
class TurnsInPlace(rw.Rotation):
    def _turn(self, xs):
        return [x.copy_(y) for x, y in zip(xs.values(), super()._turn(xs), strict=True)]


@rejected_by(testing.check_views, **SMALL)
class WritesIntoQueries(rw.RoPE):
    def encode(self, q, k):
        return TurnsInPlace(**vars(super().encode(q, k)))


@dataclass(frozen=True, kw_only=True)
class ReadsAsContiguous(rw.Rotation):
    def _turn(self, xs):
        strides = {side: torch.empty(x.shape, device="meta").stride() for side, x in xs.items()}
        return super()._turn({side: x.as_strided(x.shape, strides[side]) for side, x in xs.items()})


@rejected_by(testing.check_views, **SMALL)
class AssumesContiguous(rw.RoPE):
    def encode(self, q, k):
        return ReadsAsContiguous(**vars(super().encode(q, k)))


# State


@rejected_by(testing.check_state_dict, **SMALL)
class SavesItsTable(rw.RoPE):
    def __init__(self, **options):
        super().__init__(**options)
        self.register_buffer("frequency", self.frequency)


@rejected_by(testing.check_state_dict, testing.check_config, **SMALL)
class HidesItsWeights(rw.RoPE):
    """Random numbers that no state dict holds and no seed repeats."""

    draws: ClassVar = torch.Generator().manual_seed(0)

    def __init__(self, **options):
        super().__init__(**options)
        self.secret = torch.rand(6, 1, generator=self.draws, dtype=torch.float64)

    def waves(self):
        return super().waves() + self.secret.to(self.frequency.dtype)


@rejected_by(testing.check_copy, **SMALL)
class CopiesShallowly(rw.Mixed):
    def __deepcopy__(self, memo):
        return copy.copy(self) if getattr(self, "ready", False) else self._first(memo)

    def _first(self, memo):
        other = type(self)(**{name: value for name, value in self.config().items() if name != "name"})
        other.load_state_dict(self.state_dict())
        other.__dict__["ready"] = True
        return other


@rejected_by(testing.check_config, **SMALL, base=500.0)
class ForgetsItsBase(rw.RoPE):
    def __init__(self, **options):
        super().__init__(**options)
        self.base = 10000.0


@rejected_by(testing.check_config, **SMALL)
class MisprintsItself(rw.RoPE):
    def __repr__(self):
        return f"{type(self).__name__}(head_dim={self.head_dim})"


@rejected_by(testing.check_meta, **SMALL)
class NeverRebuilds(rw.RoPE):
    """A table that is garbage after `to_empty()`."""

    def reset_parameters(self):
        pass


@rejected_by(testing.check_meta, **SMALL)
class ResetsWhatWasLoaded(rw.Mixed):
    def init_non_persistent_buffers(self):
        self.reset_parameters()


@rejected_by(testing.check_emptied, **SMALL)
class LeavesGarbage(rw.Axial):
    """A table that nobody rebuilds when it leaves the meta device."""

    def _apply(self, fn, recurse=True):
        return nn.Module._apply(self, lambda tensor: fn(tensor).fill_(0.125) if tensor.is_meta else fn(tensor), recurse)


@rejected_by(testing.check_emptied, **SMALL)
class TakesGarbage(rw.Mixed):
    """Parameters are used as `to_empty()` leaves them."""

    def _check_values(self):
        pass


@rejected_by(testing.check_emptied, **SMALL)
class RefusesWhatWasWritten(rw.Mixed):
    """Only `reset_parameters()` counts."""

    def _check_values(self):
        raise RuntimeError("call reset_parameters() first")


@rejected_by(testing.check_casts, testing.check_distinct, **SMALL)
class FollowsCasts(rw.Mixed):
    """Frequencies and positions that go to bfloat16 with the model; angles are widened afterwards."""

    _apply = nn.Module._apply

    def _arithmetic(self):
        return torch.promote_types(self.wave.dtype, torch.float32), self.wave.device

    def encode(self, q, k):
        q, k = (None if p is None else p.to(self.wave.dtype).to(p.dtype) for p in (q, k))
        return super().encode(q, k)


@rejected_by(testing.check_casts, **SMALL)
class StaysRounded(rw.RoPE):
    """Frequencies rounded to float32 once and for all, so that float64 is so in name only."""

    def init_non_persistent_buffers(self):
        pass


class TrustsItsTables(rw.Rotation):
    """Computes with whatever its angles were cast to."""

    def _check_precision(self):
        pass


@rejected_by(testing.check_narrowed, **SMALL)
class TakesCastCodes(rw.RoPE):
    """A code whose angles FSDP2 rounds on their way into a block, and which turns by them."""

    def encode(self, q, k):
        return TrustsItsTables(**vars(super().encode(q, k)))


@rejected_by(testing.check_narrowed, **SMALL)
class TakesCastPositions(rw.RoPE):
    """Positions are widened, which does not bring back what a cast took."""

    def _coordinates(self, name, positions, *where):
        return super()._coordinates(name, positions.float() if positions.is_floating_point() else positions, *where)


@rejected_by(testing.check_narrowed, **SMALL)
class SharesItsTable(rw.T5Bias):
    """A code that is its parameter, whose memory FSDP2 frees before the code is used."""

    def encode(self, q, k):
        return replace(super().encode(q, k), table=self.table)


@rejected_by(testing.check_autocast, **SMALL)
class MultipliesMatrices(rw.RoPE):
    """Angles by a matrix product, which autocast runs in bfloat16."""

    def encode(self, q, k):
        code = super().encode(q, None)
        return replace(code, q_angle=(q @ self.waves().mT[0].to(q.dtype)).unsqueeze(-3), k_angle=None)


@dataclass(frozen=True)
class ProductOfMatrices(Distance):
    def __call__(self, slope, head, query, key):
        distance = super().__call__(torch.ones_like(slope), head, query, key)
        return distance * (0.3 * slope[:, None] @ torch.ones_like(slope)[None])[head, 0].to(distance.dtype) / 0.3


@rejected_by(testing.check_autocast, **SMALL)
class MultipliesMatricesInScores(rw.ALiBi):
    def encode(self, q, k):
        return replace(super().encode(q, k), rule=ProductOfMatrices())


# Numerics


@rejected_by(testing.check_precision, testing.check_distinct, **SMALL)
class PositionsOfTheQueriesDtype(rw.RoPE):
    """Positions made in bfloat16: 1,000 places become 507."""

    def encode(self, q, k):
        return super().encode(q.bfloat16().to(q.dtype), None if k is None else k.bfloat16().to(k.dtype))


@rejected_by(testing.check_precision, **SMALL)
class HalfPrecisionFrequencies(rw.RoPE):
    def waves(self):
        waves = super().waves()
        return waves if waves.dtype is torch.float64 else waves.half().float()


@rejected_by(testing.check_precision, **PLANE)
class RoundsMatrices(rw.LieRE):
    """Rotations kept in bfloat16."""

    def encode(self, q, k):
        code = super().encode(q, k)
        return replace(
            code, q_matrix=(code.q_matrix.bfloat16().to(code.q_matrix.dtype)) if q.dtype is torch.float32 else code.q_matrix
        )


@rejected_by(testing.check_gradients, **SMALL)
class DetachesFrequencies(rw.Mixed):
    """No gradient for the angles, silently."""

    def waves(self):
        return self.wave.detach()


@dataclass(frozen=True)
class PlainRoot(Distance):
    def __call__(self, slope, head, query, key):
        return -slope[head] * sum((q - k) ** 2 for q, k in zip(query, key, strict=True)).sqrt()


@rejected_by(testing.check_gradients, **SMALL, axes=2)
class RootAtZero(rw.ALiBi):
    def encode(self, q, k):
        return replace(super().encode(q, k), rule=PlainRoot())


@rejected_by(testing.check_gradients, **PLANE, block=4)
class Diagonalises(rw.LieRE):
    """Exponentials by eigenvectors, whose derivative does not exist where eigenvalues coincide: at zero."""

    def encode(self, q, k):
        code = super().encode(q, k)
        skew = torch.einsum("na,hagij->hngij", q, self.blocks())
        value, vector = torch.linalg.eigh(1j * skew)
        matrix = ((vector * torch.exp(-1j * value).unsqueeze(-2)) @ vector.mH).real
        return replace(code, q_matrix=matrix)


@rejected_by(testing.check_gradcheck, **SMALL)
class HalvesTheGradient(rw.Mixed):
    def waves(self):
        return 0.5 * self.wave + 0.5 * self.wave.detach()


# Tracing


@rejected_by(testing.check_compile, testing.check_export, **SMALL)
class LooksAtValues(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q / 2 if q.max() > 100 else q, k)


@rejected_by(testing.check_compile, testing.check_export, **SMALL)
class BuildsATableOfFixedLength(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q + torch.tensor([0.0] * q.shape[-2], dtype=q.dtype).unsqueeze(-1), k)


@rejected_by(testing.check_transforms, **SMALL)
class LooksAtSamples(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q / 2 if not torch.compiler.is_compiling() and bool(q.max() > 100) else q, k)


# Laws


class Claims:
    """An encoding that claims something else of itself."""

    claims: ClassVar[dict] = {}

    @property
    def traits(self):
        return replace(super().traits, **self.claims)


@rejected_by(testing.check_traits, **SMALL)
class ClaimsToBeFixed(Claims, rw.Mixed):
    claims: ClassVar = {"learned": False}


@rejected_by(testing.check_traits, **SMALL)
class ClaimsToBeOblique(Claims, rw.Axial):
    claims: ClassVar = {"oblique": True}


@rejected_by(testing.check_traits, **SMALL)
class ClaimsNotToBeOblique(Claims, rw.Spherical):
    claims: ClassVar = {"oblique": False}


@rejected_by(testing.check_traits, **SMALL)
class ClaimsNotToBeRotary(Claims, rw.RoPE):
    claims: ClassVar = {"rotary": False}


@rejected_by(testing.check_isometric, **SMALL)
class ClaimsNotToBeIsometric(Claims, rw.RoPE):
    claims: ClassVar = {"isometric": False}


@rejected_by(testing.check_precision, **PLANE, block=8)
class ClaimsToRoundAsAnglesDo(Claims, rw.LieRE):
    claims: ClassVar = {"rounding": 0.25}


@rejected_by(testing.check_matrices, **SMALL)
class TransposesTheBasis(rw.StringCayley):
    def generators(self):
        basis = self.basis().unsqueeze(-3)
        return basis.mT @ super(rw.StringCayley.__mro__[1], self).generators() @ basis


@rejected_by(testing.check_relative, **SMALL)
class GainsForBoth(rw.XPos):
    """Keys fade as queries do: scores then depend on where both stand."""

    def rotation(self, q, k):
        code = super().rotation(q, k)
        return replace(code, k_gain=code.q_gain) if k is None else replace(code, k_gain=self._gain(k))


@rejected_by(testing.check_monotone, **SMALL)
class ClaimsNotToBeMonotone(Claims, rw.ALiBi):
    claims: ClassVar = {"monotone": False}


@rejected_by(testing.check_relative, testing.check_distinct, **SMALL)
class ClampsNegatives(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q.clamp(min=0), None if k is None else k.clamp(min=0))


@rejected_by(testing.check_relative, **PLANE, block=4)
class ClaimsToBeRelative(Claims, rw.LieRE):
    claims: ClassVar = {"relative": (True, True)}


@rejected_by(testing.check_relative, **PLANE, block=2)
class ClaimsNotToBeRelative(Claims, rw.LieRE):
    claims: ClassVar = {"relative": (False, False)}


@rejected_by(testing.check_relative, **PLANE)
class ClaimsTheOtherAxis(Claims, rw.Spherical):
    claims: ClassVar = {"relative": (True, False)}


@rejected_by(testing.check_axes, **SMALL)
class ConfusesAxes(rw.Mixed):
    """One frequency vector for every axis: (0, 1) and (1, 0) look alike."""

    def waves(self):
        return self.wave[..., :1].expand_as(self.wave)


@rejected_by(testing.check_axes, **SMALL)
class ClaimsToBeIsotropic(Claims, rw.Axial):
    claims: ClassVar = {"isotropic": True}


@rejected_by(testing.check_isometric, **SMALL)
class Stretches(rw.RoPE):
    def encode(self, q, k):
        code = super().encode(q, k)
        return replace(code, q_gain=torch.full_like(code.q_angle, 1.1))


@rejected_by(testing.check_origin, testing.check_matrices, **SMALL)
class CountsFromOne(rw.RoPE):
    def encode(self, q, k):
        return super().encode(q + 1, None if k is None else k + 1)


@rejected_by(testing.check_matrices, **SMALL)
class TurnsTheOtherWay(rw.Axial):
    """Relative, isometric and still at zero; but not what its generators say."""

    def encode(self, q, k):
        return super().encode(-q, None if k is None else -k)


@rejected_by(testing.check_matrices, **PLANE)
class ReversesTheOrder(rw.Spherical):
    """The last axis acts first."""

    def generators(self):
        return super().generators().flip(-3)


@dataclass(frozen=True)
class Rises(Distance):
    def __call__(self, *arguments):
        return -super().__call__(*arguments)


@rejected_by(testing.check_monotone, **SMALL)
class ReversesTheSign(rw.ALiBi):
    def encode(self, q, k):
        return replace(super().encode(q, k), rule=Rises())


@pytest.mark.parametrize(("kind", "options", "check"), MUTANTS)
def test_mutant_is_rejected(kind, options, check):
    with pytest.raises(AssertionError):
        check(kind(**options))


@pytest.mark.parametrize(("kind", "options", "check"), MUTANTS)
def test_its_parent_is_not(kind, options, check):
    """So that it is the fault that is rejected."""
    parent = next(base for base in kind.__mro__[1:] if base in rw.encodings.REGISTRY.values())
    check(parent(**options))


def test_every_check_has_a_mutant():
    defined = {check for name, check in vars(testing).items() if name.startswith("check_") and name != "check_encoding"}
    applied = {*testing.ALWAYS, *(check for checks in testing.BY_TRAIT.values() for check in checks)}
    assert applied <= defined
    assert defined - applied == {testing.check_axes, testing.check_integers}
    assert {param.values[2] for param in MUTANTS} == defined


def test_the_whole_contract_names_the_check():
    with pytest.raises(AssertionError, match="check_pure"):
        testing.check_encoding(RemembersLongest(**SMALL))
