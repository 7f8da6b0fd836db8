"""The kernels that turn q and k, against float64: every shape, stride and dtype, with what they leave alone."""

import pytest
import torch

from tests.support.kernel_reference import DEVICE, Kind, Side, check, in_programs

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
pytestmark = pytest.mark.usefixtures("unwritten_is_nan", "few_programs")

KINDS = {
    "interleaved": Kind("rotate", 2),
    "half-split": Kind("rotate", 2, interleaved=False),
    "gained": Kind("rotate", 2, gained=True),
    "half-split-gained": Kind("rotate", 2, interleaved=False, gained=True),
    "sections": Kind("rotate", 2, interleaved=False, sections=(1, 3, 2)),
    "sections-gained": Kind("rotate", 2, interleaved=False, gained=True, sections=(4, 2)),
    "sphere-1": Kind("sphere", 3, axes=1),
    "sphere-2": Kind("sphere", 3, axes=2),
    "sphere-3": Kind("sphere", 3, axes=3),
    "turn-2": Kind("turn", 2),
    "turn-5": Kind("turn", 5),
}
FEW = ("interleaved", "half-split-gained", "sphere-3", "turn-5")
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
few_kinds = pytest.mark.parametrize("kind", [KINDS[name] for name in FEW], ids=FEW)


SCENES = {
    "one-row": (2, [Side(4, 1, 2, 1), Side(2, 1, 2, 1)]),
    "grouped": (2, [Side(4, 2, 1, 2), Side(2, 2, 3)]),
    "own-tables": (2, [Side(4, 2, 2, 1, own=True), Side(2, 1, 2, own=True)]),
    "only-q": (3, [Side(2, 2, 2, 1)]),
}


@every_kind
@pytest.mark.parametrize("scene", SCENES)
def test_heads_batches_prefixes(kind, scene):
    check(kind, *SCENES[scene])


@few_kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bits_are_rounded_once(kind, dtype):
    if dtype is torch.bfloat16 and kind.op != "rotate" and DEVICE == "cpu":
        pytest.skip("Triton's interpreter multiplies bfloat16 as integers: needs a CUDA device")
    check(kind, *SCENES["only-q"], dtype=dtype)


@few_kinds
@pytest.mark.parametrize("width", [1, 7, 48, 64])
def test_widths(kind, width):
    check(kind, 2, [Side(2, 1, 2, 1)], width=width)


@few_kinds
def test_channels_that_no_group_has(kind):
    check(kind, 2, [Side(2, 1, 2, 1), Side(1, 1, 3)], width=19, groups=2)


@pytest.mark.parametrize(
    ("sections", "width"), [((8, 28, 28), 128), ((1,) * 5, 10), ((6,), 12), ((2, 1), 19)], ids=["8-28-28", "1", "6", "rest"]
)
def test_sections(sections, width):
    """Unequal ones, pairs alone, one section, channels beyond them; every kind above has odd ones."""
    kind = Kind("rotate", 2, interleaved=False, gained=True, sections=sections)
    check(kind, 2, [Side(4, 2, 3, 1), Side(2, 1, 2, own=True)], width=width, groups=sum(sections))


@pytest.mark.parametrize("tokens", [1, 15, 63, 65])
@pytest.mark.parametrize("width", [8, 64])
def test_lengths(tokens, width):
    check(KINDS["half-split"], 2, [Side(2, 1, tokens, 2), Side(2, 2, 64)], width=width)


@pytest.mark.parametrize("kind", [KINDS["sphere-2"], KINDS["turn-5"]], ids=["sphere-2", "turn-5"])
@pytest.mark.parametrize("batch", [63, 65])
def test_batches_that_a_tile_does_not_divide(kind, batch):
    check(kind, batch, [Side(2, 1, 1, 1), Side(3, 1, 1)])


@few_kinds
@pytest.mark.parametrize("programs", [1, 5, 1 << 20])
def test_sums_over_any_number_of_programs(monkeypatch, kind, programs):
    in_programs(monkeypatch, kind.op, programs)
    check(kind, 3, [Side(4, 2, 1), Side(2, 1, 1, 1)])


