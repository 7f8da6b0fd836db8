"""Augmentation: each sample as torchvision's functions make it alone, by draws of its own, however the batch is split."""

import dataclasses
import itertools
import json
import math

import pytest
import torch
import torchvision.transforms.v2 as T
import torchvision.transforms.v2.functional as F
from scipy import stats

from ropewalk.lab.augment.color import (
    apply_three_augment,
    autocontrast_images,
    blend_images,
    blur_images,
    convert_to_gray,
    equalize_images,
    mean_color,
    posterize_images,
    smooth_images,
    solarize_images,
)
from ropewalk.lab.augment.geometry import (
    CROP_TRIES,
    BatchBox,
    compose_affine_maps,
    crop_padded,
    draw_crop_boxes,
    flip_images,
    resize_boxes,
    rotate_quarter_turns,
)
from ropewalk.lab.augment.pipeline import (
    AUGMENT_OPERATIONS,
    DRAWS_PER_OPERATION,
    RAND_AUGMENT_OPERATIONS,
    AugmentPipeline,
    apply_rand_augment,
    choose_operations,
    mix_pairs,
)
from ropewalk.lab.hash_random import draw_uniform

BILINEAR = T.InterpolationMode.BILINEAR
RECIPES = {
    "none": {},
    "crop": {"operations": ("crop", "flip"), "mixup": 0.8, "cutmix": 1.0},
    "reflect": {"operations": ("crop", "flip"), "padding": "reflect", "pad": 3, "cutmix": 1.0},
    "deit": {"operations": ("resized-crop", "flip", "three-augment", "jitter"), "mixup": 0.8},
    "smaller": {"operations": ("resized-crop", "jitter"), "size": (4, 3), "scale": (0.5, 1.0)},
    "rand": {"operations": ("rand-augment", "flip"), "count": 3, "magnitude": 20, "mixup": 0.2, "cutmix": 0.2},
}


