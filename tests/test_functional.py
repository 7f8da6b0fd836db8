"""q and k turned by given tables: against the formula in float64, `Rotation`, and functions of other libraries."""

import inspect

import pytest
import timm
import torch
from timm.layers import RotaryEmbeddingCat as Axial
from timm.layers import RotaryEmbeddingDinoV3, RotaryEmbeddingMixed, apply_rot_embed, apply_rot_embed_cat
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaConfig
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import ropewalk as rw
from ropewalk import ops
from ropewalk.functional import angles as turning
from ropewalk.functional import apply_rotary, apply_rotary_, tables
from tests.support.float64_reference import assert_close, assert_same, gradients, leaf, normal
from tests.support.kernel_reference import Calls

B, H, KV, N, D = 3, 6, 2, 5, 14
SHAPES = {
    "all": (N, 7),
    "one sample for all": (1, N, 7),
    "samples": (B, N, 7),
    "heads": (1, KV, N, 7),
    "one head": (B, 1, N, 7),
    "samples and heads": (B, KV, N, 7),
    "partial": (N, 4),
}


LAYOUTS = {
    "half-split": lambda pairs: {"interleaved": False},
    "interleaved": lambda pairs: {"interleaved": True},
    "sections": lambda pairs: {"interleaved": False, "sections": (1, pairs - 1)},
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def formula(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved=False, sections=None, prefix: int = 0) -> Tensor:
    """x (B H N D) pair by pair."""
    if cos.ndim == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    elif cos.ndim == 4:
        cos, sin = (table.repeat_interleave(x.shape[1] // table.shape[1], dim=1) for table in (cos, sin))
    pairs, channels = cos.shape[-1], list(x[:, :, prefix:].unbind(-1))
    starts = [sum(sections[:i]) for i, count in enumerate(sections) for _ in range(count)] if sections else [0] * pairs
    counts = [count for count in sections for _ in range(count)] if sections else [pairs] * pairs
    for pair in range(pairs):
        i, j = (2 * pair, 2 * pair + 1) if interleaved else (pair + starts[pair], pair + starts[pair] + counts[pair])
        (a, b), c, s = (channels[i], channels[j]), cos[..., pair], sin[..., pair]
        channels[i], channels[j] = a * c - b * s, a * s + b * c
    return torch.cat([x[:, :, :prefix], torch.stack(channels, dim=-1)], dim=2)


def given(shape=(N, 7), tokens=N, dtype=torch.float64):
    """q, k, and tables that are not of unit length."""
    q, k = leaf(B, H, tokens, D, seed=0, dtype=dtype), leaf(B, KV, tokens, D, seed=1, dtype=dtype)
    return q, k, leaf(*shape, seed=2, dtype=dtype), leaf(*shape, seed=3, dtype=dtype)


def road(xs, cos, sin, *, interleaved, prefix, sections=()):
    """The road that tensors on CUDA take, on the CPU."""
    cos, sin = (table[(None,) * (4 - table.ndim)] if table.ndim != 3 else table.unsqueeze(1) for table in (cos, sin))
    return turning.by_angles(list(xs), cos, sin, interleaved, list(sections), prefix)


# Tables of every form


@pytest.mark.parametrize("by_angles", [False, True], ids=["as given", "by angles"])
@pytest.mark.parametrize("prefix", [0, 2])
@every_layout
@pytest.mark.parametrize("form", SHAPES)
def test_formula(form, layout, prefix, by_angles):
    q, k, cos, sin = given(SHAPES[form], N + prefix)
    options = layout(cos.shape[-1]) | {"prefix": prefix}
    ours = road([q, k], cos, sin, **options) if by_angles else apply_rotary(q, k, cos, sin, **options)
    theirs = [formula(x, cos, sin, **options) for x in (q, k)]
    assert_same(ours, theirs, [q, k, cos, sin])


@pytest.mark.parametrize("learns", ["q", "k", "cos", "sin"])
def test_one_may_learn_alone(learns):
    tensors = {name: x.detach() for name, x in zip(("q", "k", "cos", "sin"), given(), strict=True)}
    tensors[learns].requires_grad_()
    ours, cos, sin = apply_rotary(*tensors.values()), tensors["cos"], tensors["sin"]
    mine, theirs = [], []
    for x, y in zip((tensors["q"], tensors["k"]), ours, strict=True):
        if y.requires_grad:
            mine.append(y)
            theirs.append(formula(x, cos, sin))
    assert_same(mine, theirs, [tensors[learns]])


@every_layout
def test_second_derivatives_of_the_formula(layout):
    q, k, cos, sin = (x[..., :2, :4].detach().requires_grad_() for x in given())
    inputs = q[:1, :2], k[:1, :1], cos[:, :2], sin[:, :2]
    assert torch.autograd.gradgradcheck(lambda *xs: apply_rotary(*xs, **layout(2)), inputs)


def test_the_other_layout_of_tensors():
    q, k, cos, sin = given((1, KV, N, 7))
    flipped = [x.transpose(1, 2) for x in (q, k)]
    ours = apply_rotary(*flipped, cos, sin, layout="bnhd")
    assert [x.shape for x in ours] == [(B, N, H, D), (B, N, KV, D)]
    theirs = [x.transpose(1, 2) for x in apply_rotary(q, k, cos, sin)]
    assert_same(ours, theirs, [q, k, cos, sin])


def test_queries_alone():
    q, k, cos, sin = given()
    alone, none = apply_rotary(q, None, cos, sin)
    assert none is None
    assert torch.equal(alone, apply_rotary(q, k, cos, sin)[0])
    cos, sin = normal(9, 7, seed=4), normal(9, 7, seed=5)
    assert_close(apply_rotary(k[:, :, :1].repeat(1, 1, 9, 1), None, cos, sin)[0], formula(k[:, :, :1], cos, sin))


def test_no_pair_turns_nothing():
    q, k, cos, sin = given((N, 0))
    for x, y in zip((q, k), apply_rotary(q, k, cos, sin), strict=True):
        assert torch.equal(x, y)


@every_layout
def test_what_rotation_gives(layout):
    q, k, angle, _ = given((KV, N, 5), dtype=torch.float32)
    code = rw.Rotation(head_dim=D, q_angle=angle, **layout(5))
    ours = apply_rotary(q, k, angle.cos()[None], angle.sin()[None], **layout(5))
    for x, y in zip(ours, code.qk(q, k), strict=True):
        assert torch.equal(x, y)
    assert_same(ours, code.qk(q, k), [q, k, angle])


def test_bfloat16_is_rounded_once():
    q, k, cos, sin = given(dtype=torch.float32)
    ours = apply_rotary(q.bfloat16(), k.bfloat16(), cos, sin)
    for x, y in zip((q, k), ours, strict=True):
        assert y.dtype is torch.bfloat16
        assert torch.equal(y, formula(x.bfloat16().float(), cos, sin).bfloat16())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
def test_narrow_tables_are_taken_at_their_word(dtype):
    q, k, *both = given(dtype=torch.float32)
    cos, sin = (table.detach().to(dtype) for table in both)
    assert_same(apply_rotary(q, k, cos, sin), [formula(x, cos.float(), sin.float()) for x in (q, k)], [q, k])
    assert_same(road([q, k], cos, sin, interleaved=False, prefix=0), apply_rotary(q, k, cos, sin), [q, k])


def test_pairs_without_length_get_no_gradient_by_angles():
    q, k, cos, sin = given()
    with torch.no_grad():
        cos[2], sin[2] = 0.0, 0.0
    outs = road([q, k], cos, sin, interleaved=False, prefix=0)
    found = gradients(outs, [q, k, cos, sin])
    expected = gradients([formula(x, cos, sin) for x in (q, k)], [q, k, cos, sin])
    rest = [0, 1, 3, 4]
    assert not outs[0][:, :, 2].any()
    assert not found[2][2].any()
    assert not found[3][2].any()
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine[..., rest, :], theirs[..., rest, :])


# The kernel, interpreted where there is no GPU


@pytest.fixture
def kernel(monkeypatch):
    """Tensors on the CPU take the road of those on CUDA, to its end."""
    pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
    if torch.cuda.is_available():
        pytest.skip("where there is a GPU, kernels run on it")
    for module in (turning, ops.turning):
        monkeypatch.setattr(module, "fits", lambda xs, tables: True)


@pytest.mark.usefixtures("kernel")
@every_layout
@pytest.mark.parametrize("form", ["samples", "heads", "partial"])
def test_kernel(form, layout):
    q, k, cos, sin = given(SHAPES[form], N + 1, dtype=torch.float32)
    options = layout(cos.shape[-1]) | {"prefix": 1}
    theirs = [formula(x, cos, sin, **options) for x in (q, k)]
    assert_same(apply_rotary(q, k, cos, sin, **options), theirs, [q, k, cos, sin], reach=4.0)
    with torch.no_grad():
        apply_rotary_(q, k, cos, sin, **options)
    for x, y in zip((q, k), theirs, strict=True):
        assert_close(x.detach(), y.detach(), reach=4.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_kernel_is_taken_on_cuda(dtype):
    """By tensors that say they are on a GPU, and hold nothing; not by float64, which it does not know."""
    pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
    with FakeTensorMode(), Calls() as calls:
        q, k = (torch.empty(B, heads, N, D, device="cuda", dtype=dtype, requires_grad=True) for heads in (H, KV))
        cos, sin = (torch.empty(N, 7, device="cuda", requires_grad=True) for _ in range(2))
        assert all(x.requires_grad for x in apply_rotary(q, k, cos, sin))
    assert calls.names == (["rotate_fused"] if dtype is torch.bfloat16 else [])


# In place


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_in_place(layout):
    q, k, cos, sin = (x.detach() for x in given())
    expected = apply_rotary(q, k, cos, sin, prefix=0)
    q, k = ((x if layout == "bhnd" else x.transpose(1, 2)).clone() for x in (q, k))
    assert apply_rotary_(q, k, cos, sin, layout=layout) is None
    for x, y in zip((q, k), expected, strict=True):
        assert torch.equal(x if layout == "bhnd" else x.transpose(1, 2), y)


def test_in_place_is_for_inference():
    q, k, cos, sin = given()
    with pytest.raises(RuntimeError, match=r"torch.no_grad\(\)"):
        apply_rotary_(q.detach(), k.detach(), cos, sin.detach())
    with torch.no_grad():
        expected = apply_rotary(q, None, cos, sin, prefix=0)[0].clone()
        apply_rotary_(q, None, cos, sin)
    assert torch.equal(q, expected)


def inference(*shape):
    with torch.inference_mode():
        return torch.ones(shape)


UNWRITABLE = {
    "expanded": (torch.ones(B, 1, N, D).expand(-1, KV, -1, -1), r"^k must have memory for each .*strides \(70, 0, 14, 1\)"),
    "made for inference": (inference(B, KV, N, D), r"^k was made in torch.inference_mode\(\), outside of which"),
}


@pytest.mark.parametrize("why", UNWRITABLE)
def test_what_cannot_be_turned_in_place_leaves_all_as_it_was(why):
    """q comes first, and must not be turned when k is refused."""
    (k, words), q, table = UNWRITABLE[why], normal(B, H, N, D, seed=0), normal(N, 7, seed=2)
    before = q.clone()
    with pytest.raises(ValueError, match=words):
        apply_rotary_(q, k, table, table)
    assert torch.equal(q, before)
    with pytest.raises(ValueError, match=words.replace("k ", "q ")):
        apply_rotary_(k, q, table, table)
    assert torch.equal(q, before)
    assert_close(apply_rotary(q, k, table, table)[1], formula(k, table, table))


def test_a_step_that_nobody_takes_is_no_hindrance():
    """A single sample and head may lie anywhere."""
    x, table = normal(N, D, seed=0), normal(N, 7, seed=2)
    expected = formula(x[None, None], table, table)
    apply_rotary_(x.as_strided((1, 1, N, D), (0, 0, D, 1)), None, table, table)
    assert_close(x, expected[0, 0])


def test_tensors_of_inference_turn_in_place_where_they_were_made():
    x, table = inference(B, KV, N, D), normal(N, 7, seed=2, dtype=torch.float32)
    with torch.inference_mode():
        apply_rotary_(x, None, table, table)
    assert_close(x, formula(torch.ones(x.shape), table, table))


# Compilers and transforms


def test_compiled_in_place():
    q, k, cos, sin = (x.detach() for x in given())
    expected = apply_rotary(q, k, cos, sin)
    torch.compile(apply_rotary_, fullgraph=True, backend="aot_eager")(q, k, cos, sin)
    for x, y in zip((q, k), expected, strict=True):
        assert_close(x, y)


@every_layout
def test_compiled(layout):
    torch.compiler.reset()
    compiled = torch.compile(lambda *xs: apply_rotary(*xs, **layout(4)), fullgraph=True, backend="aot_eager")
    for tokens in (5, 8):
        tensors = given((tokens, 4), tokens)
        assert_same(compiled(*tensors), apply_rotary(*tensors, **layout(4)), tensors)


def test_mapped():
    q, k, cos, sin = given((B, N, 7))
    each = torch.func.vmap(lambda q, k, c, s: [x[0] for x in apply_rotary(q[None], k[None], c, s)])
    for mine, theirs in zip(each(q, k, cos, sin), apply_rotary(q, k, cos, sin), strict=True):
        assert_close(mine, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, none is here")
@every_layout
@pytest.mark.parametrize("form", SHAPES)
def test_on_cuda(form, layout):
    tensors = given(SHAPES[form], dtype=torch.float32)
    others = [x.detach().cuda().requires_grad_() for x in tensors]
    options = layout(tensors[2].shape[-1])
    ours = apply_rotary(*others, **options)
    theirs = apply_rotary(*tensors, **options)
    found, expected = gradients([x.cpu() for x in ours], others), gradients(theirs, tensors)
    for mine, its in zip([*ours, *found], [*theirs, *expected], strict=True):
        assert_close(mine.cpu(), its, reach=4.0)
    with torch.no_grad():
        apply_rotary_(*others, **options)
    for x, y in zip(others, theirs, strict=False):
        assert_close(x.detach().cpu(), y, reach=4.0)


# Errors

REFUSED = {
    "full width": ({"cos": (N, D), "sin": (N, D)}, r"D / 2 = 7, got \(5, 14\).*width, .*from_timm"),
    "different": ({"sin": (N, 6)}, r"shape and dtype, got .*\(5, 7\).*\(5, 6\)"),
    "turned over": ({"cos": (7, N), "sin": (7, N)}, r"N = 5 rows, got \(7, 5\)"),
    "too long": ({"cos": (9, 7), "sin": (9, 7)}, r"N = 5 rows, got \(9, 7\)"),
    "one": ({"cos": (7,), "sin": (7,)}, r"\(N, P\), \(B, N, P\).*\(B, heads, N, P\), got \(7,\)"),
    "batch": ({"cos": (2, N, 7), "sin": (2, N, 7)}, r"batch.*3.*1.*got \(2, 5, 7\)"),
    "batch of four": ({"cos": (2, 1, N, 7), "sin": (2, 1, N, 7)}, r"batch.*3.*1.*got \(2, 1, 5, 7\)$"),
    "heads": ({"cos": (1, H, N, 7), "sin": (1, H, N, 7)}, r"q and k, 6 and 2, got \(1, 6, 5, 7\)"),
    "q": ({"q": (H, N, D)}, r"q.*\(B, H, N, D\), got torch.float32 \(6, 5, 14\)"),
    "k": ({"k": (B, KV, 4, D)}, r"B, N.*D; .*k=None; got \(3, 6, 5, 14\).*\(3, 2, 4, 14\)"),
    "prefix": ({"prefix": 2}, r"N = 3 rows.*5.*2.*prefix, got \(5, 7\)"),
    "much prefix": ({"prefix": 6}, r"prefix.*0.*5.*got 6"),
    "layout": ({"layout": "nbhd"}, r"layout 'nbhd'.*Did you mean 'bnhd'"),
    "interleaved": ({"interleaved": 1}, r"interleaved.*True.*False, got 1"),
    "sections": ({"sections": (3, 3)}, r"sections must make 7 pairs, got 3 \+ 3 = 6"),
    "no sections": ({"sections": ()}, r"sections must make 7 pairs, got none = 0"),
    "sections of nothing": ({"sections": (7, 0)}, r"sections must be a positive integer, got 0"),
    "interleaved sections": ({"sections": (3, 4), "interleaved": True}, r"interleaved=False, got .*\(3, 4\)"),
}


@pytest.mark.parametrize("turned", [apply_rotary, apply_rotary_])
@pytest.mark.parametrize("why", REFUSED)
def test_refused(why, turned):
    changes, words = REFUSED[why]
    shapes = {"q": (B, H, N, D), "k": (B, KV, N, D), "cos": (N, 7), "sin": (N, 7)}
    tensors = {name: torch.ones(changes.get(name, shape)) for name, shape in shapes.items()}
    options = {name: value for name, value in changes.items() if name not in shapes}
    with pytest.raises(ValueError, match=words):
        turned(**tensors, **options)


def test_complex_tables_are_refused():
    table = torch.ones(N, 7, dtype=torch.complex64)
    with pytest.raises(ValueError, match=r"cos.*got torch.complex64; .*tables.from_complex"):
        apply_rotary(torch.ones(B, H, N, D), None, table, table)


# Tables of others, float32: that is what they compute in


def tokens(heads=H, head_dim=16, count=15):
    q, k = (leaf(B, heads, count, head_dim, seed=seed, dtype=torch.float32) for seed in (0, 1))
    return q, k


@pytest.mark.parametrize("lead", [(B, 15), (1, 15), (15,)], ids=["samples", "one for all", "no batch"])
def test_transformers(lead):
    q, k = tokens()
    freqs = leaf(*lead, 8, seed=2, dtype=torch.float32)

    def full():
        both = torch.cat([freqs, freqs], dim=-1)
        return both.cos(), both.sin()

    ours = apply_rotary(q, k, *tables.from_transformers(*full()))
    theirs = apply_rotary_pos_emb(q, k, *full(), unsqueeze_dim=-3)
    assert_same(ours, theirs, [q, k, freqs])


def test_transformers_yarn():
    """Its tables are longer than 1."""
    rule = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    module = LlamaRotaryEmbedding(LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters=rule))
    q, k = tokens()
    cos, sin = module(q, torch.arange(15).expand(B, -1))
    assert cos.square().add(sin.square()).min() > 1.1
    assert_same(apply_rotary(q, k, *tables.from_transformers(cos, sin)), apply_rotary_pos_emb(q, k, cos, sin), [q, k])


def test_transformers_interleaved():
    q, k = tokens()
    freqs = leaf(B, 15, 8, seed=2, dtype=torch.float32)

    def full():
        return [table.repeat_interleave(2, dim=-1) for table in (freqs.cos(), freqs.sin())]

    ours = apply_rotary(q, k, *tables.from_transformers(*full(), interleaved=True), interleaved=True)
    assert_same(ours, cohere.apply_rotary_pos_emb(q, k, *full()), [q, k, freqs])


def flash_attn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """What flash-attn's page says of x (B N H D): the first and second of each pair, by rows of the tables."""
    cos, sin, turned = cos.unsqueeze(-2), sin.unsqueeze(-2), 2 * cos.shape[-1]
    part = x[..., :turned]
    a, b = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, dim=-1)
    halves = a * cos - b * sin, b * cos + a * sin
    return torch.cat([torch.stack(halves, -1).flatten(-2) if interleaved else torch.cat(halves, -1), x[..., turned:]], -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", [0, 4, "each"])
def test_flash_attn(offset, interleaved):
    q, k = (x.transpose(1, 2) for x in tokens(count=5))
    freqs = leaf(12, 6, seed=2)
    if offset == "each":
        offsets = torch.tensor([0, 7, 2])
        rows = torch.stack([freqs[i : i + 5] for i in (0, 7, 2)])
    else:
        offsets, rows = offset, freqs[offset : offset + 5]
    ours = tables.from_flash_attn(freqs.cos(), freqs.sin(), seqlen=5, seqlen_offsets=offsets)
    turned = apply_rotary(q.double(), k.double(), *ours, interleaved=interleaved, layout="bnhd")
    theirs = [flash_attn(x.double(), rows.cos(), rows.sin(), interleaved) for x in (q, k)]
    assert_same(turned, theirs, [q, k, freqs])


def test_flash_attn_to_its_end():
    cos, sin = normal(12, 6, seed=0), normal(12, 6, seed=1)
    for mine, whole in zip(tables.from_flash_attn(cos, sin, seqlen_offsets=3), (cos, sin), strict=True):
        assert torch.equal(mine, whole[3:])


@pytest.mark.parametrize("offsets", [[0, -1], [8, 0]], ids=["before", "beyond"])
def test_flash_attn_has_no_rows_beyond_its_own(offsets):
    """Told in words where values are looked at; elsewhere the index is out of bounds, and never counts from the end."""
    cos, sin, offsets = normal(12, 6, seed=0), normal(12, 6, seed=1), torch.tensor(offsets)
    with pytest.raises(ValueError, match=rf"12 rows, got seqlen=5 and seqlen_offsets=\[{offsets[0]}, {offsets[1]}\]"):
        tables.from_flash_attn(cos, sin, seqlen=5, seqlen_offsets=offsets)
    compiled = torch.compile(tables.from_flash_attn, fullgraph=True, backend="eager")
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(cos, sin, seqlen=5, seqlen_offsets=offsets)


@pytest.mark.parametrize("half", [False, True])
def test_timm_axial(half):
    if half and "rotate_half" not in inspect.signature(Axial).parameters:
        pytest.skip(f"timm {timm.__version__} has axial tables of neighbours alone; those of halves came with 1.0.30")
    q, k = tokens()
    rope = Axial(16, in_pixels=False, temperature=100.0, **({"rotate_half": True} if half else {})).get_embed([3, 5])
    ours = apply_rotary(q, k, *tables.from_timm(rope, half=half), interleaved=not half)
    assert_same(ours, [apply_rot_embed_cat(x, rope, half=half) for x in (q, k)], [q, k])
    sin, cos = rope.chunk(2, -1)
    paired = apply_rotary(q, k, *tables.from_timm((sin, cos), half=half), interleaved=not half)
    assert_same(paired, [apply_rot_embed(x, sin, cos, half=half) for x in (q, k)], [q, k])


def test_timm_dinov3():
    q, k = tokens(count=17)
    rope = RotaryEmbeddingDinoV3(16, temperature=100.0, rotate_half=True).get_embed([3, 5])
    ours = apply_rotary(q, k, *tables.from_timm(rope, half=True), prefix=2)
    theirs = [torch.cat([x[:, :, :2], apply_rot_embed_cat(x[:, :, 2:], rope, half=True)], dim=2) for x in (q, k)]
    assert_same(ours, theirs, [q, k])


def test_timm_mixed_learns():
    q, k = tokens()
    torch.manual_seed(0)
    mixed = RotaryEmbeddingMixed(16 * H, depth=2, num_heads=H, feat_shape=[3, 5])
    for layer in range(2):
        ours = apply_rotary(q, k, *tables.from_timm(mixed.get_embed()[layer]), interleaved=True)
        rope = mixed.get_embed()[layer]
        assert_same(ours, [apply_rot_embed_cat(x, rope) for x in (q, k)], [q, k, mixed.freqs], reach=5.0)


def test_timm_samples_and_heads():
    q, k = tokens()
    freqs = leaf(B, 1, 15, 8, seed=2, dtype=torch.float32)

    def rope():
        return torch.cat([table.repeat_interleave(2, -1) for table in (freqs.sin(), freqs.cos())], -1)

    ours = apply_rotary(q, k, *tables.from_timm(rope()), interleaved=True)
    theirs = rope()
    assert_same(ours, [apply_rot_embed_cat(x, theirs) for x in (q, k)], [q, k, freqs])


@pytest.mark.parametrize("lead", [(15,), (H, 15), (B, H, 15)], ids=["Llama", "rope-vit", "samples and heads"])
def test_complex(lead):
    """Pairs of neighbours as complex numbers, times the table."""
    (q, k), freqs = (leaf(B, H, 15, 16, seed=seed) for seed in (0, 1)), leaf(*lead, 8, seed=2)
    table = torch.polar(torch.ones_like(freqs), freqs)
    again = torch.polar(torch.ones_like(freqs), freqs)
    ours = apply_rotary(q, k, *tables.from_complex(again), interleaved=True)
    theirs = [torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table).flatten(-2) for x in (q, k)]
    assert_same(ours, theirs, [q, k, freqs])


ANGLES = normal(1, 5, 3, seed=0)
HALVES = torch.cat([ANGLES, ANGLES], -1).cos()
NEIGHBOURS = ANGLES.repeat_interleave(2, -1).cos()
ONES = torch.ones(5, 4)
WRONG = {
    "neighbours": (
        lambda: tables.from_transformers(NEIGHBOURS, NEIGHBOURS),
        r"cos .* halves differ by .*neighbours do: .*other",
    ),
    "halves": (
        lambda: tables.from_transformers(HALVES, HALVES, interleaved=True),
        r"neighbours differ .*halves do: it is of",
    ),
    "half width": (
        lambda: tables.from_transformers(ANGLES[..., :2], ANGLES[..., :2]),
        r"halves differ .*nor do its neighbours",
    ),
    "only sin": (lambda: tables.from_transformers(HALVES, NEIGHBOURS), r"^sin.*full width"),
    "odd": (lambda: tables.from_transformers(ANGLES, ANGLES), r"even number of columns, got \(1, 5, 3\)"),
    "shapes": (lambda: tables.from_transformers(ONES, ONES[:3]), r"got torch.float32 \(5, 4\).*torch.float32 \(3, 4\)"),
    "timm half": (lambda: tables.from_timm(torch.cat([HALVES, HALVES], -1)), r"cos .*neighbours differ .*halves do"),
    "timm width": (lambda: tables.from_timm(torch.ones(5, 6)), r"\(N, 4P\).*of.*width, got \(5, 6\)"),
    "timm layers": (lambda: tables.from_timm(torch.ones(2, 3, 1, 5, 8)), r"\(B, heads, N, 4P\).*got \(2, 3, 1, 5, 8\)"),
    "timm pair": (lambda: tables.from_timm((ONES, ONES.bool())), r"torch.bool \(5, 4\)"),
    "real": (lambda: tables.from_complex(ONES), r"torch.float32 \(5, 4\)"),
    "flat": (lambda: tables.from_complex(torch.ones(5) + 0j), r"torch.complex64 \(5,\)"),
    "few rows": (lambda: tables.from_flash_attn(ONES, ONES, seqlen=4, seqlen_offsets=2), r"5.*got seqlen=4.*=2"),
    "before": (lambda: tables.from_flash_attn(ONES, ONES, seqlen_offsets=-1), r"seqlen_offsets.*0, got -1"),
    "batched": (lambda: tables.from_flash_attn(ONES[None], ONES[None]), r"\(rows, P\), got torch.float32 \(1, 5, 4\)"),
    "offsets": (
        lambda: tables.from_flash_attn(ONES, ONES, seqlen_offsets=torch.tensor([1, 2])),
        r"\(B,\).*got torch.int64 \(2,\).*seqlen=None",
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_wrong_tables(why):
    make, words = WRONG[why]
    with pytest.raises(ValueError, match=words):
        make()


def test_values_are_not_looked_at_by_compilers():
    compiled = torch.compile(tables.from_transformers, fullgraph=True, backend="eager")
    assert_close(compiled(NEIGHBOURS, NEIGHBOURS)[0], NEIGHBOURS[..., :3])
