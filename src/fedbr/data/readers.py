"""What is in a data set's files: IDX, CIFAR records, images, and folders that name classes and
clients.
"""

from __future__ import annotations

import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..util.errors import InputError
from ..util.imports import require
from .archives import GZIP, MEMBER, Tree, hidden, natural

if TYPE_CHECKING:
    from PIL import Image

Bytes = NDArray[np.uint8]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
DECODERS = (
    "PNG",
    "JPEG",
    "BMP",
    "GIF",
    "WEBP",
    "TIFF",
    "PPM",
)  # not EPS, which would start another program
CIFAR_SHAPE = (3, 32, 32)


def read_idx(name: str, blob: bytes, dimensions: int | None = None, maximum: int = 255) -> Bytes:
    """Read an IDX file of bytes (MNIST), gzip or plain; the header says how many records there are."""
    content, where = (_gunzip(name, blob), " when decompressed") if blob[:2] == GZIP else (blob, "")

    def check_length(least: int, expected: str) -> None:
        if len(content) < least:
            raise InputError(f"{name}: ends at byte {len(content)}{where}, {expected} expected")

    check_length(4, "at least 8")
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
    start = 4 + 4 * content[3]
    check_length(start, f"at least {start}")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    end = start + math.prod(shape)
    check_length(end, str(end))
    if len(content) > end:
        raise InputError(
            f"{name}: goes on after byte {end}{where}, where {' × '.join(map(str, shape))} bytes end"
        )
    values = np.frombuffer(content, np.uint8, offset=start)
    for at in np.flatnonzero(values > maximum)[:1]:
        raise InputError(
            f"{name}: byte {start + at}{where}: label {values[at]}, at most {maximum} expected"
        )
    return values.reshape(shape).copy()  # not a view: writable


def _gunzip(name: str, blob: bytes) -> bytes:
    """Decompress all members to their checksums."""
    found, rest = [], blob
    while rest:
        unpack = zlib.decompressobj(wbits=31)
        try:
            found.append(unpack.decompress(rest))
        except zlib.error as error:
            byte = len(blob) - len(rest) + _damaged_before(rest)
            raise InputError(f"{name}: damaged before byte {byte} ({error})") from error
        if not unpack.eof:
            raise InputError(
                f"{name}: ends at byte {len(blob)}, in the middle of its compressed data"
            )
        rest = unpack.unused_data.lstrip(b"\0")
    return b"".join(found)


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
    """Read CIFAR records: x [n, 3, 32, 32] and labels [n, label_bytes]; ``maximum`` is the largest
    label (of each).
    """
    record = label_bytes + math.prod(CIFAR_SHAPE)
    count, rest = divmod(len(blob), record)
    if rest or not count:
        raise InputError(
            f"{name}: ends at byte {len(blob)}, its last whole record (of {record} bytes) at byte {count * record}"
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
    """Decode images to [n, 3, size, size]; those of another size are resized (bilinear, all pixels
    count).
    """
    require("PIL", extra="images", wanted_by="image files")
    x = np.empty((len(names), 3, size, size), np.uint8)
    for i, name in enumerate(names):
        x[i] = _pixels(name, tree.read(name), size)
    return x


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
    """Return an image upright, with 8 bits a pixel and channel, grey or RGB; of 16 bits the upper 8
    are taken.
    """
    from PIL import Image, ImageOps

    if image.getexif().get(ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        deep = np.asarray(image).astype(np.int64)  # convert would cut off at 255
        return Image.fromarray((deep >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode}, 32 bits a pixel; 8 or 16 are wanted")
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
    """Recognise <class>/<image> and <client>/<class>/<image>, below any number of common folders."""
    images = [name for name in names if name.lower().endswith(IMAGES) and not hidden(name)]
    folders = [
        MEMBER.sub("/", name).split("/")[:-1] for name in images
    ]  # an archive is a folder too
    levels = zip(
        *(parts[:-1] for parts in folders), strict=False
    )  # the innermost is a class even if it is the only one
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    depths = [len(parts) - common for parts in folders]
    if images and set(depths) not in ({1}, {2}):
        (usual, _), *others = Counter(depths).most_common()
        odd = min(others, key=lambda pair: pair[1])[0] if others else usual
        raise InputError(
            f"{images[depths.index(odd)]}: lies {odd} folders deep{f', others {usual}' if others else ''}; "
            "all images must be <class>/<image>, or all <client>/<class>/<image>"
        )
    items = [
        Item(parts[-2] if depth == 2 else None, parts[-1], name)
        for name, parts, depth in zip(images, folders, depths, strict=True)
    ]
    items.sort(
        key=lambda item: (natural(item.client or ""), natural(item.label), natural(item.name))
    )
    classes = sorted({item.label for item in items}, key=natural)
    return ClassFolders(
        items, classes, sorted({i.client for i in items if i.client is not None}, key=natural)
    )