def bytes_of(*shape, seed=0):
    """Random images, of which neighbouring pixels are not alike."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def floats_of(*shape, seed=0):
    return bytes_of(*shape, seed=seed).float() / 255


def numbers(samples, count, seed=0):
    return draw_uniform(seed, 0, torch.arange(samples), 99, count)


def call(augment, images, *, index=None, epoch=0, classes=7):
    index = torch.arange(len(images)) if index is None else index
    return augment(images, index % classes, index, epoch=epoch, classes=classes)


def close(got, wanted, atol=2e-6):
    torch.testing.assert_close(got, wanted, atol=atol, rtol=0)


def even(counts):
    """The probability of counts at least as uneven as these."""
    return stats.chisquare(torch.as_tensor(counts).numpy()).pvalue


# Flips and crops


def test_flip_is_of_each_sample():
    images, u = bytes_of(40, 3, 5, 7), numbers(40, 1)[:, 0]
    wanted = torch.stack([F.horizontal_flip(x) if v < 0.5 else x for x, v in zip(images, u, strict=True)])
    assert torch.equal(flip_images(images, u), wanted)
    assert 8 < (u < 0.5).sum() < 32


@pytest.mark.parametrize(("padding", "mode"), [("zero", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize(("size", "pad"), [((5, 7), 4), ((5, 7), 2), ((3, 9), 3), ((1, 1), 0), ((13, 2), 4)])
def test_crop_moves_pixels_as_torchvision_does(padding, mode, size, pad):
    images, u = bytes_of(30, 3, 5, 7), numbers(30, 2)
    got = crop_padded(images, u, size, pad, padding)
    for x, y, v in zip(images, got, u, strict=True):
        top, left = (int(a * (n + 2 * pad - m + 1)) for a, n, m in zip(v.tolist(), (5, 7), size, strict=True))
        assert torch.equal(y, F.crop(F.pad(x, [pad], padding_mode=mode), top, left, *size))
    assert got.dtype == torch.uint8


def test_every_place_of_a_crop_is_equally_likely():
    """A pixel that counts the rows and one that counts the columns say where the crop was."""
    ramp = torch.arange(1, 21, dtype=torch.uint8)
    images = torch.stack([ramp[:, None].expand(20, 20), ramp.expand(20, 20)]).expand(8100, 2, 20, 20)
    corner = crop_padded(images, numbers(8100, 2), (12, 12), 0, "zero")[:, :, 0, 0].long() - 1
    assert even(torch.bincount(corner[:, 0] * 9 + corner[:, 1], minlength=81)) > 1e-4


def test_volumes_are_cropped_along_all_axes_and_flipped_along_the_last():
    images = bytes_of(10, 2, 3, 5, 7)
    augment = AugmentPipeline(("crop", "flip"), pad=1, size=(4, 3, 6))
    got, _ = call(augment, images)
    u = augment.draw(torch.arange(10), 0)
    for x, y, v in zip(images, got, u.tolist(), strict=True):
        z, r, c = (int(a * (n + 2 - m + 1)) for a, n, m in zip(v[:3], (3, 5, 7), (4, 3, 6), strict=True))
        wanted = torch.nn.functional.pad(x, (1,) * 6)[:, z : z + 4, r : r + 3, c : c + 6] / 255
        close(
            y,
            wanted.flip(-1) if v[DRAWS_PER_OPERATION["crop"] + DRAWS_PER_OPERATION["resized-crop"]] < 0.5 else wanted,
            atol=1e-7,
        )


def test_each_axis_is_mirrored_by_a_coin_of_its_own():
    images, u = bytes_of(4000, 1, 2, 3, 2), numbers(4000, 1)[:, 0]
    got = flip_images(images, u, (0, -1, 1))
    seen = []
    for x, y, v in zip(images, got, u.tolist(), strict=True):
        digits = [int(v * 2**k) % 2 for k in (1, 2, 3)]
        dims = [dim for dim, digit in zip((1, 3, 2), digits, strict=True) if not digit]
        assert torch.equal(y, x.flip(dims))
        seen.append(digits[0] + 2 * digits[1] + 4 * digits[2])
    assert even(torch.bincount(torch.tensor(seen), minlength=8)) > 1e-4


@pytest.mark.parametrize(("upright", "plane"), [(0, (2, 3)), (1, (1, 3)), (-1, (1, 2)), (-3, (2, 3))])
def test_volumes_are_turned_about_an_axis(upright, plane):
    sides = [4, 4, 4]
    sides[upright] = 3
    images, u = bytes_of(400, 2, *sides), numbers(400, 1)[:, 0]
    got = rotate_quarter_turns(images, u, upright)
    for x, y, v in zip(images, got, u.tolist(), strict=True):
        assert torch.equal(y, x.rot90(int(4 * v), plane))
    assert even(torch.bincount((4 * u).long(), minlength=4)) > 1e-4
    with pytest.raises(ValueError, match=r"got images \(400, 2"):
        rotate_quarter_turns(images, u, (upright + 1) % 3)


def test_an_image_is_turned_whole():
    images, u = bytes_of(9, 3, 5, 5), torch.arange(9) / 9
    got = rotate_quarter_turns(images, u)
    for x, y, v in zip(images, got, u.tolist(), strict=True):
        assert torch.equal(y, F.rotate(x, 90 * int(4 * v)))
    assert torch.equal(call(AugmentPipeline(("turn",)), images[:0])[0], images[:0].float())
    assert torch.equal(rotate_quarter_turns(images.mT, u), rotate_quarter_turns(images.mT.contiguous(), u))


def test_volumes_are_cropped_mirrored_and_turned_by_a_recipe():
    images = bytes_of(40, 1, 6, 6, 5)
    augment = AugmentPipeline(("turn", "crop", "flip"), pad=1, mirrored=(0, 1), upright=2)
    got, _ = call(augment, images)
    u = augment.draw(torch.arange(40), 0)
    columns = dict(zip(augment._columns, u.split([*augment._columns.values()], 1), strict=True))
    flip, turn = columns["flip"][:, 0], columns["turn"][:, 0]
    right = rotate_quarter_turns(flip_images(crop_padded(images, u[:, :3], (6, 6, 5), 1, "zero"), flip, (0, 1)), turn, 2)
    assert torch.equal(got, right.float() * (1 / 255))
    assert dataclasses.asdict(AugmentPipeline(**json.loads(json.dumps(dataclasses.asdict(augment))))) == dataclasses.asdict(
        augment
    )


def test_numbers_of_images_are_what_they_were():
    """A new operation must not move the numbers of others: runs from before go on."""
    augment = AugmentPipeline(count=2)
    u = augment.draw(torch.arange(3), 5)
    assert torch.equal(u[:, :42], draw_uniform(0, 5, torch.arange(3), 0xA06, 42))
    assert [*augment._columns.items()][:8] == [
        ("crop", 3), ("resized-crop", 22), ("flip", 1), ("three-augment", 2), ("jitter", 3), ("mix", 6), ("rand-augment", 4),
        ("turn", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        (
            {"mirrored": (2,)},
            (2, 1, 5, 7),
            r"mirrored.*2 axes.*-2.*1.*got \(2,\)",
        ),
        ({"mirrored": (0, -3)}, (2, 1, 5, 7, 3), r"mirrored.*3 axes.*got \(0, -3\)"),
        ({"upright": 3}, (2, 1, 5, 5, 5), r"upright.*3 axes.*got \(3,\)"),
    ],
)
def test_axes_that_there_are_not_are_refused(options, shape, message):
    with pytest.raises(ValueError, match=message):
        call(AugmentPipeline(("flip",), **options), bytes_of(*shape))
    with pytest.raises(ValueError, match=r"mirrored and upright.*axes"):
        AugmentPipeline(mirrored=("rows",))


# Resized crops


@pytest.mark.parametrize("size", [(32, 32), (9, 40), (5, 7), (1, 1)])
def test_resized_crop_is_torchvisions(size):
    images, box = floats_of(16, 3, 23, 31), draw_crop_boxes(numbers(16, 22), (23, 31), (0.08, 1.0), (0.75, 4 / 3))
    for x, y, *place in zip(images, resize_boxes(images, box, size), *box, strict=True):
        close(y, F.resized_crop(x, *map(int, place), list(size), antialias=True), atol=2e-5)


def test_resized_crop_is_antialiased_and_looks_at_its_box_alone():
    images, box = floats_of(4, 1, 23, 31), BatchBox(*(torch.full((4,), n) for n in (2, 3, 20, 25)))
    small = resize_boxes(images, box, (5, 7))
    without = torch.stack([F.resized_crop(x, 2, 3, 20, 25, [5, 7], antialias=False) for x in images])
    assert (small - without).abs().max() > 0.1
    outside = torch.ones(23, 31, dtype=torch.bool)
    outside[2:22, 3:28] = False
    assert torch.equal(resize_boxes(images.masked_fill(outside, 0.0), box, (5, 7)), small)


def test_a_box_of_the_whole_image_changes_nothing():
    images, zero = floats_of(3, 3, 5, 7), torch.zeros(3).long()
    assert torch.equal(resize_boxes(images, BatchBox(zero, zero, zero + 5, zero + 7), (5, 7)), images)


@pytest.mark.parametrize("sides", [(32, 32), (20, 31)])
def test_boxes_are_drawn_as_torchvisions(sides):
    """Two samples of each number that says what a box is come from one distribution."""
    theirs = T.RandomResizedCrop(sides)
    image = torch.zeros(1, *sides)
    found = [theirs.make_params([image]) for _ in range(3000)]
    mine = draw_crop_boxes(numbers(6000, 22), sides, (0.08, 1.0), (0.75, 4 / 3))
    for name in ("top", "left", "height", "width"):
        assert stats.ks_2samp(getattr(mine, name).numpy(), [params[name] for params in found]).pvalue > 1e-4, name
    area = torch.tensor([p["height"] * p["width"] for p in found])
    assert stats.ks_2samp((mine.height * mine.width).numpy(), area.numpy()).pvalue > 1e-4
    for start, length, n in ((mine.top, mine.height, sides[0]), (mine.left, mine.width, sides[1])):
        assert start.min() >= 0
        assert (start + length).max() == n


@pytest.mark.parametrize("sides", [(3, 50), (50, 3), (9, 10)])
def test_where_no_box_fits_it_is_torchvisions_in_the_middle(sides):
    """Areas above the image's never fit."""
    params = T.RandomResizedCrop(sides, scale=(5, 6)).make_params([torch.zeros(1, *sides)])
    box = draw_crop_boxes(numbers(4, 22), sides, (5, 6), (0.75, 4 / 3))
    assert {name: set(getattr(box, name).tolist()) for name in params} == {name: {n} for name, n in params.items()}


