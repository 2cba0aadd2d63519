"""The numbers of a diagnosis: of one client's model, and their mean over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..core.model import Output
from ..metrics import local
from ..metrics.bias import (
    accuracy,
    centroid_accuracy,
    confusion,
    cosine_shift,
    distribution,
    linear_cka,
    silhouette,
)
from .sample import Known, Probe


def summary(whose: Sequence[Known], probe: Probe, before: Output, after: Sequence[Output]) -> dict[str, Any]:
    """Compare each client's model with the global one; return the mean over clients, and every client's own."""
    rows = [describe(own, probe, before, out) for own, out in zip(whose, after, strict=True)]
    guesses = [guessed(own, probe, out) for own, out in zip(whose, after, strict=True)]
    clients = [{"client": own.client, **row, **some} for own, row, some in zip(whose, rows, guesses, strict=True)]
    return {"mean": local.mean_of(rows), "clients": clients}


def describe(own: Known, probe: Probe, before: Output, after: Output) -> dict[str, float | None]:
    """Return the numbers of one model, for one client's idea of seen and unseen."""
    size = after.logits.shape[1]
    hard = confusion(probe.y, F.one_hot(after.logits.argmax(dim=1), size))
    soft = confusion(probe.y, after.logits.softmax(dim=1))
    unseen = torch.isin(probe.y, torch.tensor(own.unseen, dtype=torch.long))
    seen = torch.isin(probe.y, torch.tensor(own.seen, dtype=torch.long))
    either = seen | unseen
    old, new = before.features, after.features
    return {
        "accuracy": accuracy(hard),
        "accuracy_seen": accuracy(hard, own.seen),
        "accuracy_unseen": accuracy(hard, own.unseen),
        **local.leaning(hard, own.seen, own.unseen),
        **{f"mass_{k[6:]}": v for k, v in local.leaning(soft, own.seen, own.unseen).items() if k[:6] == "share_"},
        "shift": cosine_shift(old, new),
        "shift_seen": cosine_shift(old[seen], new[seen]),
        "shift_unseen": cosine_shift(old[unseen], new[unseen]),
        "cka": linear_cka(old, new),
        "silhouette": silhouette(new[either], unseen[either].long()),
        "centroid_groups": centroid_accuracy(new[either], unseen[either].long()),
        "centroid_classes": centroid_accuracy(new, probe.y),
    }


def guessed(own: Known, probe: Probe, out: Output) -> dict[str, list[float] | None]:
    """Return what a model predicts: shares of the classes, on all samples and on those of unseen classes."""
    table = confusion(probe.y, F.one_hot(out.logits.argmax(dim=1), out.logits.shape[1]))
    shares = {"predicted": distribution(table), "predicted_unseen": distribution(table, own.unseen)}
    return {key: None if value is None else [round(v, 6) for v in value.tolist()] for key, value in shares.items()}


def definitions() -> dict[str, str]:
    """Say in words what each number means."""
    return {
        "samples": "held-out test samples of all test sets together, as many of each class; X1 are those of classes "
        "that the client has seen, X2 the others",
        "seen, unseen": "classes with and without training samples of the client; where it has some of all (scarce), "
        "those of which it has at least, or less than, the federation's average share",
        "accuracy": "of the client's model after local training, every class counting the same; accuracy_seen on X1, "
        "accuracy_unseen on X2",
        "accuracy_aggregated": "the same of the average of the chosen clients' models",
        "share_present": "share of predictions that fall on seen classes; share_present_unseen: on X2, where each of "
        "them is wrong; mass_present, mass_present_unseen: the same with probabilities in place of predictions",
        "entropy": "entropy of the predicted classes divided by its largest value: 0 is one class only, 1 all alike",
        "shift": "one minus the mean cosine of a sample's features under the global model and under the client's; "
        "shift_seen on X1, shift_unseen on X2",
        "cka": "linear CKA of global and local features: 1 is the same up to rotation and scale",
        "silhouette": "of X1 and X2 as two groups in the features of the client's model: 0 is mixed, 1 far apart",
        "centroid_groups": "share of samples nearest to the mean feature of their own group, X1 or X2 (0.5 is chance)",
        "centroid_classes": "share of samples nearest to the mean feature of their own class; a sample is left out of "
        "its own mean",
        "predicted": "share of each class among predictions; predicted_unseen: on X2",
        "drift": "updates of the clients, all weights together and each by itself: length; distance to their mean, "
        "divided by their length; cosine between two of them, mean over pairs",
        "mean": "over the chosen clients; a number that a client has not (null) is left out",
    }
