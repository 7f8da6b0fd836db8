"""Boxes and masks from the maps of a ViT: where places are, what lies in a box, and what images are looked at."""

import math
from dataclasses import replace

import pytest
import torch
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import project_masks_on_boxes
from torchvision.ops import MultiScaleRoIAlign, box_iou, roi_align

from ropewalk.lab.config import Config
from ropewalk.lab.data.views import evaluation_size
from ropewalk.lab.tasks.detect import build_detector, rescale_detections
from ropewalk.lab.vision_heads.detector import (
    AnchorBoxes,
    BoxPooler,
    ChannelNorm,
    FeaturePyramid,
    choose_box_level,
    downsample_level,
    pyramid_strides,
    shift_masks_half_pixel,
)

LEVELS = (4, 8, 16, 32)
SMALL = Config(task="masks", encoding="mixed", size=(32, 48), patch=8, width=24, depth=1, heads=2, batch=2)
BOXES = torch.tensor([[10.0, 20.0, 40.0, 50.0], [100.0, 60.5, 180.0, 140.0], [40.0, 40.0, 200.0, 190.0],
                      [33.0, 34.0, 417.0, 411.0]], dtype=torch.float64)  # fmt: skip


def ramps(rows, columns, dtype=torch.float64):
    """Maps of all levels whose two channels are x and y of the centre of each place, in pixels."""
    out = {}
    for i, stride in enumerate(LEVELS):
        y, x = ((torch.arange(n // stride, dtype=dtype) + 0.5) * stride for n in (rows, columns))
        out[str(i)] = torch.stack(torch.meshgrid(x, y, indexing="xy"))[None]
    return out


def centres(box, cells):
    """Where the cells of a box have their centres, by hand: (2, cells, cells)."""
    x, y, right, bottom = box.tolist()
    across = [x + (j + 0.5) * (right - x) / cells for j in range(cells)]
    down = [y + (i + 0.5) * (bottom - y) / cells for i in range(cells)]
    return torch.tensor([[across] * cells, [[each] * cells for each in down]], dtype=torch.float64)


def test_what_lies_in_a_box_is_read_where_the_box_lies_in_every_level():
    maps = ramps(448, 512)
    chosen = choose_box_level(BOXES, LEVELS).tolist()
    assert chosen == [0, 0, 1, 2]
    for cells in (7, 14):
        pooled = BoxPooler(LEVELS, cells)(maps, [BOXES])
        for got, box in zip(pooled, BOXES, strict=True):
            torch.testing.assert_close(got, centres(box, cells), rtol=0, atol=1e-9)
    huge = torch.tensor([[64.0, 32.0, 448.0 + 10, 416.0]], dtype=torch.float64)
    assert choose_box_level(2 * huge, LEVELS).tolist() == [3]
    one = {name: maps["3"] for name in "0123"}
    torch.testing.assert_close(BoxPooler((32,) * 4, 7)(one, [huge])[0], centres(huge[0], 7), rtol=0, atol=1e-9)


def test_torchvisions_own_reading_is_half_a_place_off():
    maps, box = ramps(448, 512), BOXES[3:]
    theirs = MultiScaleRoIAlign(["2"], 7, 2)({"2": maps["2"]}, [box], [(448, 512)])
    torch.testing.assert_close(theirs[0], centres(box[0], 7) + LEVELS[2] / 2, rtol=0, atol=1e-9)
    unshifted = roi_align(maps["2"], [box], 7, 1 / 16, sampling_ratio=2, aligned=False)
    assert (unshifted[0] - centres(box[0], 7)).abs().min() > 7


def test_boxes_of_several_images_come_in_their_order_and_none_are_no_error():
    maps = {name: torch.cat([each, -each]) for name, each in ramps(448, 512).items()}
    pooler = BoxPooler(LEVELS, 7)
    both = pooler(maps, [BOXES[2:], BOXES[:3]])
    torch.testing.assert_close(both[:2], pooler({n: m[:1] for n, m in maps.items()}, [BOXES[2:]]))
    torch.testing.assert_close(both[2:], -pooler({n: m[:1] for n, m in maps.items()}, [BOXES[:3]]))
    assert pooler(maps, [BOXES[:0], BOXES[:0]]).shape == (0, 2, 7, 7)


def test_anchors_stand_around_the_centres_of_places():
    maps = [torch.zeros(2, 1, 3, 5), torch.zeros(2, 1, 2, 3)]
    boxes = AnchorBoxes((16, 32))(ImageList(torch.zeros(2, 3, 48, 80), [(48, 80)] * 2), maps)
    assert len(boxes) == 2
    wanted = []
    for stride, rows, columns in ((16, 3, 5), (32, 2, 3)):
        for i in range(rows):
            for j in range(columns):
                for ratio in (0.5, 1.0, 2.0):
                    w, h = 8 * stride / math.sqrt(ratio), 8 * stride * math.sqrt(ratio)
                    x, y = (j + 0.5) * stride, (i + 0.5) * stride
                    wanted.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    torch.testing.assert_close(boxes[0], torch.tensor(wanted))
    theirs = AnchorGenerator(((128,),), ((0.5, 1.0, 2.0),))(ImageList(torch.zeros(1, 3, 48, 80), [(48, 80)]), maps[:1])[0]
    assert (boxes[0][:45] - theirs).abs().min() > 7  # theirs stand around the corners


def test_large_things_have_anchors_of_their_own():
    """Patches of 16 in a view of 704 × 512 pixels, and someone who fills it: one anchor at least is like that."""
    model = build_detector(replace(SMALL, patch=16, size=(704, 512), task="detect"), (704, 512), 2)
    seen = []
    model.rpn.anchor_generator.register_forward_hook(lambda module, given, out: seen.append((given[1], out[0])))
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, 704, 512))
    ((levels, anchors),) = seen
    assert [tuple(level.shape[2:]) for level in levels] == [(176, 128), (88, 64), (44, 32), (22, 16), (11, 8)]
    assert len(anchors) == 3 * sum(level.shape[2] * level.shape[3] for level in levels)
    person = torch.tensor([[100.0, 30.0, 430.0, 690.0]])
    assert box_iou(person, anchors).max() > 0.7
    assert box_iou(person, anchors[: -3 * 11 * 8]).max() < 0.4  # without the last level


def test_a_coarser_level_has_the_largest_of_four_places():
    level = torch.randperm(15, generator=torch.Generator().manual_seed(0)).double().view(1, 1, 3, 5)
    wanted = [[level[0, 0, i : i + 2, j : j + 2].max() for j in (0, 2, 4)] for i in (0, 2)]
    assert torch.equal(downsample_level(level), torch.tensor(wanted, dtype=torch.float64)[None, None])
    assert downsample_level(level[..., :1, :1]).shape == (1, 1, 1, 1)


def test_levels_of_a_pyramid_cover_the_image_whatever_its_grid():
    pyramid = FeaturePyramid(24)
    shapes = [tuple(level.shape) for level in pyramid(torch.randn(2, 24, 3, 5))]
    assert shapes == [(2, 24, 12, 20), (2, 24, 6, 10), (2, 24, 3, 5), (2, 24, 2, 3)]
    assert FeaturePyramid(512).channels == 256
    assert [level.shape[2:] for level in pyramid(torch.randn(1, 24, 1, 1))] == [(4, 4), (2, 2), (1, 1), (1, 1)]
    assert pyramid_strides(16) == (4, 8, 16, 32)
    with pytest.raises(ValueError, match=r"patch.*4, got 6"):
        pyramid_strides(6)


def test_a_norm_goes_over_channels_of_each_place():
    x = torch.randn(2, 6, 3, 5, dtype=torch.float64)
    norm = ChannelNorm(6).double()
    torch.nn.init.normal_(norm.weight)
    wanted = torch.stack([(x[:, c] - x.mean(1)) / (x.var(1, unbiased=False) + norm.eps).sqrt() for c in range(6)], 1)
    torch.testing.assert_close(norm(x), wanted * norm.weight.view(1, 6, 1, 1))


@pytest.mark.parametrize("sides", [(369, 425), (40, 56), (56, 40), (33, 1000), (7, 9), (320, 320)])
def test_images_are_looked_at_in_whole_patches_with_their_shape(sides):
    rows, columns = evaluation_size(sides, (320, 480), 16)
    assert rows % 16 == 0
    assert columns % 16 == 0
    assert 16 <= min(rows, columns) <= 320
    assert max(rows, columns) <= 640
    assert min(rows, columns) == 320 or max(rows, columns) == 640
    assert abs(rows - min(320 / min(sides), 640 / max(sides)) * sides[0]) <= 8


def test_things_come_back_to_the_pixels_of_their_image():
    boxes = torch.tensor([[4.0, 8.0, 20.0, 24.0], [0.0, 0.0, 2.0, 2.0]])
    masks = torch.zeros(2, 1, 28, 28)
    masks[0, :, :, :14] = 1.0
    back = rescale_detections({"boxes": boxes, "masks": masks}, (32, 48), (64, 144))
    torch.testing.assert_close(back["boxes"], torch.tensor([[12.0, 16.0, 60.0, 48.0], [0.0, 0.0, 6.0, 4.0]]))
    assert back["masks"].shape == (2, 64, 144)
    assert back["masks"].dtype == torch.bool
    assert not back["masks"][1].any()
    inside = torch.zeros(64, 144, dtype=torch.bool)
    inside[16:48, 12:36] = True
    assert (back["masks"][0] & inside).sum() / (back["masks"][0] | inside).sum() > 0.9


def things(masks=True):
    out = {"boxes": torch.tensor([[4.0, 4.0, 20.0, 28.0]]), "labels": torch.tensor([1])}
    return out | ({"masks": torch.ones(1, 32, 48, dtype=torch.uint8)} if masks else {})


def nothing():
    return {name: value[:0] for name, value in things().items()}


def edges(mask, box, cells=28):
    """Where a thing begins along x and y in what torchvision compares an outline with, in cells of its box."""
    target = project_masks_on_boxes(mask[None].float(), torch.tensor([box]), torch.tensor([0]), cells)[0].double()
    return [cells - target[-2].sum().item(), cells - target[:, -2].sum().item()]


def test_outlines_are_learned_where_they_lie():
    """A thing that fills the lower right part of its box, which ends inside of cells or at the border of the image."""
    mask = torch.zeros(60, 40)
    mask[23:, 20:] = 1
    for box in ([10.0, 10.0, 30.0, 50.0], [5.5, 3.25, 37.0, 55.5], [0.0, 0.0, 40.0, 60.0]):
        wanted = [28 * (20 - box[0]) / (box[2] - box[0]), 28 * (23 - box[1]) / (box[3] - box[1])]
        assert edges(shift_masks_half_pixel(mask[None])[0], box) == pytest.approx(wanted, abs=0.05)
    assert edges(mask, [10.0, 10.0, 30.0, 50.0]) == pytest.approx([14 - 0.7, 9.1 - 0.35], abs=0.15)  # half a pixel off
    assert shift_masks_half_pixel(torch.zeros(0, 3, 5, dtype=torch.uint8)).shape == (0, 4, 6)


def test_a_detector_compares_outlines_with_masks_where_they_lie(monkeypatch):
    seen = []
    monkeypatch.setattr("torchvision.models.detection.roi_heads.maskrcnn_loss", lambda logits, boxes, masks, *_: (
        seen.extend(masks) or logits.sum()))  # fmt: skip
    mask = torch.zeros(1, 32, 48, dtype=torch.uint8)
    mask[:, 8:, 11:] = 1
    build_detector(SMALL, (32, 48), 2)(torch.randn(1, 3, 32, 48), [things() | {"masks": mask}])
    assert edges(seen[0][0], [1.0, 2.0, 41.0, 30.0]) == pytest.approx([28 * 10 / 40, 6.0], abs=0.05)


def test_a_detector_learns_from_images_with_and_without_things():
    model = build_detector(SMALL, (32, 48), 2)
    images = torch.randn(2, 3, 32, 48)
    for targets in ([things(), nothing()], [nothing(), nothing()]):
        torch.manual_seed(1)
        lost = model(images, targets)
        model.zero_grad()
        lost.backward()
        assert lost.dtype == torch.float32
        assert lost.isfinite()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    assert model.backbone.embed.weight.grad.abs().max() > 0
    assert all(weight.grad.abs().max() > 0 for weight in model.encoding.parameters())


def test_the_loss_of_a_model_that_is_judged_leaves_it_as_it_was():
    model = build_detector(SMALL, (32, 48), 2).eval()
    images = torch.randn(1, 3, 32, 48)
    lost = []
    for mode in (False, True):
        torch.manual_seed(1)
        lost.append(model.train(mode)(images, [things()]).item())
        assert {each.training for each in model.modules()} == {mode}
    assert lost[0] == lost[1]  # nothing is dropped here


@pytest.mark.parametrize("name", ["none", "learned-ape", "axial", "mixed", "spherical", "swin-bias"])
def test_an_image_is_answered_for_by_itself_at_any_size(name):
    model = build_detector(replace(SMALL, encoding=name), (32, 48), 2).eval()
    images = torch.randn(2, 3, 48, 80)
    with torch.no_grad():
        both, alone = model(images), [model(image[None])[0] for image in images]
    for one, other in zip(both, alone, strict=True):
        assert one["boxes"].shape == other["boxes"].shape
        assert one["masks"].shape[1:] == (1, 28, 28)
        torch.testing.assert_close(one["boxes"], other["boxes"], rtol=1e-4, atol=1e-3)
    assert all(len(one["boxes"]) for one in both)


def test_weights_are_drawn_alike_for_every_encoding():
    one, other = (build_detector(replace(SMALL, encoding=name), (32, 48), 2)
                  for name in ("none", "liere"))  # fmt: skip
    theirs = other.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())
    assert {name.split(".")[0] for name in theirs} == {"backbone", "pyramid", "rpn", "roi_heads"}
    assert not any(name.startswith("backbone.head") for name in theirs)