def test_the_first_box_that_fits_is_taken():
    """By a loop over tries, for a flat image, in which most boxes do not fit."""
    u, (rows, columns), ratio = numbers(200, 2 * CROP_TRIES + 2), (10, 30), (0.1, 3.0)
    got, needed = torch.stack(draw_crop_boxes(u, (rows, columns), (0.5, 1.0), ratio), 1).tolist(), set()
    for v, box in zip(u.tolist(), got, strict=True):
        for k in range(CROP_TRIES):
            area, shape = 300 * (0.5 + 0.5 * v[k]), 0.1 * 30 ** v[CROP_TRIES + k]
            height, width = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
            if height <= rows and width <= columns:
                needed.add(k)
                assert box == [int(v[-2] * (rows - height + 1)), int(v[-1] * (columns - width + 1)), height, width]
                break
        else:
            needed.add(None)
            assert box == [0, 0, rows, columns]
    assert {0, 1, 2, None} <= needed


# Colours


FACTORS = torch.tensor([0.0, 0.3, 0.9, 1.0, 1.1, 1.9])


@pytest.mark.parametrize("shape", [(6, 3, 5, 7), (6, 1, 5, 7), (6, 3, 2, 9)])
@pytest.mark.parametrize(
    ("poorer", "theirs"),
    [
        (torch.zeros_like, F.adjust_brightness),
        (convert_to_gray, F.adjust_saturation),
        (lambda x: mean_color(convert_to_gray(x)), F.adjust_contrast),
        (smooth_images, F.adjust_sharpness),
    ],
)
def test_blends_are_torchvisions(shape, poorer, theirs):
    images = floats_of(*shape)
    got = blend_images(images, poorer(images), FACTORS)
    for x, y, factor in zip(images, got, FACTORS.tolist(), strict=True):
        close(y, theirs(x, factor))


@pytest.mark.parametrize("channels", [1, 3])
def test_tables_of_levels_are_torchvisions(channels):
    images = bytes_of(6, channels, 23, 31)
    images[1] //= 3
    images[2] = 50
    images[3, :, :, :20] = 200
    images[4] = images[4].clamp(max=1)
    x = images.float() * (1 / 255)
    for bits in range(1, 9):
        close(posterize_images(x, bits) * 255, F.posterize(images, bits).float(), atol=1e-4)
    for threshold in (0.5, *(1 - magnitude / 30 for magnitude in range(31))):  # every second is one of the 256 levels
        close(solarize_images(x, threshold) * 255, F.solarize(images, 255 * threshold).float(), atol=1e-4)
    close(equalize_images(x) * 255, torch.stack([F.equalize(image) for image in images]).float(), atol=1e-4)
    close(autocontrast_images(x), torch.stack([F.autocontrast(image) for image in x]))


def test_an_image_of_few_pixels_or_one_level_is_not_equalised_or_stretched():
    small, flat = floats_of(2, 3, 5, 7), torch.full((2, 3, 20, 30), 0.3)
    assert torch.equal(equalize_images(small), small)
    assert torch.equal(equalize_images(flat), flat)
    assert torch.equal(autocontrast_images(flat), flat)
    assert not torch.equal(equalize_images(floats_of(2, 3, 20, 30)), floats_of(2, 3, 20, 30))


