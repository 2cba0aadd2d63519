"""Files are read as they are, or refused in one line that says which and where."""

from __future__ import annotations

import gzip
import io
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
from making import make_zip, put, refusal
from PIL import Image

from fedbr.data.files import Tree
from fedbr.data.readers import class_folders, read_cifar, read_idx, read_images, to_eight_bits

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


# IDX


def idx(*shape, kind=8, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return values, bytes([0, 0, kind, len(shape)]) + struct.pack(
        f">{len(shape)}I", *shape
    ) + values.tobytes()


@pytest.mark.parametrize("shape", [(5,), (4, 3, 2), (0, 28, 28), (2, 1, 1, 2)])
def test_idx_plain_and_gzip(shape):
    values, blob = idx(*shape)
    for form in (blob, gzip.compress(blob), gzip.compress(blob[:5]) + gzip.compress(blob[5:])):
        array = read_idx("x", form, len(shape))
        assert array.dtype == np.uint8
        assert array.flags.writeable
        np.testing.assert_array_equal(array, values)


def test_idx_cut_anywhere_names_the_byte():
    _, blob = idx(4, 3, 2)
    assert refusal(read_idx, "x.gz", blob[:-1]) == "x.gz: ends at byte 39, 40 expected"
    for end in range(len(blob)):
        expected = "at least 8" if end < 4 else "at least 16" if end < 16 else "40"
        assert refusal(read_idx, "x", blob[:end]) == f"x: ends at byte {end}, {expected} expected"
    assert (
        refusal(read_idx, "x.gz", gzip.compress(blob[:-1]))
        == "x.gz: ends at byte 39 when decompressed, 40 expected"
    )
    for packed in (gzip.compress(blob), gzip.compress(blob[:5]) + gzip.compress(blob[5:])):
        for end in range(2, len(packed)):
            if end != len(gzip.compress(blob[:5])) or len(packed) == len(gzip.compress(blob)):
                message = refusal(read_idx, "x.gz", packed[:end])
                assert message == f"x.gz: ends at byte {end}, in the middle of its compressed data"
        np.testing.assert_array_equal(
            read_idx("x.gz", packed + bytes(9)), read_idx("x", blob)
        )  # padding
    assert (
        refusal(read_idx, "x", blob + b"!") == "x: goes on after byte 40, where 4 × 3 × 2 bytes end"
    )


def test_idx_that_is_something_else():
    _, blob = idx(4, 3, 2)
    assert (
        refusal(read_idx, "x", b"<html>")
        == "x: bytes 0 and 1 are 60 and 104, must be 0: not an IDX file"
    )
    assert (
        refusal(read_idx, "x", idx(2, kind=13)[1])
        == "x: byte 2 is 13, must be 8: not an IDX file of bytes"
    )
    assert refusal(read_idx, "x", blob, 1) == "x: byte 3 is 3, must be 1: the dimensions"
    assert (
        refusal(read_idx, "x", b"\0\0\x08\0")
        == "x: byte 3 is 0, must be at least 1: the dimensions"
    )
    huge = b"\0\0\x08\x03" + b"\xff" * 12
    assert refusal(read_idx, "x", huge) == f"x: ends at byte 16, {16 + (2**32 - 1) ** 3} expected"


def test_idx_in_damaged_gzip():
    packed = bytearray(gzip.compress(idx(100, 28, 28)[1]))
    position = len(packed) // 2
    packed[position : position + 20] = b"\xff" * 20
    message = refusal(read_idx, "x.gz", bytes(packed))
    assert message.startswith("x.gz: damaged before byte ")
    assert position < int(message.split()[4]) <= len(packed)
    whole = gzip.compress(idx(100, 28, 28)[1])
    for place in (-1, -8):  # the length and the checksum of what was packed
        packed = bytearray(whole)
        packed[place] ^= 1
        assert refusal(read_idx, "x.gz", bytes(packed)).startswith(
            f"x.gz: damaged before byte {len(whole)} ("
        )
    message = refusal(read_idx, "x.gz", whole + b"more")
    assert message.startswith(f"x.gz: damaged before byte {len(whole) + 4} (")


def test_idx_labels_that_are_too_large_name_the_byte():
    blob = b"\0\0\x08\x01\0\0\0\x04" + bytes([3, 9, 10, 11])
    assert read_idx("y", blob, 1, 11).tolist() == [3, 9, 10, 11]
    assert refusal(read_idx, "y", blob, 1, 9) == "y: byte 10: label 10, at most 9 expected"
    assert refusal(read_idx, "y.gz", gzip.compress(blob), 1, 9).startswith(
        "y.gz: byte 10 when decompressed: label 10"
    )


# CIFAR


@pytest.mark.parametrize(("label_bytes", "maximum"), [(1, 9), (2, (19, 99))])
def test_cifar_records(label_bytes, maximum):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (7, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, np.add(maximum, 1), (7, label_bytes), dtype=np.uint8)
    blob = np.concatenate([labels, x.reshape(7, -1)], axis=1).tobytes()
    got, got_labels = read_cifar("x", blob, label_bytes, maximum)
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(got_labels, labels)
    assert got.flags.writeable
    assert got.flags.c_contiguous
    record = 3072 + label_bytes
    for cut, whole in ((1, 6), (record - 1, 6), (record + 1, 5)):
        message = refusal(read_cifar, "x.bin", blob[:-cut], label_bytes, maximum)
        assert message == (
            f"x.bin: ends at byte {len(blob) - cut}, its last whole record (of {record} bytes) "
            f"at byte {whole * record}"
        )
    assert "x.bin: ends at byte 0, " in refusal(read_cifar, "x.bin", b"", label_bytes)
    wrong = bytearray(blob)
    wrong[5 * record + label_bytes - 1] = 100
    message = refusal(read_cifar, "x.bin", bytes(wrong), label_bytes, maximum)
    byte, largest = 5 * record + label_bytes - 1, (9, 99)[label_bytes - 1]
    assert message == f"x.bin: record 5, byte {byte}: label 100, at most {largest} expected"
    assert (
        read_cifar("x", bytes(wrong), label_bytes)[1][5, -1] == 100
    )  # without a maximum anything goes


# Images


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(height=8, width=8, channels=3, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return values, Image.fromarray(values.squeeze())


def decode(tmp_path, image, size=8, **options):
    tree = Tree.open(
        put(tmp_path, {"x.png": image if isinstance(image, bytes) else encoded(image, **options)})
    )
    return read_images(tree, ["x.png"], size)[0]


def test_images_of_the_right_size_are_exact(tmp_path):
    values, image = picture()
    np.testing.assert_array_equal(decode(tmp_path, image), values.transpose(2, 0, 1))
    values, image = picture(channels=1)
    grey = values.transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(tmp_path, image), np.repeat(grey, 3, axis=0))
    np.testing.assert_array_equal(decode(tmp_path, image, kind="PPM"), np.repeat(grey, 3, axis=0))


def test_other_kinds_become_rgb(tmp_path):
    values, image = picture()
    rgb = values.transpose(2, 0, 1)
    alpha = image.copy()
    alpha.putalpha(7)
    np.testing.assert_array_equal(decode(tmp_path, alpha), rgb)
    palette = image.quantize(64)
    expected = np.asarray(palette.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(tmp_path, palette), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = decode(tmp_path, palette, transparency=bytes(range(64)))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(decode(tmp_path, image.convert("CMYK"), kind="TIFF"), rgb)
    bits = image.convert("1")
    np.testing.assert_array_equal(
        decode(tmp_path, bits), np.repeat(np.asarray(bits)[None] * 255, 3, axis=0)
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("largest", [200, 255, 256, 65535])
def test_sixteen_bits_are_divided_by_256_whatever_is_in_the_image(tmp_path, kind, largest):
    deep = np.linspace(0, largest, 64).astype(np.uint16).reshape(8, 8)
    got = decode(tmp_path, Image.fromarray(deep), kind=kind)
    np.testing.assert_array_equal(got, np.repeat(deep[None] >> 8, 3, axis=0))


def test_sixteen_bits_as_older_decoders_give_them():
    deep = np.array([[0, 200, 256, 65535]], dtype=np.int32)
    image = Image.fromarray(deep)
    assert image.mode == "I"
    image.format = "PNG"
    np.testing.assert_array_equal(to_eight_bits(image), deep >> 8)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_thirty_two_bits_a_pixel_are_refused(tmp_path, mode):
    message = refusal(decode, tmp_path, Image.new(mode, (8, 8), 1), kind="TIFF")
    assert (
        message
        == f"x.png: not an image that can be read (mode {mode}, 32 bits a pixel; expected 8 or 16)"
    )


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, 8), (5, 9, 8), (64, 32, 4)])
def test_resizing_agrees_with_the_plain_formula(tmp_path, height, width, size):
    values, image = picture(height, width)

    def weights(
        n,
    ):  # a triangle as wide as the output pixel, or as the input pixel when that is wider
        scale = n / size
        support = max(scale, 1.0)
        centres = (np.arange(size) + 0.5) * scale
        distance = np.abs(np.arange(n) + 0.5 - centres[:, None]) / support
        w = np.maximum(0, 1 - distance)
        return w / w.sum(axis=1, keepdims=True)

    expected = np.einsum("ih,jw,hwc->cij", weights(height), weights(width), values.astype(float))
    assert (
        np.abs(decode(tmp_path, image, size) - expected).max() <= 1.01
    )  # rounded after each direction


