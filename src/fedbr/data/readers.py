"""Read what is in a data set's files: IDX, CIFAR records, images, folders that name classes."""

from __future__ import annotations

import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
        name: of the file, for messages.
        blob: its content.
        dimensions: how many it must have; None: any number.
        maximum: the largest value that is allowed.

    Raises:
        InputError: it is something else, or damaged; the message names the byte.

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
    _check_idx_header(name, content, dimensions)
    start = 4 + 4 * content[3]
    check_length(start, f"at least {start}")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    end = start + math.prod(shape)
    check_length(end, str(end))
    if len(content) > end:
        sizes = " × ".join(map(str, shape))
        raise InputError(f"{name}: goes on after byte {end}{where}, where {sizes} bytes end")
    values = np.frombuffer(content, np.uint8, offset=start)
    too_large = np.flatnonzero(values > maximum)
    if len(too_large):
        first = too_large[0]
        raise InputError(
            f"{name}: byte {start + first}{where}: label {values[first]}, at most {maximum} "
            "expected"
        )
    return values.reshape(shape).copy()  # not a view: writable


def _check_idx_header(name: str, content: bytes, dimensions: int | None) -> None:
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
    """Decompress all members, up to and with their checksums."""
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
        name: of the file, for messages.
        blob: its content.
        label_bytes: how many labels a record has.
        maximum: the largest label that is allowed, or that of each byte.

    Returns:
        Images [n, 3, 32, 32] and labels [n, label_bytes].

    Raises:
        InputError: it does not end with a record, or a label is too large.

    >>> images, labels = read_cifar("batch", bytes([7] + 3072 * [0]), label_bytes=1)
    >>> images.shape, labels.tolist()
    ((1, 3, 32, 32), [[7]])
    """
    size = label_bytes + math.prod(CIFAR_SHAPE)  # of a record
    count, rest = divmod(len(blob), size)
    if rest or not count:
        raise InputError(
            f"{name}: ends at byte {len(blob)}, its last whole record (of {size} bytes) at byte "
            f"{count * size}"
        )
    records = np.frombuffer(blob, np.uint8).reshape(count, size)
    labels = records[:, :label_bytes].copy()
    limits = np.broadcast_to(maximum, label_bytes)
    too_large = np.argwhere(labels > limits)
    if len(too_large):
        row, column = too_large[0]
        raise InputError(
            f"{name}: record {row}, byte {row * size + column}: label {labels[row, column]}, "
            f"at most {limits[column]} expected"
        )
    images = records[:, label_bytes:].reshape(count, *CIFAR_SHAPE).copy()
    return images, labels


def read_images(tree: Tree, names: Sequence[str], size: int) -> Bytes:
    """Decode images.

    Those of another size are resized: bilinear, and all pixels count.

    Args:
        tree: the files.
        names: of the images.
        size: pixels each way.

    Returns:
        The images, [n, 3, size, size].

    Raises:
        InputError: a file is no image that can be read.
    """
    require("PIL", extra="images", needed_by="image files")
    x = np.empty((len(names), 3, size, size), np.uint8)
    for i, name in enumerate(names):
        x[i] = _read_image(name, tree.read(name), size)
    return x


def load_images(tree: Tree, names: Sequence[str], size: int) -> Bytes:
    """Decode images as ``read_images`` does; the result is kept on disk for the next time."""

    def key_parts() -> Iterator[bytes | str]:
        yield f"upright RGB images {size}"
        for name in names:
            yield name
            yield tree.read(name)

    return load_or_make(key_parts(), lambda: {"x": read_images(tree, names, size)})["x"]


ORIENTATION = 0x0112  # EXIF: how a camera was held


def _read_image(name: str, blob: bytes, size: int) -> Bytes:
    from PIL import Image  # a data set without images need not wait for it

    try:
        with Image.open(io.BytesIO(blob), formats=DECODERS) as image:
            rgb = to_eight_bits(image).convert(
                "RGB"
            )  # before resizing: a palette cannot be interpolated
            if rgb.size != (size, size):
                rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(rgb).transpose(2, 0, 1)
    except Exception as error:  # the decoders raise almost anything on damaged files
        words = " ".join(str(error).split())
        reason = re.sub(r" ?<[^>]*>", "", words)  # without the names of objects
        raise InputError(f"{name}: not an image that can be read ({reason})") from error


def to_eight_bits(image: Image.Image) -> Image.Image:
    """Return an image upright, grey or RGB, with 8 bits a channel; of 16 the upper 8 are taken.

    Raises:
        ValueError: it has 32 bits a pixel.
    """
    from PIL import Image, ImageOps

    if image.getexif().get(ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    has_16_bits = image.mode == "I" and image.format in ("PNG", "PPM")
    if has_16_bits or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64)  # convert would cut off at 255
        return Image.fromarray((values >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode}, 32 bits a pixel; expected 8 or 16")
    if image.mode in ("1", "L"):
        return image.convert("L")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


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
    images = [name for name in names if name.lower().endswith(IMAGES) and not is_hidden(name)]
    # An archive is a folder too.
    folders = [MEMBER.sub("/", name).split("/")[:-1] for name in images]
    common = _count_common(folders)
    depths = [len(parts) - common for parts in folders]
    if images and set(depths) not in ({1}, {2}):
        raise _explain_depths(images, depths)
    items = []
    for name, parts, depth in zip(images, folders, depths, strict=True):
        client = parts[-2] if depth == 2 else None
        items.append(Item(client, parts[-1], name))
    items.sort(key=_natural_order)
    classes = {item.label for item in items}
    clients = {item.client for item in items if item.client is not None}
    return ClassFolders(items, sorted(classes, key=natural_key), sorted(clients, key=natural_key))


def _count_common(folders: Sequence[Sequence[str]]) -> int:
    """Count the outer folders that all paths have in common.

    The innermost folder is a class even if it is the only one.
    """
    outer = [parts[:-1] for parts in folders]
    count = 0
    for level in zip(*outer, strict=False):
        if len(set(level)) > 1:
            break
        count += 1
    return count


def _natural_order(item: Item) -> tuple[object, ...]:
    return natural_key(item.client or ""), natural_key(item.label), natural_key(item.name)


def _explain_depths(images: Sequence[str], depths: Sequence[int]) -> InputError:
    """Name an image that lies at another depth than most."""
    (usual, _), *others = Counter(depths).most_common()
    rarest, beside = usual, ""
    if others:
        rarest, _ = min(others, key=lambda pair: pair[1])
        beside = f", others {usual}"
    return InputError(
        f"{images[depths.index(rarest)]}: lies {rarest} folders deep{beside}; "
        "all images must be <class>/<image>, or all <client>/<class>/<image>"
    )
