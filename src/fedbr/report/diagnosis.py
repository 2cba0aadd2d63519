"""A diagnosis in words and as a table: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from ..run.diagnosis import ClientClasses, DiagnosisRecord, Measures, VariantBias

BEGIN = {  # what clients begin with -> how a line says it
    "model": "",
    "features": "; classifiers begin fresh",
    "scratch": "; clients begin with fresh weights",
}
ROWS = (  # what a row says, the measure, and how to show it: a factor and digits
    ("accuracy %", "accuracy", 100, 1),
    ("  on seen classes (X1)", "accuracy_seen", 100, 1),
    ("  on unseen ones (X2)", "accuracy_unseen", 100, 1),
    ("X2 taken for seen %", "share_present_unseen", 100, 1),
    ("  of the probability", "mass_present_unseen", 100, 1),
    ("entropy of predictions", "entropy", 1, 2),
    ("shift of features, X1", "shift_seen", 1, 3),
    ("  X2", "shift_unseen", 1, 3),
    ("CKA with global, X1", "cka_seen", 1, 2),
    ("  X2", "cka_unseen", 1, 2),
    ("silhouette X1 | X2", "silhouette", 1, 2),
    ("X1 | X2 by nearest mean %", "centroid_groups", 100, 1),
    ("classes by nearest mean %", "centroid_classes", 100, 1),
)
CHANGES = (  # what a sentence compares, the measure, a factor, digits and the unit
    ("share", "share_present_unseen", 100, 1, " %"),
    ("probability", "mass_present_unseen", 100, 1, " %"),
    ("shift of features on X1", "shift_seen", 1, 3, ""),
    ("on X2", "shift_unseen", 1, 3, ""),
    ("X1 | X2 by nearest mean", "centroid_groups", 100, 1, " %"),
)


def about(record: DiagnosisRecord) -> str:
    """Say in one line what was looked at, and what was left out."""
    facts = record.about
    clients = f"{facts.clients_in_all} clients"
    if len(facts.clients) < facts.clients_in_all:
        listed = ", ".join(map(str, facts.clients))
        clients = f"clients {listed} (drawn from {facts.clients_in_all:,})"
    before = ""
    if facts.pretrain_epochs:
        before = f"; trained for {_epochs(facts.pretrain_epochs)} on all data"
    epochs = f" ({_epochs(facts.epochs)})" if facts.epochs else ""
    per_class = " to ".join(map(str, facts.samples_per_class))
    return (
        f"{facts.source or 'The model given'}{before}{BEGIN[facts.start]}; {clients}; "
        f"{facts.local_steps} local steps{epochs} of {facts.batch_size}, lr {facts.lr:g}; "
        f"{facts.samples:,} of {facts.samples_available:,} test samples, {per_class} per class"
    )


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def table(record: DiagnosisRecord) -> tuple[list[str], list[list[str]]]:
    """Return the comparison as header and cells.

    The global model has a column, and so have the clients' models of each variant.
    """
    names = [name for name, *_ in ROWS]
    columns = [
        ["", *names, "aggregated %", "cosine of updates", "distance of updates"],
        ["global", *_cells(record.global_model.mean), "-", "-", "-"],
    ]
    for variant in record.variants:
        cells = _cells(variant.models.mean)
        if variant.diverged:
            cells[0] = "diverged"
        cells.append(_cell(variant.accuracy_aggregated, 100, 1))
        cells.append(_cell(variant.drift.cosine, 1, 2))
        cells.append(_cell(variant.drift.distance, 1, 2))
        columns.append([variant.label, *cells])
    header, *rows = [list(row) for row in zip(*columns, strict=True)]
    return header, rows


def _cells(mean: Measures) -> list[str]:
    return [_cell(getattr(mean, key), factor, digits) for _, key, factor, digits in ROWS]


def _cell(value: float | None, factor: int, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value * factor:.{digits}f}"


def rarity(clients: Sequence[ClientClasses]) -> str:
    """Say how little clients have seen of X2; empty if there is no X2.

    Returns:
        "never", "hardly", or "never or hardly": some clients the one and some the other.
    """
    scarce = {client.scarce for client in clients if client.unseen}
    words = []
    if False in scarce:
        words.append("never")
    if True in scarce:
        words.append("hardly")
    return " or ".join(words)


def sentences(record: DiagnosisRecord) -> list[str]:
    """Say in words how biased the models of the first variant are, and what the others change."""
    lines = []
    for variant in record.variants:
        if variant.diverged:
            lines.append(f"{variant.label}: diverged ({variant.diverged}).")
    first, *others = record.trained
    lines.append(_describe_bias(record, first))
    for variant in others:
        changes = _list_changes(first.models.mean, variant.models.mean)
        lines.append(f"{variant.label} against {first.label}: {', '.join(changes)}.")
    return lines


def _describe_bias(record: DiagnosisRecord, variant: VariantBias) -> str:
    """Say what a variant's models take samples of unseen classes for."""
    mean, clients = variant.models.mean, record.clients
    with_unseen = [client for client in clients if client.unseen]
    share, mass = mean.share_present_unseen, mean.mass_present_unseen
    if share is None or mass is None:
        why = "Every client has its share of all classes"
        if with_unseen:
            why = "No test sample is of an unseen class"
        return f"{why}: there is no unseen data to look at."
    few = ""
    if len(with_unseen) < len(clients):
        few = f", of which {len(with_unseen)} of {len(clients)} clients have some"
    return (
        f"{variant.label}: of samples of classes that a client has {rarity(clients)} seen{few}, "
        f"its model takes {share * 100:.1f} % for classes that it has seen "
        f"({mass * 100:.1f} % of the probability)."
    )


def _list_changes(base: Measures, other: Measures) -> list[str]:
    changes = []
    for name, key, factor, digits, unit in CHANGES:
        before, after = getattr(base, key), getattr(other, key)
        if before is not None and after is not None:
            shown = f"{before * factor:.{digits}f} → {after * factor:.{digits}f}"
            changes.append(f"{name} {shown}{unit}")
    return changes