def test_weight_decay_spares_encoding_norms_and_biases():
    model = build_detector(SMALL, (32, 48), 2)
    spared = model.no_weight_decay()
    names = dict(model.named_parameters())
    assert spared >= {name for name, weight in names.items() if weight.ndim < 2 or name.startswith("backbone.encoding.")}
    assert "backbone.embed.weight" not in spared
    assert "roi_heads.box_head.fc6.weight" not in spared


def test_maps_of_training_alone_are_compiled(monkeypatch):
    seen = []

    def compiled(function, **options):
        def run(model, images):
            seen.append(options)
            return function(model, images)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    model = build_detector(SMALL, (32, 48), 2)
    model.compile(dynamic=False)
    images = torch.randn(1, 3, 32, 48)
    torch.manual_seed(1)
    lost = model(images, [things()])
    assert seen == [{"dynamic": False}]
    with torch.no_grad():
        model.eval()(images)
    assert len(seen) == 1
    plain = build_detector(SMALL, (32, 48), 2)
    torch.manual_seed(1)
    assert torch.equal(plain(images, [things()]), lost)


def test_heads_compute_in_float32_under_autocast():
    model = build_detector(SMALL, (32, 48), 2)
    kinds = []
    model.roi_heads.box_head.fc6.register_forward_hook(lambda module, given, out: kinds.append((given[0].dtype, out.dtype)))
    model.pyramid.levels[2].register_forward_hook(lambda module, given, out: kinds.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        lost = model(torch.randn(1, 3, 32, 48), [things()])
    assert kinds[1:] == [(torch.float32, torch.float32)]
    assert lost.dtype == torch.float32
