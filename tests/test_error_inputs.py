"""What public functions refuse, and in which words: one line for each kind of bad input."""

import math

import numpy
import pytest
import torch

import ropewalk as rw
from ropewalk import extension, functional, layouts, positions, spectra, theory
from ropewalk.arguments import describe
from ropewalk.factory import from_config
from ropewalk.functional import tables
from ropewalk.models.lm import LM
from ropewalk.models.vit import ViT

Q, K = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
COS, SIN = torch.ones(5, 4), torch.zeros(5, 4)
POINTS, NAN = torch.rand(5, 2), math.nan
META = torch.empty(5, 4, device="meta")
ROPE = rw.create("rope", head_dim=8, heads=4, kv_heads=2)
AXIAL = rw.create("axial", head_dim=8, size=(3, 5))
LIERE = rw.create("liere", head_dim=8, size=(3, 5), layers=2)
CODE = ROPE(torch.arange(5))
VIT = ViT(encoding="axial", size=(8, 8), patch=4, width=16, depth=1, heads=2, classes=3)
TEXT = LM(vocabulary=7, width=16, depth=1, heads=2)
BIAS = rw.create("transformer-xl", head_dim=8, heads=4, kv_heads=2)(torch.arange(5))

CASES = {
    # positions
    "sequence of True": (lambda: positions.sequence(True), "n must be an integer at least 0, got True"),
    "sequence of less than none": (lambda: positions.sequence(-1), "n must be an integer at least 0, got -1"),
    "sequence from beyond 64 bits": (lambda: positions.sequence(3, -(2**70)), "start must be an integer of 64 bits"),
    "packed number": (lambda: positions.packed(3), "lengths must be a list or tuple of integers, got 3"),
    "segments of halves": (lambda: positions.segments([1.5]), "lengths must be an integer at least 0, got 1.5"),
    "padded list": (lambda: positions.padded([[1, 0]]), "real must be a tensor, got"),
    "visible points": (lambda: positions.visible(POINTS), "places must be integers"),
    "visible owners": (lambda: positions.visible(torch.arange(4), owner=torch.ones(3)), "owner must be shaped like"),
    "visible batches": (lambda: positions.visible(COS.long(), COS[:3].long()), "places and key_places must have one batch"),
    "mrope interval": (lambda: positions.mrope(3, interval=NAN), "interval must be a finite number of at least 0, got nan"),
    "mrope part": (lambda: positions.mrope("x"), "parts must be an integer at least 0, got 'x'"),
    "grid dtype": (lambda: positions.grid(3, dtype=str), "dtype must be a floating dtype, such as torch.float32, got"),
    "grid of integers": (lambda: positions.grid(3, dtype=torch.int32), "dtype must be a floating dtype"),
    "grid resolution": (lambda: positions.grid(3, resolution=1), "resolution must be one of extrapolate, rescale, got 1"),
    "perturb by NaN": (lambda: positions.perturb(POINTS, NAN), "step must be a finite number of at least 0"),
    "perturb by True": (lambda: positions.perturb(POINTS, True), "step must be a finite number"),
    "jitter by 1e300": (lambda: positions.jitter(POINTS, 1e300), "factor must be a finite number of at least 1 and at most"),
    "offset by a seed": (lambda: positions.offset(POINTS, 1.0, generator=3), "generator must be a Generator, got 3"),
    "positions without values": (lambda: rw.validate(META), "positions must have values to look at"),
    "positions in a list": (lambda: ROPE([0, 1, 2]), r"positions must be a tensor, got \[0, 1, 2\]; torch.as_tensor"),
    "positions in an array": (lambda: ROPE(numpy.arange(3)), "positions must be a tensor"),
    "positions elsewhere": (lambda: ROPE(torch.arange(3, device="meta")), "positions must be on one device with rope"),
    "positions far away": (lambda: LIERE(POINTS * 1e5), "liere is exact in float32 up to 16, and refuses .* beyond 160"),
    "places far away": (lambda: ROPE(torch.tensor([10**9])), "rope is exact in float32 up to 1e.06, .* up to 1e.09"),
    # encodings
    "create a number": (lambda: rw.create(3), "the name of an encoding must be a string, got 3"),
    "create from a vanishing base": (lambda: rw.create("rope", head_dim=8, base=1e-300), "frequency of rope is not finite"),
    "config without a name": (lambda: from_config({"head_dim": 8}), "config must have a name"),
    "fold a number": (lambda: rw.fold(3), "encoding must be an Encoding, got 3"),
    "fold by NaN": (lambda: rw.fold(AXIAL, tolerance=NAN), "tolerance must be a number not below zero"),
    "equivariance of a number": (lambda: theory.equivariance(3, POINTS, (1.0,)), "encoding must be an Encoding"),
    "equivariance by NaN": (lambda: theory.equivariance(AXIAL, POINTS, (NAN,)), "shifts must be a finite number, got nan"),
    "equation of no pairs": (lambda: theory.rope_equation(AXIAL, pairs=0), "pairs must be a positive integer, got 0"),
    "spectrum of a layer": (lambda: theory.spectrum(AXIAL, layer=1), "layer must be an integer at least 0 and at most 0"),
    # codes
    "prefix of True": (lambda: CODE.prefixed(q=True), "q must be an integer at least 0, got True"),
    "prefix of a half": (lambda: CODE.prefixed(1.5), "q must be an integer at least 0, got 1.5"),
    "layer by name": (lambda: LIERE(POINTS)["a"], "layer must be an integer, got 'a'"),
    "layer True": (lambda: LIERE(POINTS)[True], "layer must be an integer, got True"),
    "layer 2 of 2": (lambda: LIERE(POINTS)[2], "layer must be from -2 to 1 for a code of 2 layers, got 2"),
    "integers as q": (lambda: CODE.q(Q.to(torch.int8)), "q must be floating, got torch.int8"),
    "booleans as k": (lambda: CODE.k(K > 0), "k must be floating, got torch.bool"),
    "q elsewhere": (lambda: CODE.q(Q.to("meta")), "q and its code must be on one device, got meta and cpu"),
    "q in a list": (lambda: CODE.q([1.0]), r"q must be a tensor, got \[1.0\]"),
    "scores of a number": (lambda: CODE.scores(Q, 3), "k must be a tensor, got 3"),
    "scores of two batches": (lambda: BIAS.scores(Q[:1], K), "q and k must have one batch"),
    "projection with a flag": (lambda: CODE.qkv(torch.randn(2, 5, 8, 8), True), "heads must be a positive integer"),
    # attention
    "attend with a list for a mask": (lambda: rw.attend(Q, K, K, mask=[True]), "mask must be a tensor"),
    "attend with much dropout": (lambda: rw.attend(Q, K, K, dropout=2.0), "dropout must be a finite number of at least 0"),
    "attend with dropout by name": (lambda: rw.attend(Q, K, K, dropout="x"), "dropout must be a finite number"),
    "attend in two dtypes": (lambda: rw.attend(Q, K, K.double()), "q, k and v must have the same dtype"),
    "attend by a number": (lambda: rw.attend(Q, K, K, 3), "code must be a Code, got 3"),
    "attend to integers": (lambda: rw.attend(Q, K, K.long()), "v must be floating, got torch.int64"),
    "attend causally or no": (lambda: rw.attend(Q, K, K, causal="no"), "causal must be True or False, got 'no'"),
    "attend at NaN": (lambda: rw.attend(Q, K, K, scale=NAN), "scale must be a finite number of at least 1e-09"),
    "attend at widths that differ": (lambda: rw.attend(Q, K[..., :4], K), r"q must be \(B, H, N, D\), k"),
    # functions on tables
    "rotate with a flag as prefix": (lambda: functional.apply_rotary(Q, K, COS, SIN, prefix=True), "prefix must be an int"),
    "rotate by two dtypes": (lambda: functional.apply_rotary(Q, K, COS, SIN.double()), "the same shape and dtype"),
    "rotate a list": (lambda: functional.apply_rotary([1], None, COS, SIN), "q must be a tensor"),
    "rotate elsewhere": (lambda: functional.apply_rotary(Q, K, META, META), "all must be on one device, got q on cpu"),
    "tables of numbers": (lambda: tables.from_transformers(3, 4), "cos must be a tensor, got 3"),
    "tables of three": (lambda: tables.from_timm((COS, COS, COS)), "rope must be a tensor, or a pair"),
    "tables from True": (lambda: tables.from_flash_attn(COS, SIN, seqlen_offsets=True), "seqlen_offsets must be an integer"),
    "tables that are not complex": (lambda: tables.from_complex([1j]), "freqs_cis must be a tensor"),
    "weights in a list": (lambda: layouts.to_interleaved([1.0], 8), "weight must be a tensor"),
    "a state that is none": (lambda: layouts.convert([1], head_dim=8, to="interleaved"), "state must be a state dict"),
    # frequencies and rules
    "half a frequency": (lambda: spectra.uniform(1.5), "count must be an integer at least 0, got 1.5"),
    "a base of none": (lambda: spectra.geometric(3, 0), "base must be a number above zero, got 0"),
    "axes by the million": (lambda: spectra.golden_directions(3, 10**6), "axes must be an integer at least 1 and"),
    "a span of NaN": (lambda: spectra.with_span(POINTS, POINTS, NAN), "radians must be a number not below zero"),
    "a span without an image": (lambda: spectra.span(POINTS, POINTS[:0]), "waves must be"),
    "a rule that is a number": (lambda: extension.options(3, head_dim=8), "rope_parameters must be a dictionary, got 3"),
    "a base by name": (lambda: extension.options(None, head_dim=8, rope_theta="x"), "rope_theta must be a number"),
    "a share of two": (lambda: extension.options(None, head_dim=8, partial_rotary_factor=2), "partial_rotary_factor must"),
    "a factor in a list": (
        lambda: extension.options({"rope_type": "yarn", "factor": [4]}, head_dim=8, framework="mlx"),
        "factor must be a number above zero",
    ),
    # models
    "images of no height": (lambda: VIT(torch.randn(2, 3, 0, 8)), r"images must be \(B, 3, 2 sides"),
    "images of one channel": (lambda: VIT(torch.randn(2, 1, 8, 8)), r"images must be \(B, 3, 2 sides"),
    "images in half": (lambda: VIT(torch.randn(2, 3, 8, 8).half()), "images must have the dtype of the model's weights"),
    "images in bytes": (lambda: VIT(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)), "images must be floating"),
    "a ViT of half a class": (lambda: ViT(encoding="none", classes=1.5), "classes must be an integer at least 1"),
    "a ViT of a list": (lambda: ViT(encoding="none", options=[1]), "options must be a Mapping"),
    "tokens beyond the vocabulary": (lambda: TEXT(torch.tensor([[7]])), "tokens must be from 0 to 6, got 7 to 7"),
    "tokens that are floats": (lambda: TEXT(torch.ones(1, 2)), r"tokens must be integers \(B, N\)"),
    "more last tokens than there are": (lambda: TEXT(torch.tensor([[1]]), last=2), "last must be an integer at least 0 and"),
    "a text model without width": (lambda: LM(width=0), "width must be an integer at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_in_words(name):
    call, words = CASES[name]
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()


def test_values_are_described_in_a_line():
    assert describe(torch.zeros(2, 3)) == "a tensor, torch.float32 (2, 3)"
    assert describe(object()) == "a object"
    assert describe([1] * 100) == "a list"
    assert describe(1.5) == "1.5"


def test_positions_up_to_ten_times_the_reach_are_taken():
    assert LIERE(torch.full((1, 2), 160.0)).layers == 2
    assert LIERE.double()(torch.full((1, 2), 1e5, dtype=torch.float64)).layers == 2
    LIERE.float()