def embedded(x, dim, step):
    """x as every `step`-th entry of a tensor that has nothing but NaN elsewhere."""
    shape = list(x.shape)
    shape[dim] = step * shape[dim] + 1
    whole = x.new_full(shape, float("nan"))
    part = whole.narrow(dim, 1, shape[dim] - 1).unflatten(dim, (-1, step)).select(dim + 1 if dim >= 0 else dim, 0)
    return part.copy_(x)


ARRANGED = {
    "fused-qkv": lambda x: embedded(x.permute(2, 0, 1, 3).contiguous(), 1, 3).permute(1, 2, 0, 3),
    "tokens-before-heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channels-first": lambda x: x.mT.contiguous().mT,
    "every-second-channel": lambda x: embedded(x, -1, 2),
    "every-second-token": lambda x: embedded(x, 2, 2),
    "batch-last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
}


@few_kinds
@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED)
def test_strides(kind, arrange):
    check(kind, 2, [Side(2, 1, 2, 1), Side(1, 1, 1, 2)], arrange=arrange)


@few_kinds
def test_a_sample_that_is_repeated(kind):
    check(kind, 3, [Side(2, 1, 2, 1)], arrange=lambda x: x[:1].expand_as(x))


TABLES = {
    "one-layer-of-several": lambda table: embedded(table, 0, 2),
    "head-repeated": lambda table: table[:1].expand_as(table),
    "token-repeated": lambda table: table[:, :1].expand_as(table),
    "last-two-swapped": lambda table: table.mT.contiguous().mT,
}


@few_kinds
@pytest.mark.parametrize("tabled", TABLES.values(), ids=TABLES)
def test_strides_of_tables(kind, tabled):
    check(kind, 2, [Side(2, 2, 2, 1)], tabled=tabled)


@pytest.mark.parametrize("kind", [KINDS[name] for name in FEW[:3]], ids=FEW[:3])
def test_gradients_at_angles_of_zero(kind):
    check(kind, 2, [Side(2, 1, 2)], scale=0.0)


@few_kinds
def test_a_table_for_a_batch_of_one_serves_all_samples(kind):
    x, table = torch.ones(3, 2, 2, 10, device=DEVICE), kind.table(1, 2, groups=10 // kind.size).to(DEVICE, torch.float32)
    plain, batched = (
        [*(y := kind.forward([x], [t], [None], [0])), *kind.back(y, [x], y, [t], [None], [0])] for t in (table, table[None])
    )
    assert torch.equal(plain[0], batched[0])
    assert torch.equal(plain[1], batched[1])
    assert torch.equal(plain[2][None], batched[2])


@few_kinds
def test_without_gradients_of_tables(kind):
    check(kind, *SCENES["only-q"], learned=False)


@few_kinds
def test_the_same_bits_in_every_run(kind):
    first, second = (check(kind, *SCENES["only-q"]) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@few_kinds
@pytest.mark.parametrize("own", [False, True], ids=["shared-table", "own-tables"])
@pytest.mark.parametrize(("batch", "tokens", "prefix"), [(0, 2, 1), (2, 0, 0), (2, 0, 2)], ids=["batch", "tokens", "prefix"])
def test_nothing_to_turn(kind, own, batch, tokens, prefix):
    check(kind, batch, [Side(2, 2, tokens, prefix, own), Side(2, 1, tokens, prefix, own)])


@few_kinds
def test_one_side_with_nothing(kind):
    check(kind, 2, [Side(2, 1, 0), Side(2, 1, 2)])
    check(kind, 2, [Side(2, 1, 2), Side(2, 1, 0)])


@few_kinds
def test_what_is_not_finite_stays_in_its_row(kind):
    x, table = torch.ones(3, 2, 2, 10, device=DEVICE), kind.table(1, 2, groups=10 // kind.size).to(DEVICE, torch.float32)
    x[1, 0, 1, 4] = float("nan")
    (y,) = kind.forward([x], [table], [None], [0])
    assert y.isnan().any(-1).nonzero().tolist() == [[1, 0, 1]]
