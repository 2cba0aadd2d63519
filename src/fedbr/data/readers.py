"""What is in a data set's files: IDX, CIFAR records, images, folders that name classes."""

from __future__ import annotations

import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..util.errors import InputError
from ..util.imports import require
from .cache import load_or_make
from .files import Tree, natural_key
from .unpack import GZIP, MEMBER, is_hidden

if TYPE_CHECKING:
    from PIL import Image

Bytes = NDArray[np.uint8]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# Not EPS, which would start another program.
DECODERS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
CIFAR_SHAPE = (3, 32, 32)


def read_idx(name: str, blob: bytes, dimensions: int | None = None, maximum: int = 255) -> Bytes:
    """Read an IDX file of bytes (MNIST), gzip or plain.

    Args:
        name: how messages call it.
        dimensions: how many it must have; None: any number.
        maximum: the largest value that is allowed.

    Raises:
        InputError: it is something else, or damaged; the line names the byte.

    >>> read_idx("labels", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3]))
    array([7, 3], dtype=uint8)
    """
    content, where = blob, ""
    if blob[:2] == GZIP:
        content, where = _gunzip(name, blob), " when decompressed"

    def check_length(least: int, expected: str) -> None:
        if len(content) < least:
            raise InputError(f"{name}: ends at byte {len(content)}{where}, {expected} expected")

    check_length(4, "at least 8")
    _check_idx(name, content, dimensions)
    start = 4 + 4 * content[3]
    check_length(start, f"at least {start}")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    end = start + math.prod(shape)
    check_length(end, str(end))
    if len(content) > end:
        sizes = " × ".join(map(str, shape))
        raise InputError(f"{name}: goes on after byte {end}{where}, where {sizes} bytes end")
    values = np.frombuffer(content, np.uint8, offset=start)
    for at in np.flatnonzero(values > maximum)[:1]:
        raise InputError(
            f"{name}: byte {start + at}{where}: label {values[at]}, at most {maximum} expected"
        )
    return values.reshape(shape).copy()  # not a view: writable


def _check_idx(name: str, content: bytes, dimensions: int | None) -> None:
    """Check the first four bytes."""
    if content[:2] != b"\0\0":
        raise InputError(
            f"{name}: bytes 0 and 1 are {content[0]} and {content[1]}, must be 0: not an IDX file"
        )
    if content[2] != 8:
        raise InputError(f"{name}: byte 2 is {content[2]}, must be 8: not an IDX file of bytes")
    if content[3] == 0 or dimensions not in (None, content[3]):
        raise InputError(
            f"{name}: byte 3 is {content[3]}, must be {dimensions or 'at least 1'}: the dimensions"
        )


def _gunzip(name: str, blob: bytes) -> bytes:
    """Decompress all members to their checksums."""
    parts, rest = [], blob
    while rest:
        unpack = zlib.decompressobj(wbits=31)
        try:
            parts.append(unpack.decompress(rest))
        except zlib.error as error:
            byte = len(blob) - len(rest) + _damaged_before(rest)
            raise InputError(f"{name}: damaged before byte {byte} ({error})") from error
        if not unpack.eof:
            raise InputError(
                f"{name}: ends at byte {len(blob)}, in the middle of its compressed data"
            )
        rest = unpack.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _damaged_before(blob: bytes, step: int = 1024) -> int:
    """Return where decompressing fails, in steps: the damage itself may lie further back."""
    unpack = zlib.decompressobj(wbits=31)
    for start in range(0, len(blob), step):
        try:
            unpack.decompress(blob[start : start + step])
        except zlib.error:
            return min(start + step, len(blob))
    return len(blob)


def read_cifar(
    name: str, blob: bytes, label_bytes: int, maximum: int | Sequence[int] = 255
) -> tuple[Bytes, Bytes]:
    """Read CIFAR records.

    Args:
        label_bytes: how many labels a record has.
        maximum: the largest label that is allowed, or that of each byte.

    Returns:
        Images [n, 3, 32, 32] and labels [n, label_bytes].
    """
    record = label_bytes + math.prod(CIFAR_SHAPE)
    count, rest = divmod(len(blob), record)
    if rest or not count:
        raise InputError(
            f"{name}: ends at byte {len(blob)}, its last whole record (of {record} bytes) at byte "
            f"{count * record}"
        )
    table = np.frombuffer(blob, np.uint8).reshape(count, record)
    labels = table[:, :label_bytes].copy()
    limits = np.broadcast_to(maximum, label_bytes)
    for row, column in np.argwhere(labels > limits)[:1]:
        at = f"record {row}, byte {row * record + column}"
        raise InputError(
            f"{name}: {at}: label {labels[row, column]}, at most {limits[column]} expected"
        )
    return table[:, label_bytes:].reshape(count, *CIFAR_SHAPE).copy(), labels


