"""Rotation is exact at right angles and bilinear in between; shrinking takes means of blocks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from making import refusal

from fedbr import data
from fedbr.core.samples import Augment, Samples
from fedbr.data import DataOptions, transforms
from fedbr.data.source import Source
from fedbr.data.transforms import rotate, shrink

ANGLES = st.floats(-720, 720)


def grey(*shape, seed=0):
    return torch.randint(
        0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8
    )


def slow_rotate(image, degrees):
    """Rotate one image [h, w] pixel by pixel in double precision."""
    height, width = image.shape
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    out = torch.zeros(height, width, dtype=torch.float64)
    for row in range(height):
        for column in range(width):
            x, y = column - (width - 1) / 2, row - (height - 1) / 2
            from_x = x * cos - y * sin + (width - 1) / 2
            from_y = x * sin + y * cos + (height - 1) / 2
            for r in (math.floor(from_y), math.floor(from_y) + 1):
                for c in (math.floor(from_x), math.floor(from_x) + 1):
                    if 0 <= r < height and 0 <= c < width:
                        weight = (1 - abs(from_y - r)) * (1 - abs(from_x - c))
                        out[row, column] += weight * image[r, c].item()
    return out


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("quarters", range(-5, 6))
def test_right_angles_are_exact(quarters, dtype):
    images = grey(3, 2, 5, 5).to(dtype)
    rotated = rotate(images, 90.0 * quarters)
    assert rotated.dtype == dtype
    assert rotated.is_contiguous()
    assert torch.equal(rotated, torch.rot90(images, quarters, dims=(-2, -1)))


def test_a_quarter_is_counter_clockwise():
    images = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    assert rotate(images, 90).tolist() == [[[[2, 4], [1, 3]]]]


def test_four_quarters_and_a_full_turn_are_the_identity():
    images = grey(4, 3, 7, 7)
    turned = images
    for _ in range(4):
        turned = rotate(turned, 90)
    assert torch.equal(turned, images)
    for degrees in (0, 360, -360, 720.0):
        assert torch.equal(rotate(images, degrees), images)
        assert torch.equal(rotate(images[..., :4], degrees), images[..., :4])


def test_the_result_is_a_copy():
    images = grey(1, 1, 3, 3)
    before = images.clone()
    for degrees in (0, 15, 180):
        rotate(images, degrees).zero_()
    assert torch.equal(images, before)


@pytest.mark.parametrize("degrees", [15, 45, -15, 75, 90.0001, 200])
@pytest.mark.parametrize("shape", [(3, 3), (5, 5), (4, 4), (3, 5), (6, 2)])
def test_agrees_with_the_plain_loop(shape, degrees):
    images = grey(2, 2, *shape)
    floats = images.float() / 255
    for n in range(2):
        for channel in range(2):
            expected = slow_rotate(images[n, channel], degrees)
            got = rotate(images, degrees)[n, channel]
            assert got.dtype == torch.uint8
            assert (got.double() - expected).abs().max() <= 0.5 + 1e-3  # rounded, not cut off
            got = rotate(floats, degrees)[n, channel]
            torch.testing.assert_close(got.double(), expected / 255, rtol=0, atol=1e-5)


def test_a_known_picture_at_45_degrees():
    image = torch.zeros(1, 1, 3, 3)
    image[0, 0, 1, 2] = 1.0  # to the right of the centre: moves to the upper right corner
    # The corner reads the input at (sqrt 2, 0) from the centre, so 1 - (sqrt 2 - 1) of the pixel.
    rotated = rotate(image, 45)[0, 0]
    assert rotated[0, 2].item() == pytest.approx(2 - math.sqrt(2), abs=1e-6)
    assert rotated[2, 0].item() == rotated[2, 2].item() == rotated[0, 0].item() == 0


@pytest.mark.parametrize("degrees", [90, -90, 270])
def test_a_quarter_of_an_oblong_stays_on_its_canvas(degrees):
    images = grey(1, 1, 3, 5)  # both sides odd: the centre column becomes the centre row, exactly
    rotated = rotate(images, degrees)
    assert rotated.shape == images.shape
    square = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    square[..., 1:4, :] = images
    assert torch.equal(rotated, rotate(square, degrees)[..., 1:4, :])


@settings(deadline=None, max_examples=60)
@given(degrees=ANGLES, a=st.floats(-3, 3), b=st.floats(-3, 3), seed=st.integers(0, 1000))
def test_linear(degrees, a, b, seed):
    x, y = torch.rand(2, 2, 1, 6, 5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        rotate(a * x + b * y, degrees),
        a * rotate(x, degrees) + b * rotate(y, degrees),
        rtol=0,
        atol=1e-5,
    )


@settings(deadline=None, max_examples=60)
@given(degrees=ANGLES, seed=st.integers(0, 1000))
def test_commutes_with_a_quarter_turn_and_keeps_the_range(degrees, seed):
    images = grey(2, 1, 6, 6, seed=seed)
    one, other = rotate(rotate(images, 90), degrees), rotate(rotate(images, degrees), 90)
    assert one.shape == images.shape
    assert one.dtype == torch.uint8
    assert (one.int() - other.int()).abs().max() <= 1
    assert one.max() <= images.max()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_chunks_do_not_show(monkeypatch, dtype):
    images = grey(11, 2, 6, 6).to(dtype)
    whole = rotate(images, 30)
    for chunk in (1, 3 * 72, 11 * 72):
        monkeypatch.setattr(transforms, "_CHUNK", chunk)
        assert torch.equal(rotate(images, 30), whole)
    assert rotate(images[:0], 30).shape == (0, 2, 6, 6)


# Shrinking


def source(x, augment=None):
    y = torch.arange(len(x)) % 2
    return Source(
        Samples(x, y, scale=1 / 255, augment=augment), Samples(x[:2], y[:2], scale=1 / 255), 2
    )


def test_a_pixel_is_the_mean_of_its_block_rounded_as_it_is_stored():
    x = torch.tensor([[[[0, 2, 9], [4, 7, 9], [9, 9, 9]]]], dtype=torch.uint8).repeat(4, 1, 1, 1)
    small = shrink(source(x), 2).train.x
    assert small.dtype == torch.uint8
    assert small.tolist() == [[[[3]]]] * 4  # 13 / 4; what does not fill a block is cut off
    assert shrink(source(x.float()), 2).train.x.flatten().tolist() == [3.25] * 4


def test_crops_shrink_with_the_images():
    x = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    assert shrink(source(x, Augment(4, True)), 4).train.augment == Augment(1, True)
    assert shrink(source(x), 4).test.x.shape == (2, 3, 8, 8)


def test_one_leaves_everything_as_it_is_and_too_much_is_refused():
    x = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    same = source(x)
    assert shrink(same, 1) is same
    assert "data.shrink = 9" in refusal(shrink, source(x), 9)
    assert "data.shrink = 2" in refusal(shrink, source(torch.zeros(4, 5)), 2)
    assert data.load(DataOptions(name="digits", clients=3, partition="iid", shrink=2), 0).shape == (
        1,
        4,
        4,
    )
