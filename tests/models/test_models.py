"""The paper's architectures, counted by hand."""

from pathlib import Path

import pytest
import torch

import fedbr
from fedbr import models


def test_the_papers_cnn() -> None:
    model = models.build("cnn", {}, (1, 28, 28), 10)
    convolutions = 9 * (1 * 64 + 64 * 128 + 128 * 128 + 128 * 128) + 64 + 3 * 128
    norms = 2 * (64 + 3 * 128)
    assert sum(p.numel() for p in model.parameters()) == convolutions + norms + 128 * 10 + 10
    assert model.num_features == 128
    kinds = [type(m).__name__ for m in model.encoder]
    assert kinds == ["Conv2d", "ReLU", "GroupNorm"] * 4 + ["AdaptiveAvgPool2d", "Flatten"]
    assert [m.stride for m in model.encoder if isinstance(m, torch.nn.Conv2d)] == [
        (1, 1),
        (2, 2),
        (1, 1),
        (1, 1),
    ]
    assert all(m.num_groups == 8 for m in model.encoder if isinstance(m, torch.nn.GroupNorm))


@pytest.mark.parametrize("width", [0.01, 0.1, 0.25, 0.33, 2])
def test_any_width(width: float) -> None:
    models.check(models.build("cnn", {"width": width}, (3, 8, 8), 5), (3, 8, 8), 5)


def test_the_mlp() -> None:
    model = models.build("mlp", {"hidden": [30, 20]}, (4, 5), 3)
    assert sum(p.numel() for p in model.parameters()) == 20 * 30 + 30 + 30 * 20 + 20 + 20 * 3 + 3
    assert model(torch.zeros(2, 4, 5)).features.shape == (2, 20)


def test_fingerprints_tell_architectures_apart() -> None:
    prints = [
        models.fingerprint(models.build(name, options, (1, 8, 8), 10))
        for name, options in (("cnn", {}), ("cnn", {}), ("cnn", {"width": 0.5}), ("mlp", {}))
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_factories_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_factory.py").write_text(
        "import fedbr, torch\n"
        "def make(shape, num_classes, width):\n"
        "    return fedbr.FedModel(torch.nn.Linear(shape[0], width), width, num_classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = models.build("my_factory:make", {"width": 3}, (6,), 4)
    models.check(model, (6,), 4)
    with pytest.raises(fedbr.InputError, match="my_factory:mak"):
        models.build("my_factory:mak", {}, (6,), 4)
