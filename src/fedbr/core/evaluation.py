"""Testing a model: cut into pieces that anybody may count, and whose counts only have to be added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .model import FedModel
from .samples import Samples
from .wire import State

BATCH = 512  # samples that go through the model together; the same for every number of workers


class Piece(NamedTuple):
    """Some samples of one test set."""

    test: int
    start: int
    stop: int
    pairs: bool = False  # count every pair of truth and guess, not only the right ones


Exam = tuple[State, list[Piece]]  # a model, and what it is asked


def pieces(tests: Sequence[Samples], wanted: Iterable[int], pairs: bool = False) -> list[Piece]:
    """Cut test sets into batches."""
    return [
        Piece(t, start, min(start + BATCH, len(tests[t])), pairs)
        for t in wanted
        for start in range(0, len(tests[t]), BATCH)
    ]


def count(
    model: FedModel,
    params: State,
    tests: Sequence[Samples],
    asked: Sequence[Piece],
    dtype: torch.dtype,
) -> Tensor:
    """Count a model's right answers, by class, for each piece: [pieces, classes]; of pairs:
    [pieces, classes ** 2].
    """
    model.set_weights(params)
    device, classes = next(model.parameters()).device, model.num_classes
    pairs = bool(asked) and asked[0].pairs
    found = torch.zeros(
        len(asked), classes**2 if pairs else classes, dtype=torch.int64, device=device
    )
    for row, (t, start, stop, _) in zip(found, asked, strict=True):
        truth = tests[t].y[start:stop]
        guesses = model.predict(tests[t].see(slice(start, stop), dtype))
        if pairs:
            row.scatter_add_(0, truth * classes + guesses, torch.ones_like(truth))
        else:
            row.scatter_add_(0, truth, (guesses == truth).long())  # bincount would wait for values
    return found.cpu()
