"""Folding: a model whose q and k projections took the basis in gives what it gave before."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import ropewalk as rw
from ropewalk.models import ViT
from ropewalk.testing.case import points, ready
from ropewalk.theory import Projection

COMMUTING = {
    "axial": {},
    "axial-learned": {"learned": True},
    "mixed": {},
    "mixed-shared": {"shared": True},
    "uniform": {},
    "golden": {},
    "dinov3": {},
    "waves": {"table": [[0.5, 0.1], [0.0, -0.3]]},
    "waves-sections": {"table": [[0.5, 0.1], [0.0, -0.3], [0.2, 0.0]], "interleaved": False, "sections": (2, 1)},
    "axial-sections": {"interleaved": False, "sections": (3, 3)},
    "string-cayley": {"std": 0.5},
    "string-circulant": {},
    "comrope-ap": {"block": 3},
    "comrope-ld": {"block": 4},
    "comrope-ld-odd": {"block": 5},
    "liere": {"block": 2},
}


def name_of(case):
    return case if case in rw.names() else case.rsplit("-", 1)[0]


def trained(encoding, options, steps=20, size=(6, 10), **more):
    """A small ViT after a few steps on random images, in float64."""
    settings = {"width": 24, "depth": 2, "heads": 2, "size": size, "patch": 2, "classes": 3, "pool": "class", "registers": 1}
    model = ViT("tiny", encoding=encoding, options=options, **settings | more).double()
    images, labels = torch.randn(8, 3, *size, dtype=torch.float64), torch.arange(8) % 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval(), images


@pytest.mark.parametrize("case", COMMUTING)
def test_a_trained_vit_keeps_its_logits(case):
    model, images = trained(name_of(case), COMMUTING[case])
    start = ViT("tiny", encoding=name_of(case), options=COMMUTING[case], width=24, depth=2, heads=2, size=(6, 10), patch=2)
    learned = dict(start.double().encoding.named_parameters())
    for name, value in model.encoding.named_parameters():
        assert (value - learned[name]).abs().max() > 1e-3, "training moved it"
    before, weights = model(images), copy.deepcopy(model.state_dict())
    assert rw.fold_into(model) is model
    assert type(model.encoding) is rw.Mixed
    torch.testing.assert_close(model(images), before, rtol=0, atol=1e-10)
    turned_pairs = case.partition("-")[0] in ("axial", "mixed", "uniform", "golden", "dinov3", "waves")
    for name in ("blocks.0.qkv.weight", "blocks.1.qkv.weight"):
        (qk, v), (new_qk, new_v) = (state[name].tensor_split([2 * 24]) for state in (weights, model.state_dict()))
        assert torch.equal(v, new_v)
        assert torch.equal(qk, new_qk) == turned_pairs
    larger = torch.randn(2, 3, 8, 6, dtype=torch.float64)
    assert model(larger, resolution="rescale").shape == (2, 3)


def test_volumes_fold_too():
    model, images = trained("mrope", {}, steps=2, size=(4, 6, 10))
    before = model(images)
    torch.testing.assert_close(rw.fold_into(model)(images), before, rtol=0, atol=1e-10)


def test_the_basis_matters():
    model, images = trained("comrope-ld", {"block": 4}, steps=2)
    before = model(images)
    model.encoding = rw.fold(model.encoding)[0]
    assert (model(images) - before).abs().max() > 1e-4


def test_a_folded_model_exponentiates_nothing(monkeypatch):
    model, images = trained("comrope-ld", {"block": 4}, steps=1)
    rw.fold_into(model)
    monkeypatch.setattr(torch.linalg, "matrix_exp", None)
    monkeypatch.setattr("ropewalk.ops.expm", None)
    assert model(images).isfinite().all()


def test_a_folded_model_trains_on_and_folds_again():
    model, images = trained("comrope-ap", {"block": 3}, steps=2)
    rw.fold_into(model)
    model(images).sum().backward()
    assert model.encoding.wave.grad.abs().max() > 0
    before = model(images)
    torch.testing.assert_close(rw.fold_into(model)(images), before, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["axial-spherical", "liere", "spherical", "spherical-symmetric"])
def test_what_does_not_commute_is_refused_and_left_alone(name):
    model, _ = trained(name, {"block": 4} if name == "liere" else {}, steps=1)
    encoding, weights = model.encoding, copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=rf"generators of {name} do not commute, by 0\.\d+ of their size"):
        rw.fold_into(model)
    assert model.encoding is encoding
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


class Attention(nn.Module):
    """Grouped queries with projections of their own, and norms between these and the rotation."""

    def __init__(self, encoding, heads, kv_heads, q_norm=None, bias=True, layers=1):
        super().__init__()
        self.encoding, self.heads, self.kv_heads, width = encoding, heads, kv_heads, heads * encoding.head_dim
        self.q = nn.ModuleList(nn.Linear(20, width, bias=bias) for _ in range(layers))
        self.k = nn.ModuleList(nn.Linear(20, kv_heads * encoding.head_dim, bias=bias) for _ in range(layers))
        self.norm, self.rows = q_norm or nn.Identity(), slice(None)
        self.between = (self.norm,)
        self.double()

    def projections(self):
        pairs = zip(self.q, self.k, strict=True)
        return [(Projection(q, between=self.between), Projection(k, self.rows)) for q, k in pairs]

    def scores(self, x, positions, layer=0):
        depth = self.encoding.head_dim
        q = self.norm(self.q[layer](x).unflatten(-1, (self.heads, depth))).transpose(1, 2)
        k = self.k[layer](x).unflatten(-1, (self.kv_heads, depth)).transpose(1, 2)
        code = self.encoding(positions)
        code = code if code.layers is None else code[layer]
        q, k = code.qk(q, k)
        logits = q @ k.repeat_interleave(self.heads // self.kv_heads, 1).mT
        added = code.scores(q, k)
        return logits if added is None else logits + added


def attention(name="comrope-ld", heads=4, kv_heads=2, made_for=2, options=None, **more):
    options = {"block": 5} | (options or {}) if name == "comrope-ld" else options or {}
    encoding = ready(rw.create(name, head_dim=12, heads=heads, kv_heads=made_for, axes=2, size=(3, 5), **options))
    return Attention(encoding, heads, kv_heads, **more)


def check_same(model, layers=(0,)):
    x, p = torch.randn(2, 7, 20, dtype=torch.float64), points(model.encoding, 7)
    before = [model.scores(x, p, layer) for layer in layers]
    rw.fold_into(model)
    for layer, wanted in zip(layers, before, strict=True):
        torch.testing.assert_close(model.scores(x, p, layer), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_queries_share_the_basis_of_their_key_head(kv_heads, bias):
    check_same(attention(kv_heads=kv_heads, made_for=kv_heads, bias=bias))


def test_one_basis_serves_all_heads():
    check_same(attention(options={"shared": True}))


def test_layers_of_one_encoding():
    check_same(attention(options={"layers": 2}, layers=2), layers=(0, 1))


def test_layers_may_share_an_encoding():
    check_same(attention(layers=3), layers=(0, 1, 2))


def test_norms_that_commute_with_a_basis():
    check_same(attention(q_norm=nn.RMSNorm(12, elementwise_affine=False)))
    even = nn.RMSNorm(12)
    nn.init.constant_(even.weight, 1.7)
    check_same(attention(q_norm=even))


def test_chains_fold_what_turns_in_them():
    shape = {"head_dim": 12, "heads": 4, "kv_heads": 2, "axes": 2, "size": (3, 5), "coordinates": "index"}
    chain = rw.chain(rw.create("comrope-ld", block=4, std=0.1, **shape), rw.create("alibi", **shape))
    model = Attention(chain, 4, 2)
    check_same(model)
    assert [type(member) for member in model.encoding.members] == [rw.Mixed, rw.ALiBi]


def uneven():
    norm = nn.RMSNorm(12)
    norm.weight.data[3] = 0.5
    return norm


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"made_for": None}, r"0.*2 heads.*encoding 4.*encoding.*kv_heads=2"),
        ({"q_norm": nn.LayerNorm(12)}, r"0.*LayerNorm.*0\.\d+"),
        ({"q_norm": uneven()}, r"0.*RMSNorm.*0\.\d+"),
        ({"q_norm": nn.RMSNorm(6)}, r"heads.*12"),
        ({"options": {"layers": 3}, "layers": 2}, r"projections.*3 layers, got 2"),
        ({"layers": 0}, r"projections.*layers, got 0"),
        ({"name": "xpos"}, r"skew-symmetric.*0\.\d+.*size"),
    ],
)
def test_refusals_say_the_numbers_and_change_nothing(case, words):
    if case.get("name") == "xpos":
        model = Attention(ready(rw.create("xpos", head_dim=12, heads=4, kv_heads=2)), 4, 2)
    else:
        model = attention(**case)
    weights, encoding = copy.deepcopy(model.state_dict()), model.encoding
    with pytest.raises(ValueError, match=words):
        rw.fold_into(model)
    assert model.encoding is encoding
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_layers_that_share_a_projection_and_need_two_bases_are_refused():
    model = attention(options={"layers": 2}, layers=2)
    model.q[1] = model.q[0]
    with pytest.raises(ValueError, match=r"48.*Linear"):
        rw.fold_into(model)
    model.q[1] = nn.Linear(20, 48).double()
    model.q[1].weight.data = model.q[0].weight.data
    with pytest.raises(ValueError, match="would need two bases"):
        rw.fold_into(model)


def test_a_projection_that_serves_twice_in_one_basis_is_written_once():
    model = attention(layers=2)
    model.q[1] = model.q[0]
    check_same(model, layers=(0, 1))
    model = attention(kv_heads=4, made_for=None)
    model.k[0] = model.q[0]
    check_same(model)


def test_numbers_that_others_need_are_not_changed():
    model = attention()
    model.v = nn.Linear(20, 24)
    model.v.weight = model.k[0].weight
    with pytest.raises(ValueError, match=r"v\.weight shares.*q or k"):
        rw.fold_into(model)


def lora(linear):
    class LoRA(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    return LoRA(linear.in_features, linear.out_features)


def hooked(linear):
    linear.register_forward_hook(lambda module, given, out: 2 * out)
    return linear


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.parametrizations.weight_norm,
        lambda linear: prune.l1_unstructured(linear, "weight", 0.5),
        hooked,
        lora,
        lambda linear: nn.Sequential(linear),
        lambda linear: linear.to(torch.complex64),
    ],
    ids=["parametrized", "pruned", "hooked", "adapted", "wrapped", "complex"],
)
@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_projections_must_be_plain(change):
    model = attention()
    before = copy.deepcopy(model.q[0].state_dict())
    model.k[0] = change(model.k[0])
    with pytest.raises(TypeError, match=r"0.*nn\.Linear"):
        rw.fold_into(model)
    assert all(torch.equal(value, before[name]) for name, value in model.q[0].state_dict().items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: setattr(m, "k", nn.ModuleList([nn.Linear(20, 25)])), r"heads.*12.*got 25"),
        (lambda m: setattr(m, "rows", slice(None, None, -1)), r"got 24.*slice\(None, None, -1\)"),
        (lambda m: m.k.to("meta"), r"0.*meta device"),
    ],
    ids=["rows", "backwards", "meta"],
)
def test_nothing_is_written_before_all_is_known(change, words):
    model = attention()
    before, encoding = copy.deepcopy(model.q.state_dict()), model.encoding
    change(model)
    with pytest.raises(ValueError, match=words):
        rw.fold_into(model)
    assert model.encoding is encoding
    assert all(torch.equal(value, before[name]) for name, value in model.q.state_dict().items())


class Gained(nn.Module):
    """A norm with gains and offsets of other names."""

    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, x):
        x = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        x = x * getattr(self, "gamma", 1.0)
        return x * (1 + getattr(self, "weight", 0.0)) + getattr(self, "bias", 0.0)


class GainedRMSNorm(Gained):
    """The same under a name that promises nothing of the kind."""


@pytest.mark.parametrize("kind", [Gained, GainedRMSNorm])
@pytest.mark.parametrize("values", [{"gamma": torch.arange(12.0)}, {"weight": torch.ones(12), "bias": torch.ones(12)}])
def test_norms_are_judged_by_what_they_do(kind, values):
    with pytest.raises(ValueError, match=r"not commute.*basis"):
        rw.fold_into(attention(q_norm=kind(**values)))
    check_same(attention(q_norm=kind(weight=torch.full((12,), 0.3))))


def test_norms_over_all_heads_together():
    class Whole(nn.Module):
        def __init__(self, gains):
            super().__init__()
            self.norm = nn.RMSNorm(48)
            self.norm.weight = nn.Parameter(gains)

        def forward(self, x):
            return self.norm(x.flatten(2)).view_as(x)

    by_head = torch.arange(1.0, 5).repeat_interleave(12)
    model = attention(q_norm=Whole(by_head))
    model.between = (model.norm.norm,)
    check_same(model)
    model = attention(q_norm=Whole(torch.arange(48.0)))
    model.between = (model.norm.norm,)
    with pytest.raises(ValueError, match="does not commute"):
        rw.fold_into(model)


def test_statistics_of_a_norm_are_left_alone():
    norm = nn.BatchNorm1d(12)
    before = copy.deepcopy(norm.state_dict())
    with pytest.raises(ValueError, match="passes BatchNorm1d"):
        rw.fold_into(attention(q_norm=norm))
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_every_reference_to_the_encoding_is_replaced():
    model = attention()
    model.block = nn.Module()
    model.block.rope = model.encoding
    check_same(model)
    assert model.block.rope is model.encoding
    assert type(model.encoding) is rw.Mixed


def test_the_encoding_may_go_by_another_name():
    made = ready(rw.create("comrope-ld", head_dim=12, heads=4, kv_heads=2, block=4))
    model = Attention(made, 4, 2)
    model.rope = model._modules.pop("encoding")
    model.__class__ = type("Other", (Attention,), {"encoding": property(lambda self: self.rope)})
    check_same(model)
    assert type(model.rope) is rw.Mixed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_other_precisions(dtype):
    model, images = trained("comrope-ld", {"block": 4}, steps=5)
    model, images = model.float().to(dtype), images.to(dtype)
    before = model(images).double()
    after = rw.fold_into(model)(images).double()
    assert model.blocks[0].qkv.weight.dtype == dtype
    assert model.encoding.wave.dtype == torch.float32
    assert (after - before).abs().max() < (1e-4 if dtype == torch.float32 else 0.1) * before.abs().max()


def test_a_folded_model_can_be_saved_and_built_again():
    model, images = trained("comrope-ld", {"block": 4}, steps=2)
    rw.fold_into(model)
    config = model.encoding.config()
    settings = {
        "width": 24,
        "depth": 2,
        "heads": 2,
        "size": (6, 10),
        "patch": 2,
        "classes": 3,
        "pool": "class",
        "registers": 1,
    }
    again = ViT("tiny", encoding=config.pop("name"), options=config, **settings).double().eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images), model(images))


def test_a_vit_without_a_head_folds():
    model, images = trained("comrope-ld", {"block": 4}, steps=1)
    model.head = nn.Identity()
    before = model(images)
    torch.testing.assert_close(rw.fold_into(model)(images), before, rtol=0, atol=1e-10)


def test_models_without_the_protocol_are_refused():
    with pytest.raises(TypeError, match="got Linear"):
        rw.fold_into(nn.Linear(2, 2))


@pytest.mark.parametrize("name", ["comrope-ld", "string-cayley", "comrope-ap"])
def test_in_float32_scores_hold_to_a_hundred_radians(name):
    """Against the encoding itself in float64, for unit q and k."""
    encoding = rw.create(name, head_dim=48, heads=2, axes=2, **({} if name == "string-cayley" else {"block": 8}))
    mixed, basis = rw.fold(encoding)
    assert mixed.wave.dtype == basis.dtype == torch.float32
    reach = 100 / mixed.wave.norm(dim=-1).max().item()
    p = reach * (2 * torch.rand(16, 2, dtype=torch.float64) - 1)
    q, k = (F.normalize(torch.randn(2, 16, 48, dtype=torch.float64), dim=-1).float() for _ in range(2))
    rotated = copy.deepcopy(encoding).double()(p).qk(q.double()[None], k.double()[None])
    exact = rotated[0] @ rotated[1].mT
    q, k = mixed(p.float()).qk((q @ basis)[None], (k @ basis)[None])
    assert (q.double() @ k.double().mT - exact).abs().max() < 1e-5
    # The worst that float32 angles of a hundred radians allow: a query and a key that lie in the fastest plane.
    plane = basis[..., 0].double()[:, None].expand(-1, 16, -1)
    rotated = copy.deepcopy(encoding).double()(p).qk(plane[None], plane[None])
    q, k = mixed(p.float()).qk((plane.float() @ basis)[None], (plane.float() @ basis)[None])
    assert (q.double() @ k.double().mT - rotated[0] @ rotated[1].mT).abs().max() < 4 * 100 * 2**-23


def test_random_numbers_of_others_stay_as_they_were():
    torch.manual_seed(3)
    encoding = rw.create("comrope-ld", head_dim=12, heads=2)
    state = torch.get_rng_state()
    rw.fold(encoding)
    assert torch.equal(torch.get_rng_state(), state)