@pytest.mark.parametrize(
    ("sides", "kernel"), [((17, 23), (13, 13)), ((5, 7), (9, 13)), ((2, 9), (3, 13)), ((1, 9), (1, 13))]
)
def test_blur_is_torchvisions(sides, kernel):
    images, sigma = floats_of(5, 3, *sides), torch.tensor([0.1, 0.4, 1.0, 1.7, 2.0])
    got = blur_images(images, sigma)
    for x, y, s in zip(images, got, sigma.tolist(), strict=True):
        close(y, F.gaussian_blur(x, kernel_size=list(kernel[::-1]), sigma=[s, s]).clamp(max=1))
    assert (got[4] - images[4]).abs().max() > 0.1
    assert blur_images(torch.ones(400, 1, *sides), torch.linspace(0.1, 2, 400)).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_three_augment_does_one_of_three(channels):
    images, u = floats_of(300, channels, 9, 7), numbers(300, 2)
    got, seen = apply_three_augment(images, u), [0, 0, 0]
    for x, y, (choice, width) in zip(images, got, u.tolist(), strict=True):
        seen[which := int(3 * choice)] += 1
        wanted = (
            lambda x=x: F.rgb_to_grayscale(x, channels),
            lambda x=x: F.solarize(x, 0.5),
            lambda x=x, s=0.1 + 1.9 * width: F.gaussian_blur(x, [13, 13], [s, s]),
        )[which]()
        close(y, wanted)
    assert even(seen) > 1e-4


@pytest.mark.parametrize("amounts", [(0.3, 0.3, 0.3), (0.0, 0.4, 2.0)])
def test_jitter_is_torchvisions_in_a_fixed_order(amounts):
    images = bytes_of(20, 3, 5, 7)
    augment = AugmentPipeline(("jitter",), brightness=amounts[0], contrast=amounts[1], saturation=amounts[2])
    got, _ = call(augment, images)
    first = sum(DRAWS_PER_OPERATION[name] for name in ("crop", "resized-crop", "flip", "three-augment"))
    for x, y, u in zip(images, got, augment.draw(torch.arange(20), 0)[:, first : first + 3].tolist(), strict=True):
        x = x.float() / 255
        for v, amount, change in zip(u, amounts, (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation), strict=True):
            low, high = max(0.0, 1 - amount), 1 + amount
            x = change(x, low + v * (high - low))
        close(y, x)


# RandAugment


def reference(name, x, sign, magnitude):
    """One operation on one float image by torchvision's functions, at one of 30 levels."""
    part, (rows, columns) = magnitude / 30, x.shape[-2:]
    factor, angle = 1 + sign * 0.9 * part, math.degrees(math.atan(0.3 * part * sign))
    right, down = (sign * int(150 / 331 * part * n) for n in (columns, rows))

    def moved(translate=(0, 0), shear=(0.0, 0.0), center=None):
        return F.affine(x, 0.0, list(translate), 1.0, list(shear), interpolation=BILINEAR, center=center)

    level = (x * 255).round().to(torch.uint8)
    return {
        "identity": lambda: x,
        "shear-x": lambda: moved(shear=(angle, 0.0), center=[0, 0]),
        "shear-y": lambda: moved(shear=(0.0, angle), center=[0, 0]),
        "translate-x": lambda: moved(translate=(right, 0)),
        "translate-y": lambda: moved(translate=(0, down)),
        "rotate": lambda: F.rotate(x, sign * 30 * part, interpolation=BILINEAR),
        "brightness": lambda: F.adjust_brightness(x, factor),
        "colour": lambda: F.adjust_saturation(x, factor),
        "contrast": lambda: F.adjust_contrast(x, factor),
        "sharpness": lambda: F.adjust_sharpness(x, factor),
        "posterise": lambda: F.posterize(level, 8 - round(4 * part)).float() / 255,
        "solarise": lambda: F.solarize(level, 255 * (1 - part)).float() / 255,
        "autocontrast": lambda: F.autocontrast(x),
        "equalise": lambda: F.equalize(level).float() / 255,
    }[name]()


def asked(*names_and_signs):
    """The numbers (1, 2n) by which these operations are chosen with these signs."""
    pairs = [
        ((RAND_AUGMENT_OPERATIONS.index(name) + 0.5) / len(RAND_AUGMENT_OPERATIONS), 0.25 if sign < 0 else 0.75)
        for name, sign in names_and_signs
    ]
    return torch.tensor(pairs).view(1, -1)


