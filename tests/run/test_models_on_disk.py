"""A trained model comes back from a result folder as it was in training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedbr
from fedbr.recipe import load as config
from fedbr.run.plan import clients_of
from fedbr.run.results import RunResult
from training import train_recipe


def trained(
    tmp_path: Path, methods: list[str], **train: object
) -> tuple[Path, RunResult, fedbr.Federation]:
    recipe = config.parse(
        {
            "data": {"name": "digits", "clients": 3, "partition": "iid"},
            "model": {"name": "mlp", "hidden": [16]},
            "train": {"rounds": 3, "local_steps": 20, "lr": 0.3, **train},
            "compare": [{"label": "x", "methods": methods}],
        }
    )
    results = train_recipe(recipe, tmp_path / "out")
    clients = clients_of(recipe.data, 0)
    return tmp_path / "out/runs/x-0/model.safetensors", results.runs[0], clients


@pytest.mark.parametrize("methods", [[], ["fedbr"], ["moon"], ["mixup", "dann"]], ids="+".join)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_answers_as_in_the_last_test(tmp_path: Path, methods: list[str], dtype: str) -> None:
    """In bytes, as they are stored, and as the model sees them."""
    path, run, clients = trained(tmp_path, methods, dtype=dtype)
    model, (test,) = fedbr.load_model(path), clients.tests
    assert test.x.dtype == torch.uint8
    for x in (test.x, test.x.numpy(), test.see(slice(None), torch.float32)):
        assert float((model.predict(x) == test.y).double().mean()) == run.accuracy.final
    assert run.accuracy.final > 0.3
    assert not model.training


def test_the_models_that_clients_keep(tmp_path: Path) -> None:
    path, run, clients = trained(tmp_path, ["local"])
    own = [fedbr.load_model(path, client) for client in range(3)]
    (test,) = clients.tests
    scores = [float((model.predict(test.x) == test.y).double().mean()) for model in own]
    assert sum(scores) / 3 == pytest.approx(run.accuracy.final)
    assert len(set(scores)) > 1
    for wrong in (None, 3):
        with pytest.raises(fedbr.InputError, match=rf"^client = {wrong}: .* 0 to 2$"):
            fedbr.load_model(path, wrong)


def test_files_that_are_not_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"something else")
    for path in (tmp_path / "x.safetensors", tmp_path / "nothing", tmp_path):
        with pytest.raises(fedbr.InputError, match=r"not a model\.safetensors"):
            fedbr.load_model(path)
    path, _, _ = trained(tmp_path, [])
    with pytest.raises(fedbr.InputError, match=r"^client = 1: there is one model for all"):
        fedbr.load_model(path, 1)
