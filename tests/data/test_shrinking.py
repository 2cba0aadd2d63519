"""Images made smaller by means of blocks."""

import torch
from making import refusal

from fedbr import data
from fedbr.core.samples import Augment, Samples
from fedbr.data import DataOptions
from fedbr.data.federation import Source
from fedbr.data.shrinking import shrunk


def source(x, augment=None):
    y = torch.arange(len(x)) % 2
    return Source(
        Samples(x, y, scale=1 / 255, augment=augment), Samples(x[:2], y[:2], scale=1 / 255), 2
    )


def test_a_pixel_is_the_mean_of_its_block_rounded_as_it_is_stored():
    x = torch.tensor([[[[0, 2, 9], [4, 7, 9], [9, 9, 9]]]], dtype=torch.uint8).repeat(4, 1, 1, 1)
    small = shrunk(source(x), 2).train.x
    assert small.dtype == torch.uint8
    assert small.tolist() == [[[[3]]]] * 4  # 13 / 4; what does not fill a block is cut off
    assert shrunk(source(x.float()), 2).train.x.flatten().tolist() == [3.25] * 4


def test_crops_shrink_with_the_images():
    x = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    assert shrunk(source(x, Augment(4, True)), 4).train.augment == Augment(1, True)
    assert shrunk(source(x), 4).test.x.shape == (2, 3, 8, 8)


def test_one_leaves_everything_as_it_is_and_too_much_is_refused():
    x = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    same = source(x)
    assert shrunk(same, 1) is same
    assert "data.shrink = 9" in refusal(shrunk, source(x), 9)
    assert "data.shrink = 2" in refusal(shrunk, source(torch.zeros(4, 5)), 2)
    assert data.load(DataOptions(name="digits", clients=3, partition="iid", shrink=2), 0).shape == (
        1,
        4,
        4,
    )