@pytest.mark.parametrize("shape", [(3, 23, 31), (1, 31, 17), (3, 5, 7)])
@pytest.mark.parametrize("magnitude", [4, 9, 30])
def test_each_operation_is_torchvisions(shape, magnitude):
    """All fourteen with both signs, in one batch. Turned pixels agree to 1e-4: coordinates are rounded differently."""
    wishes = [(name, sign) for name in RAND_AUGMENT_OPERATIONS for sign in (-1, 1)]
    images = floats_of(len(wishes), *shape)
    got = apply_rand_augment(images, torch.cat([asked(wish) for wish in wishes]), magnitude)
    for x, y, (name, sign) in zip(images, got, wishes, strict=True):
        torch.testing.assert_close(
            y, reference(name, x, sign, magnitude), atol=1e-4, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize(
    "names",
    [("contrast", "equalise"), ("posterise", "sharpness"), ("brightness", "rotate"), ("translate-x", "translate-y")],
)
def test_two_operations_act_in_the_order_drawn(names):
    """Levels may be rounded the other way between the two, which is why some pixels may be one level away."""
    images, wish = floats_of(6, 3, 23, 31), [(names[0], 1), (names[1], -1)]
    got = apply_rand_augment(images, asked(*wish).expand(6, -1), 9)
    wanted = torch.stack([reference(names[1], reference(names[0], x, 1, 9), -1, 9) for x in images])
    assert ((got - wanted).abs() > 1e-4).float().mean() < 1e-3
    other = apply_rand_augment(images, asked(*wish[::-1]).expand(6, -1), 9)
    assert torch.equal(got, other) == (names[1] in ("rotate", "translate-y"))  # which are made last, and commute


def test_colours_come_before_moves():
    x, wish = floats_of(1, 3, 23, 31), asked(("rotate", 1), ("equalise", 1))
    wanted = reference("rotate", reference("equalise", x[0], 1, 9), 1, 9)
    close(apply_rand_augment(x, wish, 9)[0], wanted, atol=1e-4)
    other = reference("equalise", reference("rotate", x[0], 1, 9), 1, 9)
    assert (other - wanted).abs().max() > 0.05


def test_maps_are_composed_as_matrices():
    """In one go from the old image: the first map acts on what the second gives."""
    a, b = numbers(5, 6).view(5, 2, 3), numbers(5, 6, seed=1).view(5, 2, 3)
    last = torch.tensor([0.0, 0.0, 1.0]).expand(5, 1, 3)
    product = torch.cat([a, last], 1) @ torch.cat([b, last], 1)
    close(compose_affine_maps(a, b), product[:, :2])
    assert (compose_affine_maps(b, a) - compose_affine_maps(a, b)).abs().max() > 0.1


def test_two_moves_are_one_map():
    """A turn and the turn back are the identity; a shear and a turn are nearly two images in a row, in this order only."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 63), torch.linspace(-1, 1, 85), indexing="ij")
    images = (0.5 + 0.4 * torch.sin(3 * x + y) * torch.cos(2 * y))[None, None]
    close(apply_rand_augment(images, asked(("rotate", 1), ("rotate", -1)), 9), images, atol=1e-5)
    for first, second in (("shear-x", "rotate"), ("rotate", "shear-y"), ("shear-y", "shear-x")):
        wanted = reference(second, reference(first, images[0], 1, 15), 1, 15)
        one, other = (
            (apply_rand_augment(images, asked((a, 1), (b, 1)), 15)[0] - wanted)[:, 25:-25, 30:-30].abs().max()
            for a, b in ((first, second), (second, first))
        )
        assert one < 2e-3
        assert other > 2e-2


def test_choices_are_equally_likely_and_who_draws_a_colour_keeps_its_place():
    assert even(choose_operations(numbers(7000, 1)[:, 0]).sum(0)) > 1e-4
    images = floats_of(3, 3, 5, 7)
    assert torch.equal(apply_rand_augment(images, asked(("identity", 1), ("identity", -1)).expand(3, -1), 30), images)
    assert torch.equal(apply_rand_augment(images, torch.zeros(3, 0), 30), images)


# Mixup and cutmix


def mixed(samples, mixup, cutmix, sides=(5, 7), seed=0):
    """White and black images of classes 0 and 1 in turn, mixed, with what each keeps of its own label."""
    white = (torch.arange(samples) % 2 == 0).float()
    images, targets = white.view(-1, 1, *[1] * len(sides)).expand(-1, 2, *sides), torch.stack([white, 1 - white], 1)
    images, targets = mix_pairs(images, targets, numbers(samples, 6, seed), mixup, cutmix)
    return images, targets, torch.where(white > 0, targets[:, 0], targets[:, 1])


@pytest.mark.parametrize("sides", [(5, 7), (3, 5, 7)])
@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_targets_sum_to_one_and_are_the_pixels(mixup, cutmix, sides):
    images, targets, _ = mixed(400, mixup, cutmix, sides)
    close(targets.sum(1), torch.ones(400), atol=1e-6)
    close(images.flatten(1).mean(1), targets[:, 0], atol=1e-6)
    levels = images[:, 0].flatten(1)
    cut = ((levels == 0) | (levels == 1)).all(1)
    assert cut.all() == (mixup == 0)
    if mixup and cutmix:
        assert 140 < cut.sum() < 260
    else:
        assert torch.equal(levels.amin(1) == levels.amax(1), torch.ones(400, dtype=torch.bool)) == (cutmix == 0)


def test_neighbours_share_their_numbers_and_swap_what_they_give():
    images, targets, kept = mixed(60, 0.8, 1.0)
    close(images[0::2] + images[1::2], torch.ones(30, 2, 5, 7), atol=1e-6)
    assert torch.equal(kept[0::2], kept[1::2])
    assert len(set(kept.tolist())) > 15
    close(targets[0::2] + targets[1::2], torch.ones(30, 2), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0])
def test_mixup_keeps_what_beta_says(alpha):
    kept = mixed(12_000, alpha, 0.0, (1, 1))[2][::2]
    inner = torch.linspace(0.02, 0.98, 25)
    law = torch.from_numpy(stats.beta(alpha, alpha).cdf(inner.numpy()))
    assert ((kept[:, None] < inner).double().mean(0) - law).abs().max() < 2.2 / math.sqrt(6000)


@pytest.mark.parametrize("sides", [(11, 17), (6, 9, 13)])
def test_cutmix_cuts_the_box_of_the_paper(sides):
    """Pixel by pixel: the box has a share 1 - λ of the image, the same part of each side; beyond the edges it is lost."""
    u = numbers(60, 6)
    images, _, kept = mixed(60, 0.0, 1.0, sides)
    for i in range(0, 60, 2):
        t = math.sqrt(1 / u[i, 1].item() - 1) * math.cos(2 * math.pi * u[i, 2].item())
        part = (1 - (1 + t / math.sqrt(1 + t * t)) / 2) ** (1 / len(sides))
        ranges = []
        for v, n in zip(u[i, 3:].tolist(), sides, strict=False):
            middle, half = int(v * n), int(part * n / 2)
            ranges.append(range(max(middle - half, 0), min(middle + half, n)))
        box = set(itertools.product(*ranges))
        assert {tuple(p) for p in (images[i, 0] == 0).nonzero().tolist()} == box
        assert kept[i].item() == pytest.approx(1 - len(box) / math.prod(sides), abs=1e-7)


def test_each_way_of_mixing_has_its_own_alpha():
    """A large one for mixup keeps a half of every sample; by a small one for cutmix half of the boxes are nearly empty."""
    images, _, kept = mixed(400, 200.0, 0.05, (21, 31))
    cut = ((images == 0) | (images == 1)).flatten(1).all(1)
    assert (kept[~cut] - 0.5).abs().max() < 0.15
    assert 0.35 < (kept[cut] > 0.95).float().mean() < 0.65
    assert 140 < cut.sum() < 260


def test_an_odd_batch_has_no_pairs():
    with pytest.raises(ValueError, match=r"batch.*got 3"):
        mixed(3, 0.8, 0.0)


# Whole recipes


def test_a_recipe_is_torchvisions_functions_in_a_row():
    """Every operation finds its own numbers: each sample by its own, one after the other."""
    images, scale, ratio = bytes_of(24, 3, 23, 31), (0.3, 0.5), (0.5, 0.8)
    augment = AugmentPipeline(("jitter", "flip", "resized-crop"), size=(9, 11), scale=scale, ratio=ratio)
    got, targets = call(augment, images)
    u = augment.draw(torch.arange(24), 0)
    columns = dict(zip(augment._columns, u.split([*augment._columns.values()], 1), strict=True))
    box = draw_crop_boxes(columns["resized-crop"], (23, 31), scale, ratio)
    for i in range(24):
        x = F.resized_crop(images[i].float() / 255, *(int(side[i]) for side in box), [9, 11], antialias=True)
        x = F.horizontal_flip(x) if columns["flip"][i] < 0.5 else x
        for change, v in zip(
            (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation), columns["jitter"][i].tolist(), strict=True
        ):
            x = change(x, 0.7 + 0.6 * v)
        close(got[i], x, atol=5e-5)
    assert torch.equal(targets, torch.nn.functional.one_hot(torch.arange(24) % 7, 7).float())


FLAT = [name for name in AUGMENT_OPERATIONS if name != "turn"]
OWNERS = {"mix": {"mixup": 0.8, "cutmix": 1.0}} | {name: {"operations": (name,)} for name in AUGMENT_OPERATIONS}


@pytest.mark.parametrize("name", OWNERS)
def test_an_operation_listens_to_its_own_numbers_alone(name):
    """Other numbers in all other columns change nothing; other numbers in its own do."""
    augment, images, labels = (
        AugmentPipeline(**OWNERS[name]),
        bytes_of(8, 3, 23, 23 if name == "turn" else 31),
        torch.arange(8) % 7,
    )
    one, other = augment.draw(torch.arange(8), 0), augment.draw(torch.arange(8), 1)
    owners = [owner for owner, n in augment._columns.items() for _ in range(n)]
    own = torch.tensor([owner == name for owner in owners])
    first, same, different = (
        augment.apply(images, labels, u, classes=7)[0]
        for u in (one, torch.where(own, one, other), torch.where(own, other, one))
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, different)


def check_split(augment):
    """A batch in pieces is the batch, bit for bit."""
    images, index = bytes_of(12, 3, 23, 31), torch.arange(12) * 17 % 50
    whole = call(augment, images, index=index)
    for pieces in ((6, 6), (2, 10), (4, 2, 6)):
        parts = [call(augment, x, index=i) for x, i in zip(images.split(pieces), index.split(pieces), strict=True)]
        for got, wanted in zip((torch.cat(p) for p in zip(*parts, strict=True)), whole, strict=True):
            assert torch.equal(got, wanted), "a sample depends on its batch"


def check_repeats(augment):
    """The same call gives the same."""
    images = bytes_of(12, 3, 23, 31)
    (first, _), (second, _) = call(augment, images), call(augment, images)
    assert torch.equal(first, second), "two calls differ"


def check_own(augment):
    """Copies of one image become different ones, by the sample's index, by the epoch and by the seed."""
    images, index = bytes_of(1, 3, 23, 31).expand(24, -1, -1, -1), torch.arange(24)
    variants = [
        call(augment, images, index=index + 100 * step, epoch=epoch)[0] for step, epoch in ((0, 0), (0, 1), (1, 0))
    ] + [call(dataclasses.replace(augment, seed=5), images)[0]]
    different = {x.numpy().tobytes() for x in variants[0]}
    assert len(different) > 8, "samples share their draws"
    for other in variants[1:]:
        same = (variants[0] == other).flatten(1).all(1).float().mean()
        assert same < 0.8, "draws do not change"


RANDOM = [name for name in RECIPES if name != "none"]


@pytest.mark.parametrize("check", [check_split, check_repeats])
@pytest.mark.parametrize("name", RECIPES)
def test_samples_depend_on_themselves_alone(name, check):
    check(AugmentPipeline(**RECIPES[name]))


@pytest.mark.parametrize("name", RANDOM)
def test_samples_epochs_and_seeds_have_draws_of_their_own(name):
    check_own(AugmentPipeline(**RECIPES[name]))


class BatchWide(AugmentPipeline):
    """All samples have the numbers of the first."""

    def draw(self, index, epoch):
        return super().draw(index, epoch)[:1].expand(len(index), -1)


class ByPlace(AugmentPipeline):
    """The place in the batch is taken for the index."""

    def draw(self, index, epoch):
        return super().draw(torch.arange(len(index)), epoch)


class Timeless(AugmentPipeline):
    """All epochs are alike."""

    def draw(self, index, epoch):
        return super().draw(index, 0)


class Stateful(AugmentPipeline):
    """Numbers come from a generator that remembers."""

    def draw(self, index, epoch):
        return torch.rand_like(super().draw(index, epoch))


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize(
    ("mutant", "check", "message"),
    [
        (BatchWide, check_own, "share their draws"),
        (BatchWide, check_split, "depends on its batch"),
        (ByPlace, check_split, "depends on its batch"),
        (ByPlace, check_own, "do not change"),
        (Timeless, check_own, "do not change"),
        (Stateful, check_repeats, "two calls differ"),
    ],
)
def test_mutants_are_found(name, mutant, check, message):
    with pytest.raises(AssertionError, match=message):
        check(mutant(**RECIPES[name]))


def test_numbers_of_a_purpose_do_not_depend_on_the_recipe():
    index = torch.arange(9)
    some, more = (
        AugmentPipeline(("flip",), count=0).draw(index, 3),
        AugmentPipeline(("rand-augment", "crop"), count=4).draw(index, 3),
    )
    assert torch.equal(some, more[:, : some.shape[1]])
    images = bytes_of(9, 3, 5, 7)
    assert torch.equal(
        call(AugmentPipeline(("flip",)), images)[0], call(AugmentPipeline(("crop", "flip"), pad=0), images)[0]
    )


def test_operations_act_in_one_order():
    images = bytes_of(8, 3, 5, 7)
    names = [name for name in FLAT if name != "crop"]
    one, other = (call(AugmentPipeline(tuple(order)), images)[0] for order in (names, names[::-1]))
    assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (4, 1, 5, 7), (0, 3, 5, 7), (0, 1, 23, 31), (2, 3, 1, 4), (4, 1, 40, 3)])
