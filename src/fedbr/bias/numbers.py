"""The numbers of a diagnosis: of one client's model, and their mean over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

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
from ..metrics.local import Classes
from .sample import Probe


def summary(
    known: Mapping[int, Classes], probe: Probe, before: Output, after: Sequence[Output]
) -> dict[str, Any]:
    """Compare each client's model with the global one; return the mean over clients, and every
    client's own.
    """
    tables = [guesses(probe, out) for out in after]
    each = list(zip(known.values(), after, tables, strict=True))
    rows = [describe(own, probe, before, out, table) for own, out, table in each]
    clients = [
        {"client": client, **row, **guessed(own, table)}
        for client, row, (own, _, table) in zip(known, rows, each, strict=True)
    ]
    return {"mean": local.mean_of(rows), "clients": clients}


def guesses(probe: Probe, out: Output) -> Tensor:
    """Count which class a model takes for which: [K, K]."""
    return confusion(probe.y, F.one_hot(out.logits.argmax(dim=1), out.logits.shape[1]))


def describe(
    own: Classes, probe: Probe, before: Output, after: Output, table: Tensor
) -> dict[str, float | None]:
    """Return the numbers of one model, for one client's idea of seen and unseen; ``table``: its
    guesses.
    """
    soft = confusion(probe.y, after.logits.softmax(dim=1))
    unseen = torch.isin(probe.y, torch.tensor(own.unseen, dtype=torch.long))
    seen = torch.isin(probe.y, torch.tensor(own.seen, dtype=torch.long))
    either = seen | unseen
    old, new = (F.normalize(out.features.double(), dim=1) for out in (before, after))
    return {
        "accuracy": accuracy(table),
        "accuracy_seen": accuracy(table, own.seen),
        "accuracy_unseen": accuracy(table, own.unseen),
        **local.leaning(table, own.seen, own.unseen),
        **{
            f"mass_{k[6:]}": v
            for k, v in local.leaning(soft, own.seen, own.unseen).items()
            if k[:6] == "share_"
        },
        "shift": cosine_shift(old, new),
        "shift_seen": cosine_shift(old[seen], new[seen]),
        "shift_unseen": cosine_shift(old[unseen], new[unseen]),
        "cka": linear_cka(old, new),
        "cka_seen": linear_cka(old[seen], new[seen]),
        "cka_unseen": linear_cka(old[unseen], new[unseen]),
        "silhouette": silhouette(new[either], unseen[either].long()),
        "centroid_groups": centroid_accuracy(new[either], unseen[either].long()),
        "centroid_classes": centroid_accuracy(new, probe.y),
    }


def guessed(own: Classes, table: Tensor) -> dict[str, list[float] | None]:
    """Return what a model predicts: shares of the classes, on all samples and on those of unseen
    classes.
    """
    shares = {"predicted": distribution(table), "predicted_unseen": distribution(table, own.unseen)}
    return {
        key: None if value is None else [round(v, 6) for v in value.tolist()]
        for key, value in shares.items()
    }


def definitions() -> dict[str, str]:
    """Say in words what each number means."""
    return {
        "samples": "held-out test samples of all test sets together, as many of each class; X1 are those of classes "
        "that the client has seen, X2 those of unseen ones",
        "seen, unseen": local.CLASSES,
        "features": "scaled to length 1 for all that follows, and for the maps",
        "accuracy": "of the client's model after local training, every class counting the same; accuracy_seen on X1, "
        "accuracy_unseen on X2",
        "accuracy_aggregated": "the same of the global model that the server makes of the chosen clients' models (with "
        "the methods' own weights and server steps); null where clients train alone",
        "share_present": "share of predictions that fall on seen classes; share_present_unseen: on X2, where each of "
        "them is wrong; mass_present, mass_present_unseen: the same with probabilities in place of predictions",
        "entropy": "entropy of the predicted classes divided by its largest value: 0 is one class only, 1 all alike",
        "shift": "one minus the mean cosine of a sample's features under the global model and under the client's; "
        "shift_seen on X1, shift_unseen on X2",
        "cka": "linear CKA of global and local features: 1 is the same up to rotation and scale; cka_seen on X1, "
        "cka_unseen on X2; null where one of them is the same for all samples",
        "silhouette": "of X1 and X2 as two groups in the features of the client's model: 0 is mixed, 1 far apart",
        "centroid_groups": "share of samples nearest to the mean feature of their own group, X1 or X2 (0.5 is chance); "
        "each group counts the same, and a sample is left out of its own mean",
        "centroid_classes": "the same with the classes as groups",
        "predicted": "share of each class among predictions; predicted_unseen: on X2",
        "drift": "updates of the clients, all weights together and each by itself: length; distance to their mean, "
        "divided by their length; cosine between two of them, mean over pairs",
        "mean": "over the chosen clients; a number that a client has not (null) is left out",
        "diverged": "why a side has no numbers; null if it has",
        "seconds": "wall time of training and measuring, without the pictures",
    }
