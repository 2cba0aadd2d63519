"""Streams are named, independent and the same everywhere."""

import torch

from fedbr.core.rng import stream, torch_stream


def test_a_path_always_gives_the_same_numbers() -> None:
    # Golden: a change here changes every published result.
    assert stream(0, "batches", 1, 2).integers(1000, size=4).tolist() == [341, 846, 834, 848]
    assert (
        stream(0, "batches", 1, 2).integers(1000, size=4).tolist()
        != stream(0, "batches", 12).integers(1000, size=4).tolist()
    )


def test_other_paths_give_other_numbers() -> None:
    paths = [(0,), (1,), (0, "a"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1), (0, "b", 1)]
    first = [stream(*path).integers(2**60) for path in paths]
    assert len(set(first)) == len(paths)


def test_torch_stream_leaves_torch_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with torch_stream(0, "model"):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with torch_stream(0, "model"):
        assert torch.equal(torch.rand(3), inside)