def test_many_images_in_their_order(tmp_path):
    put(tmp_path, {"z.zip": make_zip({f"{i}.png": encoded(picture(seed=i)[1]) for i in range(25)})})
    tree = Tree.open(tmp_path)
    x = read_images(tree, [f"z.zip!/{i}.png" for i in reversed(range(25))], 8)
    assert x.shape == (25, 3, 8, 8)
    np.testing.assert_array_equal(x[7], picture(seed=17)[0].transpose(2, 0, 1))
    assert read_images(tree, [], 8).shape == (0, 3, 8, 8)


def test_what_is_not_an_image_is_named(tmp_path):
    values = encoded(picture(64, 64)[1])
    for blob in (
        b"",
        b"hello",
        values[:100],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n",
        values[:-700],
    ):
        assert refusal(decode, tmp_path, blob).startswith("x.png: not an image that can be read (")


# Class folders


def test_class_folders():
    names = [
        "10/b.png",
        "9/a10.JPG",
        "9/a9.png",
        "readme.txt",
        "9/notes.txt",
        ".x/a.png",
        "__MACOSX/9/a.png",
        "9/._a.png",
    ]
    folders = class_folders(names)
    assert folders.items == [
        (None, "9", "9/a9.png"),
        (None, "9", "9/a10.JPG"),
        (None, "10", "10/b.png"),
    ]
    assert folders.classes == ["9", "10"]
    assert folders.clients == []


