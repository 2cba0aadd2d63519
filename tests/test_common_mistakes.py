"""What users hear when they do what users often do."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fedbr
from fedbr.cli.app import call
from fedbr.data.readers import to_eight_bits
from fedbr.util.errors import RunError

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
LABELS = np.arange(60) % 3


@pytest.fixture(scope="module")
def trained() -> fedbr.FedModel:
    federation = fedbr.Federation.from_arrays(IMAGES, LABELS, IMAGES, LABELS, clients=3)
    return fedbr.train(federation, "cnn", rounds=1, local_steps=1, width=0.1).model


def test_a_model_predicts_what_it_was_trained_on_and_refuses_the_rest(
    trained: fedbr.FedModel,
) -> None:
    same = trained.predict(IMAGES.astype(np.float32) / 255)
    assert torch.equal(trained.predict(IMAGES), same)
    for wrong, message in (
        (IMAGES.astype(np.int64), r"type torch\.int64; expected bytes"),
        (
            IMAGES[0],
            r"shape \(3, 8, 8\); expected \(samples, 3, 8, 8\); for one sample, x\[None\]",
        ),
        (IMAGES.transpose(0, 2, 3, 1), r"channels first"),
        (IMAGES[:, :1], r"shape \(60, 1, 8, 8\)"),
    ):
        with pytest.raises(fedbr.InputError, match=message):
            trained.predict(wrong)


def test_what_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(fedbr.InputError, match=r"not a model\.safetensors, .* \(a folder\)"):
        fedbr.load_model(tmp_path)
    line = [
        "run",
        "--methods",
        "fedavg",
        "--set",
        "train.rounds=1",
        "model.name=mlp",
        "--out",
        str(tmp_path / "o"),
    ]
    assert call(line) == 0
    with pytest.raises(fedbr.InputError, match="it does not say of what model"):
        fedbr.load_model(tmp_path / "o/runs/FedAvg-0/checkpoint.safetensors")
    model = fedbr.load_model(tmp_path / "o/runs/FedAvg-0/model.safetensors")
    with pytest.raises(fedbr.InputError, match=r"expected \(samples, 1, 8, 8\)"):
        model.predict(np.zeros((2, 64), dtype=np.float32))


MODELS: list[tuple[Any, str]] = [
    (
        fedbr.FedModel(nn.Flatten(), 16, 3),
        r"features of 2 samples have shape \(2, 192\); expected \(2, 16\) \(num_feat",
    ),
    (
        fedbr.FedModel(nn.Sequential(nn.Flatten(), nn.Linear(192, 8)), 8, 7),
        r"logits .* \(2, 7\); expected \(2, 3\)",
    ),
    (nn.Sequential(nn.Flatten(), nn.Linear(100, 3)), r"shape \(2, 192\); expected \(2, 100\)"),
    (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(6, 3)),
        r"cannot run on samples of shape \(3, 8, 8\) \(Given groups",
    ),
    (
        nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.ReLU()),
        "needs a feature extractor and a classifier",
    ),
    (None, "NoneType where a module is expected"),
]


@pytest.mark.parametrize(("model", "said"), MODELS, ids=[said[:20] for _, said in MODELS])
def test_models_that_do_not_fit(model: Any, said: str) -> None:
    federation = fedbr.Federation.from_arrays(IMAGES, LABELS, IMAGES, LABELS, clients=3)
    with pytest.raises(fedbr.InputError, match=said):
        fedbr.train(federation, model, rounds=1)


def test_a_sequential_model_is_its_last_layer_on_the_others() -> None:
    federation = fedbr.Federation.from_arrays(IMAGES, LABELS, IMAGES, LABELS, clients=3)
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 3)]
    models = [nn.Sequential(*layers), fedbr.FedModel(nn.Sequential(*layers[:3]), 8, 3, layers[3])]
    runs = [
        fedbr.train(federation, model, [fedbr.FedBR()], rounds=1, local_steps=2) for model in models
    ]
    assert all(map(torch.equal, *(run.model.state_dict().values() for run in runs)))


class Remembers(fedbr.Method):
    name = "remembers"

    def begin(self, ctx: fedbr.ClientContext) -> None:
        self.count = 3


def test_a_method_that_remembers_by_itself_hears_where_to_put_it() -> None:
    federation = fedbr.Federation.from_arrays(IMAGES, LABELS, IMAGES, LABELS, clients=3)
    with pytest.raises(
        RunError, match=r"in begin: AttributeError: Remembers\.count cannot be set: .* ctx\.state"
    ):
        fedbr.train(federation, "mlp", [Remembers()], rounds=1)


RECIPES = {
    "[compare]\nlabel = 'a'\nmethods = []": "write [[compare]], once for every variant",
    "[[compare]]\nlabel = 'a'\nmethods = 'fedbr'": "compare.methods = 'fedbr': expected a list",
    "[[compare]]\nmethods = ['fedbr']": "expected a label for every variant",
    "name = 'a b'\n[[compare]]\nlabel = 'a'\nmethods = []": "name = 'a b': expected letters",
    "[[compare]]\nlabel = 'a'\nmethods = ['FedBR']": "did you mean 'fedbr'?",
    "[train]\nlearning_rate = 1.0\n[[compare]]\nlabel = 'a'\nmethods = []": "did you mean 'lr'?",
    "[train]\nlocal_epochs = 1\n[[compare]]\nlabel = 'a'\nmethods = []": (
        "did you mean 'local_steps'?"
    ),
}


@pytest.mark.parametrize("text", RECIPES)
def test_recipes_with_a_slip(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text(text)
    assert call(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o")]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert RECIPES[text] in said


def test_commas_between_methods_and_a_mark_before_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "--methods", "fedbr,fedavg"]) == 2
    assert "--methods fedbr fedavg" in capsys.readouterr().err
    text = "[model]\nname = 'mlp'\nhidden = 9\n[train]\nrounds = 1\n"
    text += "[[compare]]\nlabel = 'a'\nmethods = []"
    (tmp_path / "r.toml").write_text(text, encoding="utf-8-sig")  # as editors on Windows write it
    assert call(["run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "o")]) == 0


def test_labels_that_look_wrong_are_told() -> None:
    with pytest.warns(
        RuntimeWarning, match=r"5 of 8 classes without a training sample \(0, 1, 2, 3, 4\)"
    ):
        fedbr.Federation.from_arrays(IMAGES, LABELS + 5, IMAGES, LABELS + 5, clients=3)
    with pytest.warns(
        RuntimeWarning, match="60 classes among 60 training samples; are these quantities"
    ):
        fedbr.Federation.from_arrays(
            IMAGES, np.arange(60), IMAGES, np.arange(60), clients=3, partition="iid"
        )


def test_photos_are_upright() -> None:
    """A camera that was held on its side says so in the file; every viewer turns the picture."""
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    pixels[0] = 255  # the upper edge of what the sensor saw
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png", exif=exif)
    with Image.open(file) as image:
        turned = np.asarray(to_eight_bits(image))
    assert turned.shape == (6, 4, 3)
    assert turned[:, -1].min() == 255
    assert turned[:, :-1].max() == 0
