"""Bytes round-trip, are counted, and share what is shared."""

import torch

from fedbr.core.wire import nbytes, pack, unpack


def test_payloads_round_trip_to_the_bit() -> None:
    base = torch.randn(3, 4)
    payload = {
        "model": {
            "a": torch.randn(2, 3),
            "view": base[1],
            "transposed": base.T,
            "count": torch.tensor(7),
        },
        "shared/fedbr": {
            "x": torch.randn(2, 1, 3, 3, dtype=torch.float64),
            "empty": torch.zeros(0, 5),
        },
        "nothing": {},
    }
    header, back = unpack(pack({"round": 3, "who": [1, 2]}, {"task": payload, "none": {}}))
    assert header == {"round": 3, "who": [1, 2]}
    assert back["none"] == {}
    assert back["task"].keys() == payload.keys()
    for section, state in payload.items():
        assert back["task"][section].keys() == state.keys()
        for key, tensor in state.items():
            assert back["task"][section][key].dtype == tensor.dtype
            assert torch.equal(back["task"][section][key], tensor)


def test_a_tensor_that_occurs_often_is_written_once() -> None:
    big = torch.randn(1000)
    once = len(pack({}, {"0": {"s": {"x": big}}}))
    often = len(pack({}, {str(i): {"s": {"x": big}} for i in range(50)}))
    assert often < once + 50 * 60


def test_bytes_are_those_of_the_tensors() -> None:
    assert (
        nbytes({"a": {"x": torch.zeros(3, dtype=torch.float64)}, "b": {"y": torch.zeros(2, 2)}})
        == 24 + 16
    )