def test_client_folders():
    names = [
        f"{client}/{label}/{i}.png"
        for client in ("c2", "c10")
        for label in ("dog", "cat")
        for i in (2, 10, 1)
    ]
    folders = class_folders(names)
    assert folders.clients == ["c2", "c10"]
    assert folders.classes == ["cat", "dog"]
    assert folders.items[0] == ("c2", "cat", "c2/cat/1.png")
    assert [item.name for item in folders.items][:3] == [
        "c2/cat/1.png",
        "c2/cat/2.png",
        "c2/cat/10.png",
    ]


@pytest.mark.parametrize("root", ["", "PACS/", "a/b/c/", "PACS.zip!/PACS/", "x/all.tar.gz!/"])
def test_common_folders_do_not_count(root):
    folders = class_folders(
        [root + n for n in ("photo/dog/1.png", "sketch/dog/1.png", "sketch/cat/1.png")]
    )
    assert (folders.clients, folders.classes) == (["photo", "sketch"], ["cat", "dog"])
    folders = class_folders([root + n for n in ("dog/1.png", "cat/1.png")])
    assert (folders.clients, folders.classes) == ([], ["cat", "dog"])
    folders = class_folders([root + "dog/1.png"])
    assert (folders.clients, folders.classes) == ([], ["dog"])


