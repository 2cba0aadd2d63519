"""How many clients train together is a matter of what a step costs, which is counted as torch
counts it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fedbr
from fedbr import models
from fedbr.core.client import blocks
from fedbr.core.fast.block_size import choose_block_size, step_cost
from fedbr.core.spec import Spec


def spec(shape: tuple[int, ...], clients: int = 10, batch: int = 32, **more: Any) -> Spec:
    return Spec(shape, 10, clients, clients, 5, batch, 0.1, **more)


@pytest.mark.parametrize("name", models.MODELS)
def test_costs_are_those_of_torchs_own_counter(name: str) -> None:
    shape = (3, 32, 32)
    model = models.build(name, {"width": 0.25}, shape, 10)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, *shape))
    assert step_cost(model, spec(shape)) == 3 * 32 * counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("name", "options", "shape", "clients", "size"),
    [
        ("mlp", {}, (784,), 10, 10),
        ("mlp", {}, (784,), 20, 10),
        ("mlp", {"hidden": [256]}, (784,), 10, 5),
        ("mlp", {}, (784,), 100, 13),
        ("mlp", {}, (64,), 100, 25),
        ("mlp", {}, (784,), 1000, 39),
        ("mlp", {}, (784,), 4, 4),
        ("mlp", {}, (64,), 10, 10),
        ("mlp", {"hidden": [2]}, (784,), 1000, 100),
        ("mlp", {"hidden": [330, 330]}, (784,), 10, 5),
        ("mlp", {"hidden": [400, 400]}, (784,), 10, 1),
        ("mlp", {"hidden": [1000]}, (3072,), 10, 1),
        ("cnn", {"width": 0.25}, (1, 8, 8), 10, 5),
        ("cnn", {"width": 0.25}, (1, 8, 8), 100, 13),
        ("cnn", {"width": 1.0}, (1, 28, 28), 10, 1),
        ("vgg11", {"width": 0.125}, (3, 32, 32), 10, 1),
    ],
)
def test_small_models_train_together(
    name: str, options: dict[str, Any], shape: tuple[int, ...], clients: int, size: int
) -> None:
    model = models.build(name, options, shape, 10)
    assert choose_block_size(model, spec(shape, clients), "auto") == size
    assert choose_block_size(model, spec(shape, clients), 3) == 3


def test_a_heavy_module_of_a_method_leaves_work_for_a_second_worker() -> None:
    """FedBR's projector costs more than the small model that it judges."""
    model, facts = models.build("mlp", {}, (784,), 10), spec((784,))
    assert choose_block_size(model, facts, "auto") == 10
    projector = fedbr.FedBR().extra_module(model, facts)
    assert projector is not None
    model.extras["fedbr"] = projector
    assert choose_block_size(model, facts, "auto") == 5


class Hidden(nn.Module):
    """A layer that draws, where no rule looks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, training=self.training)


def test_a_model_that_cannot_is_said_to_in_words() -> None:
    model = fedbr.FedModel(nn.Sequential(nn.Linear(6, 8), Hidden()), 8, 10)
    with pytest.warns(
        RuntimeWarning,
        match=r"^clients train one at a time: a layer draws random numbers \(dropout\)$",
    ):
        assert choose_block_size(model, spec((6,)), "auto") == 1


@pytest.mark.parametrize(
    ("clients", "size", "sizes"),
    [
        (10, 5, [5, 5]),
        (11, 10, [5, 6]),
        (10, 4, [3, 3, 4]),
        (3, 5, [3]),
        (7, 1, [1] * 7),
        (1, 1, [1]),
    ],
)
def test_blocks_share_the_clients_evenly(clients: int, size: int, sizes: list[int]) -> None:
    """Nobody is left over to train alone, which would cost more than a share; order is kept."""
    groups = blocks([{} for _ in range(clients)], size)
    assert [len(group) for group in groups] == sizes
    assert [i for group in groups for i in group] == list(range(clients))


def test_only_clients_with_the_same_memory_train_together() -> None:
    states = [{"m": {"w": torch.zeros(2 + client % 2)}} for client in range(6)]
    assert blocks(states, 2) == [[0], [2, 4], [1], [3, 5]]
