"""A method of your own in thirty lines: keep the classifier's weights short, and clip what each
client learns.
"""

from typing import ClassVar

import torch
from pydantic import Field
from sklearn.datasets import load_digits

import fedbr


class Clipped(fedbr.Method):
    """Pull the classifier towards zero; scale down gradients whose norm is too large."""

    name: ClassVar[str] = "clipped"

    weight: float = Field(0.01, ge=0, description="strength of the pull")
    max_norm: float = Field(1.0, gt=0, description="largest gradient norm of a client")

    def loss(self, ctx: fedbr.ClientContext, batch: fedbr.Batch, out: fedbr.Output) -> torch.Tensor:
        # What belongs to a client has a leading axis [C, ...]; the loss is one value for each, [C].
        return self.weight * ctx.model.weights["classifier.weight"].square().sum(dim=(1, 2))

    def on_grad(self, ctx: fedbr.ClientContext, params: dict[str, torch.Tensor]) -> None:
        grads = [p.grad for p in params.values() if p.grad is not None]
        squares = [g.flatten(1).square().sum(1) for g in grads]  # of each client
        norm = torch.stack(squares).sum(0).sqrt()
        scale = (self.max_norm / norm).clamp(max=1)
        for g in grads:
            g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))


# Not when it is imported, as by: fedbr run --methods examples.own_method:Clipped
if __name__ == "__main__":
    digits = load_digits()
    x = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    federation = fedbr.Federation.from_arrays(
        x[:1400], y[:1400], x[1400:], y[1400:], clients=10, partition="lda"
    )
    for methods in ([], [Clipped()], [Clipped(max_norm=0.5), fedbr.FedBR(lam=0.1)]):
        run = fedbr.train(federation, "mlp", methods, rounds=5, local_steps=20, lr=0.1)
        names = " + ".join(m.name for m in methods) or "fedavg"
        print(f"{names:<20} accuracy {run.accuracy[-1]:.3f}")