def test_an_archive_for_each_client():
    folders = class_folders(
        ["photo.zip!/dog/1.png", "photo.zip!/cat/1.png", "Art.v2.tar.gz!/dog/1.png"]
    )
    assert (folders.clients, folders.classes) == (["Art.v2", "photo"], ["cat", "dog"])


def test_no_images_no_classes():
    assert class_folders(["a/b.txt"]) == ([], [], [])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["r/stray.png", "r/a/b/1.png", "r/a/c/1.png"],
            "r/stray.png: lies 1 folders deep, others 3; all images must ",
        ),
        (
            ["a/b/1.png", "a/c/1.png", "a/d/e/1.png"],
            "a/d/e/1.png: lies 2 folders deep, others 1; all images must be",
        ),
        (["dog/1.png", "photo/cat/1.png"], "photo/cat/1.png: lies 2 folders deep, others 1; "),
        (["a/b/c/1.png", "d/e/f/1.png"], "a/b/c/1.png: lies 3 folders deep; "),
        (
            ["x.zip!/P/photo/dog/1.png", "y.zip!/P/photo/dog/1.png"],
            "x.zip!/P/photo/dog/1.png: lies 4 folders deep; ",
        ),
        (
            ["1.png"],
            "1.png: lies 0 folders deep; all images must be <class>/<image>, or all "
            "<client>/<class>/<image>",
        ),
    ],
)
def test_mixed_layouts_are_refused(names, message):
    assert message in refusal(class_folders, names)


# The real files


@real
def test_mnist():
    tree = Tree.open(SHARED, hint="mnist")
    for part, count in (("train", 60000), ("t10k", 10000)):
        x = tree.need(f"{part}-images-idx3-ubyte", f"{part}-images-idx3-ubyte.gz")
        y = tree.need(f"{part}-labels-idx1-ubyte", f"{part}-labels-idx1-ubyte.gz")
        assert x == f"mnist/{part}-images-idx3-ubyte.gz"
        images, labels = read_idx(x, tree.read(x), 3), read_idx(y, tree.read(y), 1)
        assert images.shape == (count, 28, 28)
        assert set(labels) == set(range(10))
        assert images.mean() == pytest.approx(33.3, abs=0.5)  # the well-known 0.1307 of 255


@real
@pytest.mark.parametrize(
    ("hint", "name", "label_bytes", "maximum", "each"),
    [
        ("cifar-10-", "test_batch.bin", 1, 9, 200),
        ("cifar-10-", "data_batch_5.bin", 1, 9, None),
        ("cifar-100-", "test.bin", 2, (19, 99), 15),
    ],
)
def test_cifar(hint, name, label_bytes, maximum, each):
    tree = Tree.open(SHARED, hint)
    x, labels = read_cifar(name, tree.read(tree.need(name)), label_bytes, maximum)
    assert x.shape == (len(labels), 3, 32, 32)
    assert 100 < x.mean() < 140
    counts = np.bincount(labels[:, -1])
    assert len(counts) == np.max(maximum) + 1
    assert each is None or set(counts) == {each}


@real
def test_pacs_originals_give_the_small_images():
    originals, small = (Tree.open(SHARED, hint) for hint in ("PACS-original", "PACS-32px"))
    folders, every = class_folders(originals.names), class_folders(small.names)
    assert folders.clients == every.clients == ["art_painting", "cartoon", "photo", "sketch"]
    assert (
        folders.classes
        == every.classes
        == ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
    )
    assert (len(folders.items), len(every.items)) == (112, 9991)
    names = [item.name for item in folders.items][::5]
    twins = [n.replace("-original-sample", "-32px").rpartition(".")[0] + ".png" for n in names]
    np.testing.assert_array_equal(read_images(originals, names, 32), read_images(small, twins, 32))
