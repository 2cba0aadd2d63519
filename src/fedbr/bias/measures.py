"""Measures of the clients' models, one by one, and their mean over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.model import Output
from ..metrics.bias import accuracy, confusion, distribution
from ..metrics.local import CLASSES, Classes, mean, measure_leaning
from ..run.diagnosis import ClientModel, Measures, Models
from .features import centroid_accuracy, cosine_shift, linear_cka, silhouette
from .sample import Probe

DEFINITIONS = {
    "samples": "held-out test samples of all test sets together, as many of each class; X1 are "
    "those of classes that the client has seen, X2 those of unseen ones",
    "seen, unseen": CLASSES,
    "features": "scaled to length 1 for all that follows, and for the maps",
    "accuracy": "of the client's model after local training, every class counting the same; "
    "accuracy_seen on X1, accuracy_unseen on X2",
    "accuracy_aggregated": "the same of the global model that the server makes of the chosen "
    "clients' models (with the methods' own weights and server steps); null where clients train "
    "alone",
    "share_present": "share of predictions that fall on seen classes; share_present_unseen: on X2, "
    "where each of them is wrong; mass_present, mass_present_unseen: the same with probabilities "
    "in place of predictions",
    "entropy": "entropy of the predicted classes divided by its largest value: 0 is one class "
    "only, 1 all alike",
    "shift": "one minus the mean cosine of a sample's features under the global model and under "
    "the client's; shift_seen on X1, shift_unseen on X2",
    "cka": "linear CKA of global and local features: 1 is the same up to rotation and scale; "
    "cka_seen on X1, cka_unseen on X2; null where one of them is the same for all samples",
    "silhouette": "of X1 and X2 as two groups in the features of the client's model: 0 is mixed, 1 "
    "far apart",
    "centroid_groups": "share of samples nearest to the mean feature of their own group, X1 or X2 "
    "(0.5 is chance); each group counts the same, and a sample is left out of its own mean",
    "centroid_classes": "the same with the classes as groups",
    "predicted": "share of each class among predictions; predicted_unseen: on X2",
    "drift": "updates of the clients, all weights together and each by itself: length; distance to "
    "their mean, divided by their length; cosine between two of them, mean over pairs",
    "mean": "over the chosen clients; a number that a client has not (null) is left out",
    "diverged": "why a variant has no figures; null if it has",
    "seconds": "wall time of training and measuring, without the pictures",
}


def measure_all(
    classes: Mapping[int, Classes], probe: Probe, before: Output, after: Sequence[Output]
) -> Models:
    """Compare each client's model with the global one.

    Args:
        classes: the clients, and the classes of each.
        probe: the samples.
        before: what the global model makes of them.
        after: what each client's model makes of them.
    """
    models = []
    for (client, own), output in zip(classes.items(), after, strict=True):
        table = guesses(probe, output)
        model = ClientModel(
            client,
            measure(own, probe, before, output),
            predicted=_shares(table),
            predicted_unseen=_shares(table, own.unseen),
        )
        models.append(model)
    return Models(mean_of([model.measures for model in models]), models)


def measure(own: Classes, probe: Probe, before: Output, after: Output) -> Measures:
    """Measure one model, for the classes that one client has seen and has not.

    Args:
        own: the classes of the client.
        probe: the samples.
        before: what the global model makes of them.
        after: what the measured model makes of them.
    """
    table = guesses(probe, after)
    lean = measure_leaning(table, own.seen, own.unseen)
    soft_table = confusion(probe.y, after.logits.softmax(dim=1))
    soft_lean = measure_leaning(soft_table, own.seen, own.unseen)
    seen, unseen = _is_of(probe.y, own.seen), _is_of(probe.y, own.unseen)
    either = seen | unseen
    groups = unseen[either].long()
    old = F.normalize(before.features.double(), dim=1)
    new = F.normalize(after.features.double(), dim=1)
    return Measures(
        accuracy=accuracy(table),
        accuracy_seen=accuracy(table, own.seen),
        accuracy_unseen=accuracy(table, own.unseen),
        share_present=lean.share_present,
        share_present_unseen=lean.share_present_unseen,
        entropy=lean.entropy,
        mass_present=soft_lean.share_present,
        mass_present_unseen=soft_lean.share_present_unseen,
        shift=cosine_shift(old, new),
        shift_seen=cosine_shift(old[seen], new[seen]),
        shift_unseen=cosine_shift(old[unseen], new[unseen]),
        cka=linear_cka(old, new),
        cka_seen=linear_cka(old[seen], new[seen]),
        cka_unseen=linear_cka(old[unseen], new[unseen]),
        silhouette=silhouette(new[either], groups),
        centroid_groups=centroid_accuracy(new[either], groups),
        centroid_classes=centroid_accuracy(new, probe.y),
    )


def mean_of(measures: Sequence[Measures]) -> Measures:
    """Return the mean of each measure over those models that have it."""
    means = {}
    for name in Measures.names():
        means[name] = mean([getattr(model, name) for model in measures])
    return Measures(**means)


def guesses(probe: Probe, out: Output) -> Tensor:
    """Count how many samples of each class a model takes for which class: [classes, classes]."""
    predicted = F.one_hot(out.logits.argmax(dim=1), out.logits.shape[1])
    return confusion(probe.y, predicted)


def _is_of(y: Tensor, classes: Sequence[int]) -> Tensor:
    return torch.isin(y, torch.tensor(classes, dtype=torch.long))


def _shares(table: Tensor, classes: Sequence[int] | None = None) -> list[float] | None:
    """Return the share of each class among guesses, as a file keeps it."""
    shares = distribution(table, classes)
    return None if shares is None else [round(value, 6) for value in shares.tolist()]
