"""Clients together give what each gives alone, for every layer that has a rule and for those that
have none.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

from fedbr.core.fast.selfcheck import find_obstacle
from fedbr.core.fast.stacked import Residual, plan, run


class Block(nn.Module):
    """A layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


class Half(Residual):
    """Its own forward: not to be run by its parts."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


IMAGES = (3, 6, 6)
ARCHITECTURES = {
    "linear": (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), (5,)),
    "linear without bias": (nn.Sequential(nn.Linear(5, 4, bias=False), nn.GELU()), (5,)),
    "linear on sequences": (nn.Sequential(nn.Linear(5, 4), nn.Flatten(), nn.Linear(12, 2)), (3, 5)),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.ReLU(),
            nn.GroupNorm(4, 8),
            nn.Conv2d(8, 8, 3, padding="same", groups=2),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 6, 1, bias=False),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 2),
        ),
        IMAGES,
    ),
    "reflecting": (
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.AvgPool2d(2)),
        IMAGES,
    ),
    "group norm without weights": (
        nn.Sequential(nn.GroupNorm(3, 3, affine=False), nn.Flatten()),
        IMAGES,
    ),
    "group norm on vectors": (nn.Sequential(nn.Linear(5, 8), nn.GroupNorm(2, 8)), (5,)),
    "layer norm": (nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), Block()), (5,)),
    "nested": (
        nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 4, 3)), nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
        ),
        IMAGES,
    ),
    "odd flatten": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.Linear(16, 2)), IMAGES),
    "residual": (
        nn.Sequential(
            Residual(nn.Conv2d(3, 3, 3, padding=1)),
            nn.ReLU(),
            Residual(
                nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)),
                nn.Conv2d(3, 4, 3, bias=False),
            ),
            nn.Flatten(),
            Residual(nn.Linear(64, 2), nn.Sequential(nn.Linear(64, 2), nn.Tanh())),
        ),
        IMAGES,
    ),
    "residual, only the body on images": (Residual(nn.Conv2d(3, 3, 1), nn.Softmax(2)), IMAGES),
    "residual, only the shortcut on images": (Residual(nn.Softmax(2), nn.Conv2d(3, 3, 1)), IMAGES),
    "residual in residual": (
        nn.Sequential(nn.Linear(5, 5), Residual(nn.Sequential(Residual(Block())))),
        (5,),
    ),
    "residual with its own forward": (
        nn.Sequential(Half(nn.Conv2d(3, 3, 1)), nn.AvgPool2d(2)),
        IMAGES,
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("clients", [1, 3])
def test_together_is_as_alone(name: str, clients: int) -> None:
    module, shape = ARCHITECTURES[name]
    module = module.double()
    torch.manual_seed(0)
    weights = {
        k: torch.randn(clients, *v.shape, dtype=v.dtype) for k, v in module.state_dict().items()
    }
    wanted = [w.requires_grad_() for w in weights.values()]
    x = torch.randn(clients, 4, *shape, dtype=torch.float64)
    together = run(plan(module, weights, "", clients), x)
    alone = torch.stack(
        [
            torch.func.functional_call(module, {k: v[i] for k, v in weights.items()}, (x[i],))
            for i in range(clients)
        ]
    )
    assert torch.allclose(together, alone, rtol=1e-10, atol=1e-10)
    for a, b in zip(
        torch.autograd.grad(together.square().sum(), wanted, retain_graph=True) if wanted else [],
        torch.autograd.grad(alone.square().sum(), wanted) if wanted else [],
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_obstacle_where_there_is_none(name: str) -> None:
    module, shape = ARCHITECTURES[name]
    assert find_obstacle(module.float(), torch.randn(3, *shape)) is None


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(5, 5), nn.AlphaDropout(0.5)),
        nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, momentum=None)),
        Branch(),
    ],
)
def test_obstacles_are_seen(module: nn.Module) -> None:
    reason = find_obstacle(module.train(), torch.randn(3, 5))
    assert reason
    assert "\n" not in reason


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(5, 5), nn.Linear(5, 5)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.back(self.there(x))
        return out


class Recurrent(nn.Module):
    """A module that keeps a list of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.GRU(5, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inside(x)[1][-1]
        return out


ALONE = {
    "tied weights": (Tied(), (6, 5)),
    "a list of weights": (Recurrent(), (6, 3, 5)),
    "batch statistics": (
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)),
        (6, 5),
    ),
    "one module twice": (nn.Sequential(*[nn.Linear(5, 5)] * 2), (6, 5)),
}


@pytest.mark.parametrize("name", ALONE)
def test_one_client_runs_the_module_at_its_own_weights(name: str) -> None:
    module, shape = ALONE[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator)
    state = {
        k: v.detach().clone() for k, v in (*module.named_parameters(), *module.named_buffers())
    }
    with torch.no_grad():
        weights = {
            k: v * 1.5 + 0.1 if v.is_floating_point() else v.clone() for k, v in state.items()
        }
    twin = copy.deepcopy(module)
    twin.load_state_dict(weights, strict=False)  # tied weights have one key here
    expected = twin(x)
    wanted = torch.autograd.grad(expected.square().sum(), list(twin.parameters()))

    stacked = {k: v[None].clone() for k, v in weights.items()}
    trained = [stacked[k].requires_grad_() for k, _ in module.named_parameters()]
    out = run(plan(module, stacked, "", 1), x[None])[0]
    assert torch.equal(out, expected)
    result = torch.autograd.grad(out.square().sum(), trained)
    assert all(torch.equal(a[0], b) for a, b in zip(result, wanted, strict=True))
    for key, buffer in twin.named_buffers():  # what it remembers, it remembers for this client
        assert torch.equal(stacked[key][0], buffer)
    for key, tensor in (*module.named_parameters(), *module.named_buffers()):
        assert torch.equal(tensor, state[key])


def test_a_module_that_fails_keeps_its_weights() -> None:
    module = nn.Linear(5, 4)
    before = dict(module.named_parameters())
    with pytest.raises(RuntimeError, match="shapes"):
        run(
            plan(module, {k: v.detach()[None] for k, v in before.items()}, "", 1),
            torch.zeros(1, 2, 3),
        )
    assert all(p is before[k] for k, p in module.named_parameters())