def read_images(tree: Tree, names: Sequence[str], size: int) -> Bytes:
    """Decode images to [n, 3, size, size].

    Those of another size are resized: bilinear, and all pixels count.
    """
    require("PIL", extra="images", wanted_by="image files")
    x = np.empty((len(names), 3, size, size), np.uint8)
    for i, name in enumerate(names):
        x[i] = _pixels(name, tree.read(name), size)
    return x


def load_images(tree: Tree, names: Sequence[str], size: int) -> Bytes:
    """Decode images as ``read_images`` does; the result is kept on disk for the next time."""
    contents = (part for name in names for part in (name, tree.read(name)))
    key_parts = chain([f"upright RGB images {size}"], contents)
    return load_or_make(key_parts, lambda: {"x": read_images(tree, names, size)})["x"]


ORIENTATION = 0x0112  # EXIF: how a camera was held


def _pixels(name: str, blob: bytes, size: int) -> Bytes:
    from PIL import Image  # a data set without images need not wait for it

    try:
        with Image.open(io.BytesIO(blob), formats=DECODERS) as image:
            rgb = plain(image).convert("RGB")  # before resizing: a palette cannot be interpolated
            if rgb.size != (size, size):
                rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(rgb).transpose(2, 0, 1)
    except Exception as error:  # the decoders raise almost anything on damaged files
        why = re.sub(r" ?<[^>]*>", "", " ".join(str(error).split()))
        raise InputError(f"{name}: not an image that can be read ({why})") from error


def plain(image: Image.Image) -> Image.Image:
    """Return an image upright, grey or RGB, with 8 bits a channel; of 16 the upper 8 are taken."""
    from PIL import Image, ImageOps

    if image.getexif().get(ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        deep = np.asarray(image).astype(np.int64)  # convert would cut off at 255
        return Image.fromarray((deep >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode}, 32 bits a pixel; expected 8 or 16")
    if image.mode in ("1", "L"):
        return image.convert("L")
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")


class Item(NamedTuple):
    """A file of a class, and of a client where the folders say so."""

    client: str | None
    label: str
    name: str


class ClassFolders(NamedTuple):
    """What folders say about their files; everything is in natural order."""

    items: list[Item]
    classes: list[str]
    clients: list[str]


def class_folders(names: Iterable[str]) -> ClassFolders:
    """Recognise <class>/<image> and <client>/<class>/<image>, below any number of common folders.

    >>> folders = class_folders(["pets/dog/1.png", "pets/cat/1.png"])
    >>> folders.classes, folders.clients
    (['cat', 'dog'], [])
    """
    images = [n for n in names if n.lower().endswith(IMAGES) and not is_hidden(n)]
    # An archive is a folder too.
    folders = [MEMBER.sub("/", name).split("/")[:-1] for name in images]
    # The innermost folder is a class even if it is the only one.
    levels = zip(*(parts[:-1] for parts in folders), strict=False)
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    depths = [len(parts) - common for parts in folders]
    if images and set(depths) not in ({1}, {2}):
        raise _mixed_depths(images, depths)
    items = []
    for name, parts, depth in zip(images, folders, depths, strict=True):
        items.append(Item(parts[-2] if depth == 2 else None, parts[-1], name))
    items.sort(
        key=lambda i: (natural_key(i.client or ""), natural_key(i.label), natural_key(i.name))
    )
    classes = sorted({item.label for item in items}, key=natural_key)
    clients = sorted({item.client for item in items if item.client is not None}, key=natural_key)
    return ClassFolders(items, classes, clients)


def _mixed_depths(images: Sequence[str], depths: Sequence[int]) -> InputError:
    """Name an image that lies at another depth than most."""
    (usual, _), *others = Counter(depths).most_common()
    odd = min(others, key=lambda pair: pair[1])[0] if others else usual
    beside = f", others {usual}" if others else ""
    return InputError(
        f"{images[depths.index(odd)]}: lies {odd} folders deep{beside}; "
        "all images must be <class>/<image>, or all <client>/<class>/<image>"
    )
