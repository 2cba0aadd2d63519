"""Images of the user's own, from folders that name classes and clients."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ...util.errors import InputError
from ..arrays import as_samples, peak
from ..dataset import Dataset
from ..files import open_files
from ..holdout import with_test
from ..readers import ClassFolders, class_folders, load_images
from ..source import Source

TRAIN = {"train", "training"}
TEST = {"test", "testing", "val", "valid", "validation"}


def load(path: str, size: int) -> Source:
    """Read images from a folder or an archive.

    They lie in <class>/<image>, <client>/<class>/<image> or train and test/<class>/<image>.
    """
    if not path:
        raise InputError("data.path = '': name the folder (or archive) with the images")
    with open_files(path, "folder", "") as tree:
        folders = class_folders(tree.files)
        if not folders.items:  # an archive beside the folder that came out of it has nothing new
            folders = class_folders(tree.names)
        if not folders.items:
            raise InputError(f"data.path = {path!r}: has no images in class folders")
        tested = _find_tested(folders, path)
        x = torch.from_numpy(load_images(tree, [i.name for i in folders.items], size))
    numbers = {label: number for number, label in enumerate(folders.classes)}
    samples = as_samples(x, np.array([numbers[item.label] for item in folders.items]), path)
    if tested is not None:
        train, test = samples.only(~tested), samples.only(tested)
        count = len(folders.classes)
        return Source(train, test, count, peak(train), class_names=folders.classes)
    owner = None
    if folders.clients:
        places = {client: place for place, client in enumerate(folders.clients)}
        owner = np.array([places[item.client or ""] for item in folders.items])
    clients = folders.clients or None
    return with_test(samples, len(folders.classes), owner, folders.classes, clients)


def _find_tested(folders: ClassFolders, path: str) -> NDArray[np.bool_] | None:
    """Say which images are for testing, where the folders are train and test, not clients."""
    parts = {client.lower() for client in folders.clients}
    if not parts <= TRAIN | TEST or not parts & TRAIN or not parts & TEST:
        return None
    if len(folders.clients) > 2:
        raise InputError(
            f"data.path = {path!r}: has {', '.join(folders.clients)}; expected train and one of "
            "the others"
        )
    tested = np.array([(item.client or "").lower() in TEST for item in folders.items])
    pairs = zip(folders.items, tested, strict=True)
    trained = {item.label for item, is_test in pairs if not is_test}
    for item in folders.items:
        if item.label not in trained:
            raise InputError(
                f"data.path = {path!r}: {item.name} is of class {item.label!r}, which is not "
                "trained on"
            )
    return tested


FOLDER = Dataset(
    summary="yours: images in class folders, or in client/class folders",
    load=lambda options: load(options.path, options.size),
    uses=frozenset({"path", "size"}),
)
