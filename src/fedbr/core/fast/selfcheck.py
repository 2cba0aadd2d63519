"""Can clients of this model train together? Two of them are tried against the plain module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..rng import layer_streams
from ..wire import State
from .stacked import plan, run, run_alone


def find_obstacle(module: nn.Module, x: Tensor) -> str | None:
    """Say why clients cannot train together; None if they can.

    Outputs, gradients and buffers of two clients together are compared with those that the plain
    module gives for each alone.

    Args:
        module: in training mode; what it remembers may change.
        x: some samples, [B, ...].
    """
    try:
        if _agree(module, x):
            return None
    except Exception as error:  # what a layer cannot do under vmap the plain module may still do
        if "randomness error mode" in str(error):
            return "a layer draws random numbers (dropout)"
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return (
        "two clients together do not give what each gives alone (something in the model draws, "
        "counts or branches)"
    )


def _agree(module: nn.Module, x: Tensor) -> bool:
    """Compare two clients together with each alone."""
    weights = _weights_of_two(module)
    trained = [weights[key] for key, p in module.named_parameters() if p.requires_grad]
    for weight in trained:
        weight.requires_grad_()
    singles = [{key: value[i : i + 1].clone() for key, value in weights.items()} for i in (0, 1)]
    with layer_streams(0, 0, [0, 1], x.device):
        together = run(plan(module, weights, "", 2), torch.stack([x, x]))
    outputs = []
    for client, single in enumerate(singles):
        with layer_streams(0, 0, [client], x.device):
            outputs.append(run_alone(module, single, x[None]))
    alone = torch.cat(outputs)
    # What is alone runs on copies made under autograd: both gradients are by the same weights.
    gradients = [_gradients(out, trained) for out in (together, alone)]
    if not (_are_close([together], [alone]) and _are_close(*gradients)):
        return False
    for key, _ in module.named_buffers():
        if not _is_same(weights[key], torch.cat([single[key] for single in singles])):
            return False
    return True


def _weights_of_two(module: nn.Module) -> State:
    """Return the weights of two clients, [2, ...], which differ."""
    weights = {}
    for key, value in (*module.named_parameters(), *module.named_buffers()):
        first = value.detach()
        second = first * 1.5 + 0.1 if first.is_floating_point() else first
        weights[key] = torch.stack([first, second])
    return weights


def _gradients(out: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    if not weights:
        return ()
    # A sum of squares would not do: after a norm layer it is constant, and its gradient is all
    # rounding.
    factors = torch.linspace(0.5, 7.5, out.numel(), dtype=out.dtype).sin().view_as(out)
    loss = (out * factors).sum()
    return torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)


def _are_close(values: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Compare to float32 precision, relative to the largest of all."""
    pairs = list(zip(values, others, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return False
    scale = max((float(b.detach().abs().max()) for b in others if b.numel()), default=0.0)
    most = 1e-3 * scale + 1e-6
    return all(bool(((a - b).abs() <= most).all()) for a, b in pairs)


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Compare what modules remember, which need not be numbers."""
    if a.is_floating_point() and bool(b.isfinite().all()):
        return _are_close([a], [b])
    return torch.equal(a, b)
