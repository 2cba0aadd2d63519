"""PACS (Li et al., 2017): seven classes in four styles (art, cartoon, photo, sketch), from its
folder of folders.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import AbstractContextManager

import numpy as np
import torch

from ...core.rng import stream
from ...core.samples import Samples
from ...util.errors import InputError, NoFiles, unknown
from ..archives import Tree
from ..federation import Source
from ..holdout import TEST_SHARE, held_out
from ..place import opened
from ..readers import Item, class_folders
from .own import decoded

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FIRST = 4  # the first client of a domain has classes 0 to 3, the second 4 to 6
_NAMES = [
    f"{d} {part}" for d in DOMAINS for part in (f"0-{FIRST - 1}", f"{FIRST}-{len(CLASSES) - 1}")
]


def load(path: str, size: int, unseen: str) -> Source:
    """Read the images; a stratified fifth of every client is its test set, or one whole domain is
    everybody's.
    """
    if unseen and unseen not in DOMAINS:
        raise unknown("data.unseen", unseen, DOMAINS)
    with _files(path) as tree:
        items = _items(tree)
        x = torch.from_numpy(decoded(tree, [item.name for item in items], size))
    y = np.array([CLASSES.index(item.label) for item in items])
    domain = np.array([DOMAINS.index(item.client or "") for item in items])
    owner = 2 * domain + (y >= FIRST)
    samples = Samples(x, torch.from_numpy(y), scale=1 / 127.5, shift=-1.0)
    # With a domain that nobody sees there is no need to hold anything else out.
    out = (
        domain == DOMAINS.index(unseen)
        if unseen
        else held_out(y, TEST_SHARE, stream(0, "pacs", "test"), owner)
    )
    clients = np.unique(owner[~out])
    owners, test_owners = (np.searchsorted(clients, owner[part]) for part in (~out, out))
    return Source(
        samples.only(~out), samples.only(out), len(CLASSES), peak=255.0,
        owner=owners, test_owner=None if unseen else test_owners,
        class_names=CLASSES, client_names=[_NAMES[client] for client in clients],
    )  # fmt: skip


def count(path: str) -> dict[tuple[str, str], int]:
    """Count the images of every domain and class."""
    with _files(path) as tree, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # who loads them hears it
        return Counter((item.client or "", item.label) for item in _items(tree))


def _files(path: str) -> AbstractContextManager[Tree]:
    return opened(path, "pacs", "pacs", lambda tree: bool(_images(tree)))


def _items(tree: Tree) -> list[Item]:
    images = _largest(tree, _images(tree))
    folders = class_folders(images)
    missing = [d for d in DOMAINS if d not in folders.clients] + [
        c for c in CLASSES if c not in folders.classes
    ]
    if missing or len(folders.classes) > len(CLASSES):
        kind = InputError if images else NoFiles
        raise kind(
            f"{tree.path}: has no PACS, which has folders <domain>/<class> for {', '.join(DOMAINS)} and "
            f"{', '.join(CLASSES)}" + (f"; {missing[0]} is missing" if missing and images else "")
        )
    return folders.items


def _largest(tree: Tree, images: list[str]) -> list[str]:
    """Of several archives with PACS take the one with the most images, and say so."""
    archives = Counter(name.partition("!/")[0] for name in images if "!/" in name).most_common()
    if len(archives) < 2:
        return images
    (first, most), (_, next_most) = archives[:2]
    names = ", ".join(sorted(name for name, _ in archives))
    if most == next_most:
        raise InputError(f"{tree.path}: holds PACS more than once ({names}); name one of them")
    said = f"{tree.path}: holds PACS more than once ({names}); {first} is taken, which has the most images ({most:,})"
    warnings.warn(said, RuntimeWarning, stacklevel=2)
    return [name for name in images if name.startswith(f"{first}!/")]


def _images(tree: Tree) -> list[str]:
    """Name the files below folders of domains; an archive beside the folder that came out of it is
    no second PACS.
    """
    return _of_domains(tree.files) or _of_domains(tree.names)


def _of_domains(names: list[str]) -> list[str]:
    return [name for name in names if any(f"/{domain}/" in f"/{name}" for domain in DOMAINS)]
