"""PACS (Li et al., 2017): seven classes in four styles (art, cartoon, photo, sketch), from its folder of folders."""

from __future__ import annotations

import numpy as np
import torch

from ..core.data import Samples
from ..core.errors import InputError, unknown
from ..core.rng import stream
from .federation import Source, chosen
from .own import decoded
from .place import opened
from .readers import class_folders

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FIRST = 4  # the first client of a domain has classes 0 to 3, the second 4 to 6
TEST_SHARE = 0.2


def load(path: str, size: int, unseen: str) -> Source:
    """Read the images; a stratified fifth of every client is its test set, or one whole domain is everybody's."""
    if unseen and unseen not in DOMAINS:
        raise unknown("data.unseen", unseen, DOMAINS)
    with opened(path, "pacs", "pacs") as tree:
        # An archive beside the folder that came out of it is not a second PACS.
        images = _of_domains(tree.files) or _of_domains(tree.names)
        if len(archives := {name.partition("!/")[0] for name in images if "!/" in name}) > 1:
            raise InputError(
                f"{tree.path}: holds PACS more than once ({', '.join(sorted(archives))}); name one of them"
            )
        folders = class_folders(images)
        missing = [d for d in DOMAINS if d not in folders.clients] + [c for c in CLASSES if c not in folders.classes]
        if missing or len(folders.classes) > len(CLASSES):
            raise InputError(
                f"{tree.path}: not PACS, which has folders <domain>/<class> for {', '.join(DOMAINS)} and "
                f"{', '.join(CLASSES)}" + (f"; {missing[0]} is missing" if missing else "")
            )
        names = [item.name for item in folders.items]
        x = torch.from_numpy(decoded(tree, names, size))
    y = np.array([CLASSES.index(item.label) for item in folders.items])
    domain = np.array([DOMAINS.index(item.client or "") for item in folders.items])
    owner = 2 * domain + (y >= FIRST)
    samples = Samples(x, torch.from_numpy(y), scale=1 / 127.5, shift=-1.0)
    held = chosen(owner * len(CLASSES) + y, TEST_SHARE, stream(0, "pacs", "test"))
    if not unseen:
        train, test = samples.only(~held), samples.only(held)
        return Source(train, test, len(CLASSES), 255.0, owner[~held], owner[held])
    out = domain == DOMAINS.index(unseen)
    kept = ~held & ~out
    _, renumbered = np.unique(owner[kept], return_inverse=True)
    return Source(samples.only(kept), samples.only(out), len(CLASSES), 255.0, renumbered)


def _of_domains(names: list[str]) -> list[str]:
    return [name for name in names if any(f"/{domain}/" in f"/{name}" for domain in DOMAINS)]