@pytest.mark.parametrize("name", FLAT)
def test_shapes_types_and_ranges(shape, name):
    images = bytes_of(*shape)
    before = images.clone()
    got, targets = call(AugmentPipeline((name,), mixup=0.8, cutmix=1.0), images)
    assert got.shape == shape
    assert targets.shape == (shape[0], 7)
    assert got.dtype == targets.dtype == torch.float32
    assert got.isfinite().all()
    assert ((got >= 0) & (got <= 1)).all()
    assert torch.equal(images, before)


@pytest.mark.parametrize("batch", [0, 4])
def test_volumes_are_mixed(batch):
    images = bytes_of(batch, 1, 3, 5, 7)
    got, targets = call(AugmentPipeline(("crop", "flip"), mixup=0.8, cutmix=1.0, pad=1, padding="reflect"), images)
    assert got.shape == images.shape
    close(targets.sum(1), torch.ones(batch), atol=1e-6)


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in FLAT), ("resized-crop", {"size": (9, 7)})])
def test_black_and_white_stay_in_range(value, name, options):
    """Weights that sum to one but for a bit must not make white brighter."""
    images = torch.full((64, 3, 23, 31), value, dtype=torch.uint8)
    got, _ = call(AugmentPipeline((name,), magnitude=30, **options), images)
    assert ((got >= 0) & (got <= 1)).all()


