"""Train a model of your own: any feature extractor, wrapped as a FedModel."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import fedbr


class Residual(nn.Module):
    """A block that the fast rules do not know; it runs all the same."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


encoder = nn.Sequential(
    nn.Conv2d(1, 16, 3, 2, 1), Residual(16), Residual(16), nn.AdaptiveAvgPool2d(1), nn.Flatten()
)
model = fedbr.FedModel(encoder, num_features=16, num_classes=10)

digits = load_digits()
x = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
y = torch.tensor(digits.target)
federation = fedbr.Federation.from_arrays(
    x[:1400], y[:1400], x[1400:], y[1400:], clients=5, partition="iid"
)

run = fedbr.train(
    federation, model, methods=[fedbr.FedBR(lam=0.1)], rounds=8, local_steps=40, lr=0.05
)
print("accuracy by round:", [round(a, 3) for a in run.accuracy])
print("prediction of the first test samples:", run.model.predict(x[1400:1410]).tolist())
