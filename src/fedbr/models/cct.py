"""CCT (Hassani et al., 2021): a compact transformer, the paper's model of CIFAR100."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.fast.stacked import Residual
from ..core.model import FedModel
from .base import ModelSpec, he_normal


class CCT(ModelSpec):
    """CCT-7/3x1: tokens from one 3x3 convolution, transformer layers, sequence pooling.

    As the authors' code builds it for 32x32 images, with two peculiarities of it: queries, keys and
    values have no bias, and the second norm of a layer stands on the stream itself, not on a
    branch. There is no stochastic depth and by default no dropout (theirs: 0.1, and 0.1 of the
    attention): clients that draw train one at a time.

    Parameters of 32x32 RGB images: tokenizer 6,912, positions 256 * 256, layers 7 * 526,336, last
    norm 512, pooling 257, and the classifier; in all 3,760,139 with 10 classes and 3,783,269 with
    100.
    """

    name: ClassVar[str] = "cct"
    paper: ClassVar[str] = (
        "Hassani et al. Escaping the Big Data Paradigm with Compact Transformers, 2021"
    )

    layers: int = Field(7, ge=1, le=64, description="of the transformer")
    heads: int = Field(4, ge=1, le=64, description="of every layer's attention")
    width: float = Field(
        1.0, gt=0, le=16, description="multiplies the 256 features of a token; rounded to heads"
    )
    mlp_ratio: float = Field(
        2.0, gt=0, le=16, description="hidden features of a layer's perceptron, per feature"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="of tokens, attention and perceptrons")

    def build(self, shape: tuple[int, ...], num_classes: int) -> FedModel:
        channels, height, width = self.image(shape)
        dim = self.heads * max(1, round(256 * self.width / self.heads))
        tokens = ((height + 1) // 2) * ((width + 1) // 2)  # the pool halves and rounds up
        layers: list[nn.Module] = [
            nn.Conv2d(channels, dim, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
            Tokens(tokens, dim),
            *self._dropout(),
        ]
        for _ in range(self.layers):
            layers += self._layer(dim)
        layers += [nn.LayerNorm(dim), SequencePool(dim)]
        model = he_normal(FedModel(nn.Sequential(*layers), dim, num_classes))
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        return model

    def _layer(self, dim: int) -> list[nn.Module]:
        hidden = max(1, round(dim * self.mlp_ratio))
        attention = nn.Sequential(
            nn.LayerNorm(dim), Attention(dim, self.heads, self.dropout), *self._dropout()
        )
        perceptron = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.GELU(),
            *self._dropout(),
            nn.Linear(hidden, dim),
            *self._dropout(),
        )
        return [Residual(attention), nn.LayerNorm(dim), Residual(perceptron)]

    def _dropout(self) -> list[nn.Module]:
        return [nn.Dropout(self.dropout)] if self.dropout else []


class Tokens(nn.Module):
    """Every pixel becomes a token, and learns where it is: [B, dim, H, W] -> [B, H * W, dim]."""

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(nn.init.trunc_normal_(torch.empty(tokens, dim), std=0.2))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(-2).mT + self.positions


class Attention(nn.Module):
    """Self-attention, in steps that have second derivatives and run for several clients."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2)
        q, k, v = parts.unbind(-3)  # of [B, heads, 3, N, dim / heads]
        weights = self.dropout((self.scale * q @ k.mT).softmax(dim=-1))
        out: Tensor = self.out((weights @ v).transpose(-3, -2).flatten(-2))
        return out

    def extra_repr(self) -> str:
        return f"heads={self.heads}"  # no weight shows it, and the fingerprint must


class SequencePool(nn.Module):
    """Average the tokens, each by how much it is worth: [B, N, dim] -> [B, dim]."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.worth = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        shares: Tensor = self.worth(x).softmax(dim=-2)
        return (shares.mT @ x).squeeze(-2)