@pytest.mark.parametrize("name", RECIPES)
def test_no_value_is_read(name):
    """Tensors without values have none to wait for; all that is made is made on their device."""
    images, labels = (
        torch.empty(4, 3, 23, 31, dtype=torch.uint8, device="meta"),
        torch.empty(4, dtype=torch.int64, device="meta"),
    )
    got, targets = AugmentPipeline(**RECIPES[name])(images, labels, labels, epoch=1, classes=5)
    assert got.device.type == targets.device.type == "meta"
    assert got.shape[:2] == (4, 3)


@pytest.mark.parametrize("name", ["crop", "deit", "rand"])
def test_what_follows_the_draws_is_one_graph(name):
    torch.compiler.reset()
    augment, images, index = AugmentPipeline(**RECIPES[name]), bytes_of(6, 3, 23, 31), torch.arange(6)
    compiled = torch.compile(augment.apply, fullgraph=True, backend="eager")
    for epoch in (0, 1):
        got = compiled(images, index, augment.draw(index, epoch), classes=7)
        for mine, wanted in zip(got, call(augment, images, epoch=epoch), strict=True):
            assert torch.equal(mine, wanted)


def test_a_whole_call_may_be_compiled_in_several_graphs():
    """The epoch is a number of Python: no graph may keep the first one that it saw."""
    torch.compiler.reset()
    augment, images = AugmentPipeline(("crop", "flip")), bytes_of(6, 3, 5, 7)
    compiled = torch.compile(augment, backend="eager")
    for epoch in range(4):
        assert torch.equal(call(compiled, images, epoch=epoch)[0], call(augment, images, epoch=epoch)[0])


