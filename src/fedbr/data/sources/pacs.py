"""PACS (Li et al., 2017): seven classes in four styles (art, cartoon, photo, sketch)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import torch

from ...core.rng import stream
from ...core.samples import Samples
from ...util.errors import InputError, NoFiles, unknown
from ..dataset import Dataset
from ..files import Tree, open_files
from ..holdout import TEST_SHARE, choose_held_out
from ..published import Published
from ..readers import Item, class_folders, load_images
from ..source import Source

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FIRST = 4  # the first client of a domain has classes 0 to 3, the second 4 to 6


def load(path: str, size: int, unseen: str) -> Source:
    """Read the images, two clients for each domain.

    Args:
        size: of the images, in pixels each way.
        unseen: a domain that is everybody's test set; empty: a fifth of every client is its own.
    """
    if unseen and unseen not in DOMAINS:
        raise unknown("data.unseen", unseen, DOMAINS)
    with _open(path) as tree:
        items = _find_items(tree)
        x = torch.from_numpy(load_images(tree, [item.name for item in items], size))
    y = np.array([CLASSES.index(item.label) for item in items])
    domain = np.array([DOMAINS.index(item.client or "") for item in items])
    owner = 2 * domain + (y >= FIRST)
    if unseen:  # then there is no need to hold anything else out
        out = domain == DOMAINS.index(unseen)
    else:
        out = choose_held_out(y, TEST_SHARE, stream(0, "pacs", "test"), owner)
    clients = np.unique(owner[~out])
    samples = Samples(x, torch.from_numpy(y), scale=1 / 127.5, shift=-1.0)
    names = _client_names()
    return Source(
        samples.only(~out),
        samples.only(out),
        len(CLASSES),
        peak=255.0,
        owner=np.searchsorted(clients, owner[~out]),
        test_owner=None if unseen else np.searchsorted(clients, owner[out]),
        class_names=CLASSES,
        client_names=[names[client] for client in clients],
    )


def _client_names() -> list[str]:
    names = []
    for domain in DOMAINS:
        names += [f"{domain} 0-{FIRST - 1}", f"{domain} {FIRST}-{len(CLASSES) - 1}"]
    return names


def _open(path: str) -> AbstractContextManager[Tree]:
    return open_files(path, "pacs", "pacs", lambda tree: bool(_find_images(tree)))


def _find_items(tree: Tree) -> list[Item]:
    images = _choose_archive(tree, _find_images(tree))
    folders = class_folders(images)
    missing = [domain for domain in DOMAINS if domain not in folders.clients]
    missing += [label for label in CLASSES if label not in folders.classes]
    if not missing and len(folders.classes) == len(CLASSES):
        return folders.items
    message = (
        f"{tree.path}: has no PACS, which has folders <domain>/<class> for {', '.join(DOMAINS)} "
        f"and {', '.join(CLASSES)}"
    )
    if not images:
        raise NoFiles(message)
    raise InputError(message + (f"; {missing[0]} is missing" if missing else ""))


def _choose_archive(tree: Tree, images: list[str]) -> list[str]:
    """Of several archives with PACS take the one with the most images, and say so."""
    archives = Counter(name.partition("!/")[0] for name in images if "!/" in name).most_common()
    if len(archives) < 2:
        return images
    (first, most), (_, next_most) = archives[:2]
    names = ", ".join(sorted(name for name, _ in archives))
    if most == next_most:
        raise InputError(f"{tree.path}: holds PACS more than once ({names}); name one of them")
    warnings.warn(
        f"{tree.path}: holds PACS more than once ({names}); {first} is taken, which has the most "
        f"images ({most:,})",
        RuntimeWarning,
        stacklevel=2,
    )
    return [name for name in images if name.startswith(f"{first}!/")]


def _find_images(tree: Tree) -> list[str]:
    """Name the files below folders of domains.

    An archive beside the folder that came out of it is no second PACS.
    """
    return _of_domains(tree.files) or _of_domains(tree.names)


def _of_domains(names: list[str]) -> list[str]:
    return [name for name in names if any(f"/{domain}/" in f"/{name}" for domain in DOMAINS)]


Counts = Mapping[str, tuple[int, ...]]  # domain -> images of each class, in the order of CLASSES

PUBLISHED_COUNTS = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}


@dataclass(frozen=True)
class PublishedPacs(Published):
    """Images that are counted, since no checksums are published."""

    counts: Counts = field(default_factory=lambda: PUBLISHED_COUNTS)

    def shortfall(self, path: str, source: Source) -> str:
        with _open(path) as tree, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whoever loads them is warned
            here = Counter((item.client or "", item.label) for item in _find_items(tree))
        wrong = []
        for domain, counts in self.counts.items():
            for label, count in zip(CLASSES, counts, strict=True):
                images = here[domain, label]
                if images != count:
                    share = f"{images:,} of {count:,}" if images else "no"
                    wrong.append(f"{domain} has {share} {label}")
        if not wrong:
            return ""
        more = f", and {len(wrong) - 3} more such" if len(wrong) > 3 else ""
        return f"{here.total():,} of {self.total:,} images; {', '.join(wrong[:3])}{more}"

    @property
    def total(self) -> int:
        """How many images there are in all."""
        return sum(map(sum, self.counts.values()))

    def verdict(self, path: str, source: Source) -> str:
        if missing := self.shortfall(path, source):
            return f"not complete: {missing}"
        return f"complete: all {self.total:,} images (checksums are not published)"


PUBLISHED = PublishedPacs(
    "pacs",
    by_hand="has no stable official address: get it from the Domain Generalization project page "
    "(https://domaingeneralization.github.io, Data) and put it into {target} as "
    "<domain>/<class>/<image> with the domains art_painting, cartoon, photo and sketch, unpacked "
    "or as one .zip or .tar.gz",
)

PACS = Dataset(
    summary="PACS, four styles of images in eight clients: each style in two by class",
    load=lambda options: load(options.path, options.size, options.unseen),
    partition="domains",
    published=PUBLISHED,
    uses=frozenset({"path", "size", "unseen"}),
    paper="Li, Yang, Song, Hospedales. Deeper, Broader and Artier Domain Generalization, ICCV 2017",
)