def test_a_recipe_is_json():
    for name, options in RECIPES.items():
        augment = AugmentPipeline(**options, seed=3)
        again = AugmentPipeline(**json.loads(json.dumps(dataclasses.asdict(augment))))
        assert again == augment, name
        assert hash(again) == hash(augment)
    assert AugmentPipeline(("Resized_Crop",)) == AugmentPipeline(("resized-crop",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        augment.seed = 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"operations": ("fliip",)},
            r"'fliip'.*crop, resized-crop.*Did you mean 'flip'",
        ),
        ({"operations": ("rand_augmnt",)}, r"Did you mean 'rand-augment'"),
        ({"operations": ("xyz",)}, r"augmentation 'xyz'"),
        ({"operations": "flip"}, r"\('flip',\), got.*string 'flip'"),
        ({"operations": ("flip", "flip")}, "named once"),
        ({"operations": ("crop", "resized-crop")}, r"'crop'.*'resized-crop'"),
        ({"size": (0, 3)}, r"size.*got 0"),
        ({"pad": -1}, r"pad.*got -1"),
        ({"pad": 1.5}, r"pad.*whole number"),
        ({"count": True}, r"count.*whole number"),
        ({"seed": 0.5}, r"seed.*whole number"),
        ({"padding": "edge"}, r"padding 'edge'.*zero, reflect"),
        ({"scale": (0.5, 0.2)}, r"scale.*0.*1, got \(0.5, 0.2\)"),
        ({"scale": (0.5, 1.2)}, "at most 1, got"),
        ({"ratio": (0.0, 1.2)}, "ratio must be two numbers"),
        ({"magnitude": 31}, r"magnitude.*0.*30, got 31"),
        ({"mixup": -0.1}, r"mixup.*got -0.1"),
        ({"contrast": math.nan}, r"contrast.*got nan"),
    ],
)
def test_options_that_make_no_sense_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        AugmentPipeline(**options)


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        (
            {"operations": ("jitter",)},
            (2, 1, 3, 5, 7),
            r"'jitter'.*axes \(volumes.*mixup",
        ),
        ({"operations": ("resized-crop",)}, (2, 1, 3, 5, 7), r"'resized-crop'.*axes"),
        ({"operations": ("three-augment",)}, (2, 2, 5, 7), r"1 or 3 channels, got \(2, 2, 5, 7\)"),
        ({"size": (5, 7)}, (2, 1, 3, 5, 7), r"3 axes.*got \(5, 7\)"),
        ({"size": (5, 8)}, (2, 1, 5, 7), r"images.*size \(5, 8\).*got \(5, 7\)"),
        (
            {"operations": ("crop",), "size": (14, 7)},
            (2, 1, 5, 7),
            r"14.*padding.*4",
        ),
        (
            {"operations": ("crop",), "padding": "reflect"},
            (2, 1, 4, 7),
            r"4.*padding.*4",
        ),
        ({"mixup": 1.0}, (3, 1, 5, 7), r"batch.*got 3"),
        ({}, (3, 5, 7), r"images.*uint8 \(B C H W\).*\(B C D H W\), got torch.uint8 \(3, 5, 7\)"),
    ],
)
def test_batches_that_do_not_suit_are_errors(options, shape, message):
    with pytest.raises(ValueError, match=message):
        call(AugmentPipeline(**options), bytes_of(*shape))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(4, 3, 5, 7)}, r"images.*uint8.*got torch.float32"),
        ({"labels": torch.zeros(3).long()}, r"labels.*int64 \(4,\).*got torch.int64 \(3,\).*4"),
        ({"labels": torch.zeros(4)}, r"labels.*int64 \(4,\)"),
        ({"labels": torch.tensor([0, 1, 2, 9])}, r"labels.*0.*6, got 0.*9"),
        ({"labels": torch.tensor([0, 1, 2, -1])}, r"labels.*0.*6, got -1.*2"),
        ({"index": torch.arange(5)}, r"got torch.int64 \(4,\).*5"),
        ({"index": torch.arange(4.0)}, r"index.*int64 \(N,\)"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(change, message):
    arguments = {"images": bytes_of(4, 3, 5, 7), "labels": torch.arange(4), "index": torch.arange(4)} | change
    with pytest.raises(ValueError, match=message):
        AugmentPipeline(("flip",))(**arguments, epoch=0, classes=7)
