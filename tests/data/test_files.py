"""Files are read as they are, or refused in one line that says which and where."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tempfile
import warnings
import zipfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedbr.core.errors import InputError
from fedbr.data import files
from fedbr.data.files import Tree, cache_folder, cached, class_folders, natural, read_cifar, read_idx, read_images

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")

CONTENT = {"top/a.bin": b"first", "top/deep/b.bin": b"second" * 500, "c.txt": b""}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refusal(function, *arguments, **keywords):
    with pytest.raises(InputError) as error:
        function(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


def make_zip(content, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, blob in content.items():
            archive.writestr(name, blob)
    return buffer.getvalue()


def make_tar(content, mode="w", more=()):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, blob in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            archive.addfile(info, io.BytesIO(blob))
        for name, kind, target in more:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return buffer.getvalue()


ARCHIVES = {
    "z.zip": make_zip(CONTENT),
    "t.tar": make_tar(CONTENT),
    "g.tar.gz": make_tar(CONTENT, "w:gz"),
    "s.tgz": make_tar(CONTENT, "w:gz"),
    "UPPER.ZIP": make_zip(CONTENT),
}


def put(folder, content):
    for name, blob in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    return folder


def all_of(tree):
    return {name: tree.read(name) for name in tree.names}


# Trees


def test_a_folder(tmp_path):
    tree = Tree.open(put(tmp_path, CONTENT | {".hidden/x": b"", "__MACOSX/y": b"", "top/.z": b""}))
    assert all_of(tree) == CONTENT
    assert tree.files == tree.names
    assert refusal(tree.read, "../x") == f"../x: not in {tmp_path}"


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_alone_or_in_a_folder_or_one_deeper(tmp_path, name):
    expected = {f"{name}!/{inner}": blob for inner, blob in CONTENT.items()}
    with Tree.open(put(tmp_path, {name: ARCHIVES[name]}) / name) as tree:
        assert all_of(tree) == expected
        assert tree.files == []
    with Tree.open(str(tmp_path)) as tree:
        assert all_of(tree) == expected
    below = {"sub/" + n: blob for n, blob in expected.items()}
    tree = Tree.open(put(tmp_path / "x", {"sub/" + name: ARCHIVES[name], "deep/er/" + name: ARCHIVES[name]}))
    for _ in range(2):
        assert all_of(tree) == below | {"deep/er/" + name: ARCHIVES[name]}  # deeper, it is a file
        tree.close()  # and can be used again


def test_mac_droppings_and_dots_in_archives(tmp_path):
    content = {"./a.png": b"1", "__MACOSX/._a.png": b"2", ".DS_Store": b"3"}
    put(tmp_path, {"z.zip": make_zip(content), "t.tar": make_tar(content)})
    assert all_of(Tree.open(tmp_path)) == {"t.tar!/a.png": b"1", "z.zip!/a.png": b"1"}


def test_a_tar_that_a_server_decompressed_is_read_by_content(tmp_path):
    put(tmp_path, {"a.tar.gz": make_tar(CONTENT)})
    assert Tree.open(tmp_path).read("a.tar.gz!/c.txt") == b""


def test_links_in_archives(tmp_path):
    links = [("soft", tarfile.SYMTYPE, "/etc/passwd"), ("hard", tarfile.LNKTYPE, "c.txt")]
    links += [("dead", tarfile.LNKTYPE, "soft"), ("folder", tarfile.DIRTYPE, "")]
    soft = zipfile.ZipInfo("soft")
    soft.external_attr = 0o120777 << 16
    put(tmp_path, {"t.tar": make_tar(CONTENT, more=links), "z.zip": make_zip({soft: b"/etc/passwd", "x/": b""})})
    with Tree.open(tmp_path) as tree:
        assert tree.names == [f"t.tar!/{n}" for n in [*CONTENT, "hard"]]
        assert tree.read("t.tar!/hard") == CONTENT["c.txt"]


def test_links_in_folders_are_followed_but_not_in_circles(tmp_path):
    put(tmp_path, {"real/a": b"1", "tree/b": b"2"})
    (tmp_path / "tree" / "also").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "also too").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "circle").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / "dead").symlink_to(tmp_path / "nowhere")
    assert all_of(Tree.open(tmp_path / "tree")) == {"also/a": b"1", "also too/a": b"1", "b": b"2"}


@pytest.mark.parametrize("evil", ["../x", "/etc/x", "a/../../x", "..\\x", "C:\\x", "a\\..\\x", "\\x"])
@pytest.mark.parametrize("kind", ["z.zip", "t.tar", "g.tar.gz"])
def test_members_that_point_outside_are_refused(tmp_path, evil, kind):
    make = make_zip if kind == "z.zip" else make_tar
    tree = Tree.open(put(tmp_path, {kind: make({"good": b"", evil: b"x"})}))
    assert refusal(lambda: tree.names).startswith(f"{kind}: refused, since its member {evil!r} points out")


def test_the_hint_keeps_other_archives_closed_and_so_does_finding_a_file(tmp_path, monkeypatch):
    opened = []
    whole = files._decompressed
    monkeypatch.setattr(files, "_decompressed", lambda archive, *a: opened.append(archive) or whole(archive, *a))
    small, broken = make_tar(CONTENT, "w:gz"), b"\x1f\x8bnot a gzip file"
    put(
        tmp_path,
        {"cifar-10.tar.gz": small, "x/Cifar-10b.tgz": small, "cifar-100.tgz": broken, "a.zip": b"", "a.bin": b""},
    )
    tree = Tree.open(tmp_path, hint="cifar-10(?!0)")
    assert tree.files == ["a.bin"]
    assert tree.find("a.bin") == "a.bin"  # though the archives have one too
    assert opened == []
    assert set(all_of(tree)) == {"a.bin"} | {
        f"{a}!/{n}" for a in ("cifar-10.tar.gz", "x/Cifar-10b.tgz") for n in CONTENT
    }
    all_of(tree)
    assert opened == ["cifar-10.tar.gz", "x/Cifar-10b.tgz"]  # once each
    assert "cifar-100.tgz: " in refusal(lambda: Tree.open(tmp_path, hint="cifar-100").names)


def test_find(tmp_path):
    put(tmp_path, {"a/train": b"", "a/test.gz": b"", "b/xtrain": b"", "b/twice": b"", "a/twice": b""})
    put(tmp_path, {"z.zip": make_zip({"inner/train": b"", "only": b"", "deep/only2": b""})})
    tree = Tree.open(tmp_path)
    assert tree.find("test", "test.gz") == "a/test.gz"
    assert tree.find("train") == "a/train"
    assert tree.find("inner/train") == "z.zip!/inner/train"
    assert tree.need("only") == "z.zip!/only"
    assert tree.need("only2") == "z.zip!/deep/only2"
    assert tree.find("rain") is None
    assert refusal(tree.need, "rain", "rain.gz") == f"{tmp_path}: has no rain or rain.gz"
    assert "has twice more than once (a/twice, b/twice)" in refusal(tree.find, "twice")


def test_contents_are_the_files_on_disk(tmp_path):
    put(tmp_path, {"a.bin": b"x" * (2**20 + 1), "z.zip": b"never opened", "b.txt": b""})
    assert list(Tree.open(tmp_path).contents("bin|ZIP")) == ["a.bin", b"x" * 2**20, b"x", "z.zip", b"never opened"]


def test_a_large_tar_goes_to_a_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_IN_MEMORY", 100)
    put(tmp_path, {"g.tgz": ARCHIVES["s.tgz"]})
    assert all_of(Tree.open(tmp_path / "g.tgz")) == {f"g.tgz!/{n}": blob for n, blob in CONTENT.items()}


def test_what_is_not_there_or_no_archive(tmp_path):
    assert refusal(Tree.open, tmp_path / "no") == f"{tmp_path / 'no'}: there is no such file or folder"
    put(tmp_path, {"x.npz": b""})
    assert "x.npz: neither a folder nor an archive (.zip, .tar, " in refusal(Tree.open, tmp_path / "x.npz")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path):
    put(tmp_path, {"a": b"", "z.zip": b""})
    for name in ("a", "z.zip"):
        (tmp_path / name).chmod(0)
    assert refusal(Tree.open(tmp_path).read, "a") == "a: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("name", "blob", "words"),
    [
        ("z.zip", ARCHIVES["z.zip"][:-30], f"z.zip: ends at byte {len(ARCHIVES['z.zip']) - 30} without the directory"),
        ("z.zip", b"", "z.zip: ends at byte 0 without"),
        (
            "z.zip",
            make_zip({"a": b"abc"}, zipfile.ZIP_STORED).replace(b"abc", b"abd"),
            "z.zip!/a: cannot be read (Bad CRC-32",
        ),
        ("g.tgz", ARCHIVES["s.tgz"][:-30], f"g.tgz: ends at byte {len(ARCHIVES['s.tgz']) - 30}, in the middle"),
        ("g.tgz", ARCHIVES["s.tgz"][:-5] + b"\0" * 5, "g.tgz: damaged before byte"),
        ("t.tar", ARCHIVES["t.tar"][:1024], "t.tar: damaged or cut short at byte 1024 of the tar"),
        ("t.tar", ARCHIVES["t.tar"][:1500], "t.tar: damaged or cut short at byte 1024 of the tar"),
        (
            "t.tar",
            ARCHIVES["t.tar"][:1100] + b"?" + ARCHIVES["t.tar"][1101:],
            "t.tar: damaged or cut short at byte 1024",
        ),
        ("t.tar", ARCHIVES["t.tar"][:2000], "t.tar: cannot be read (unexpected end of data)"),
        ("t.tar", b"<html>not found</html>" * 100, "t.tar: cannot be read (invalid header)"),
    ],
    ids=["zip cut", "zip empty", "zip sum", "gz cut", "gz sum", "tar cut", "in header", "header", "in member", "html"],
)
def test_damaged_archives(tmp_path, name, blob, words):
    assert words in refusal(lambda: all_of(Tree.open(put(tmp_path, {name: blob}))))


def test_an_encrypted_zip(tmp_path):
    blob = bytearray(make_zip({"a": b"abc"}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        blob[blob.index(header) + flags] |= 1
    assert "z.zip!/a: cannot be read (" in refusal(Tree.open(put(tmp_path, {"z.zip": blob})).read, "z.zip!/a")


@pytest.mark.parametrize("name", ["z.zip", "t.tar", "g.tar.gz"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_damage_is_refused_or_does_not_matter(name, data):
    blob = bytearray(ARCHIVES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, min(len(blob), 4000) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            all_of(Tree.open(put(Path(folder), {name: blob})))
            message = name
        except InputError as error:  # and nothing else
            message = str(error)
    assert message.startswith(name)
    assert "\n" not in message


# IDX


def idx(*shape, kind=8, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return values, bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values.tobytes()


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
    packed = gzip.compress(blob)
    for end in range(2, len(packed) - 8):
        assert "when decompressed, " in refusal(read_idx, "x.gz", packed[:end])
    assert refusal(read_idx, "x", blob + b"!") == "x: goes on after byte 40, where 4 × 3 × 2 bytes end"


def test_idx_that_is_something_else():
    _, blob = idx(4, 3, 2)
    assert refusal(read_idx, "x", b"<html>") == "x: bytes 0 and 1 are 60 and 104, must be 0: not an IDX file"
    assert refusal(read_idx, "x", idx(2, kind=13)[1]) == "x: byte 2 is 13, must be 8: not an IDX file of bytes"
    assert refusal(read_idx, "x", blob, 1) == "x: byte 3 is 3, must be 1: the dimensions"
    assert refusal(read_idx, "x", b"\0\0\x08\0") == "x: byte 3 is 0, must be at least 1: the dimensions"
    huge = b"\0\0\x08\x03" + b"\xff" * 12
    assert refusal(read_idx, "x", huge) == f"x: ends at byte 16, {16 + (2**32 - 1) ** 3} expected"


def test_idx_in_damaged_gzip():
    packed = bytearray(gzip.compress(idx(100, 28, 28)[1]))
    position = len(packed) // 2
    packed[position : position + 20] = b"\xff" * 20
    message = refusal(read_idx, "x.gz", bytes(packed))
    assert message.startswith("x.gz: damaged near byte ")
    assert int(message.split()[4]) >= position - 1024


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
            f"x.bin: ends at byte {len(blob) - cut}, its last whole record (of {record} bytes) at byte {whole * record}"
        )
    assert "x.bin: ends at byte 0, " in refusal(read_cifar, "x.bin", b"", label_bytes)
    wrong = bytearray(blob)
    wrong[5 * record + label_bytes - 1] = 100
    message = refusal(read_cifar, "x.bin", bytes(wrong), label_bytes, maximum)
    byte, largest = 5 * record + label_bytes - 1, (9, 99)[label_bytes - 1]
    assert message == f"x.bin: record 5, byte {byte}: label 100, at most {largest} expected"
    assert read_cifar("x", bytes(wrong), label_bytes)[1][5, -1] == 100  # without a maximum anything goes


# Images


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(height=8, width=8, channels=3, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return values, Image.fromarray(values.squeeze())


def decode(tmp_path, image, size=8, mode="RGB", **options):
    tree = Tree.open(put(tmp_path, {"x.png": image if isinstance(image, bytes) else encoded(image, **options)}))
    return read_images(tree, ["x.png"], size, mode)[0]


def test_images_of_the_right_size_are_exact(tmp_path):
    values, image = picture()
    np.testing.assert_array_equal(decode(tmp_path, image), values.transpose(2, 0, 1))
    values, image = picture(channels=1)
    grey = values.transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(tmp_path, image, mode="L"), grey)
    np.testing.assert_array_equal(decode(tmp_path, image), np.repeat(grey, 3, axis=0))
    np.testing.assert_array_equal(decode(tmp_path, image, kind="PPM", mode="L"), grey)


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
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    np.testing.assert_array_equal(decode(tmp_path, Image.fromarray(deep), mode="L")[0], deep >> 8)
    bits = image.convert("1")
    np.testing.assert_array_equal(decode(tmp_path, bits, mode="L")[0], np.asarray(bits) * 255)


@pytest.mark.parametrize(("height", "width", "size"), [(16, 16, 8), (5, 9, 8), (64, 32, 4)])
def test_resizing_agrees_with_the_plain_formula(tmp_path, height, width, size):
    values, image = picture(height, width)

    def weights(n):  # a triangle as wide as the output pixel, or as the input pixel when that is wider
        scale = n / size
        support = max(scale, 1.0)
        centres = (np.arange(size) + 0.5) * scale
        distance = np.abs(np.arange(n) + 0.5 - centres[:, None]) / support
        w = np.maximum(0, 1 - distance)
        return w / w.sum(axis=1, keepdims=True)

    expected = np.einsum("ih,jw,hwc->cij", weights(height), weights(width), values.astype(float))
    assert np.abs(decode(tmp_path, image, size) - expected).max() <= 1.01  # rounded after each direction


def test_many_images_report_progress(tmp_path):
    put(tmp_path, {"z.zip": make_zip({f"{i}.png": encoded(picture(seed=i)[1]) for i in range(250)})})
    tree, told = Tree.open(tmp_path), []
    names = [f"z.zip!/{i}.png" for i in reversed(range(250))]
    x = read_images(tree, names, 8, progress=lambda *a: told.append(a))
    assert told == [(100, 250), (200, 250), (250, 250)]
    assert x.shape == (250, 3, 8, 8)
    np.testing.assert_array_equal(x[7], picture(seed=242)[0].transpose(2, 0, 1))
    assert read_images(tree, [], 8, "L").shape == (0, 1, 8, 8)


def test_what_is_not_an_image_is_named(tmp_path):
    values = encoded(picture(64, 64)[1])
    for blob in (b"", b"hello", values[:100], b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", values[:-700]):
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
    found = class_folders(names)
    assert found.items == [(None, "9", "9/a9.png"), (None, "9", "9/a10.JPG"), (None, "10", "10/b.png")]
    assert found.classes == ["9", "10"]
    assert found.clients == []


def test_client_folders():
    names = [f"{client}/{label}/{i}.png" for client in ("c2", "c10") for label in ("dog", "cat") for i in (2, 10, 1)]
    found = class_folders(names)
    assert found.clients == ["c2", "c10"]
    assert found.classes == ["cat", "dog"]
    assert found.items[0] == ("c2", "cat", "c2/cat/1.png")
    assert [item.name for item in found.items][:3] == ["c2/cat/1.png", "c2/cat/2.png", "c2/cat/10.png"]


@pytest.mark.parametrize("root", ["", "PACS/", "a/b/c/", "PACS.zip!/PACS/", "x/all.tar.gz!/"])
def test_common_folders_do_not_count(root):
    found = class_folders([root + n for n in ("photo/dog/1.png", "sketch/dog/1.png", "sketch/cat/1.png")])
    assert (found.clients, found.classes) == (["photo", "sketch"], ["cat", "dog"])
    found = class_folders([root + n for n in ("dog/1.png", "cat/1.png")])
    assert (found.clients, found.classes) == ([], ["cat", "dog"])
    found = class_folders([root + "dog/1.png"])
    assert (found.clients, found.classes) == ([], ["dog"])


def test_an_archive_for_each_client():
    found = class_folders(["photo.zip!/dog/1.png", "photo.zip!/cat/1.png", "Art.v2.tar.gz!/dog/1.png"])
    assert (found.clients, found.classes) == (["Art.v2", "photo"], ["cat", "dog"])


def test_no_images_no_classes():
    assert class_folders(["a/b.txt"]) == ([], [], [])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["r/stray.png", "r/a/b/1.png", "r/a/c/1.png"], "r/stray.png: lies 1 folders deep, others 3; all images must "),
        (["a/b/1.png", "a/c/1.png", "a/d/e/1.png"], "a/d/e/1.png: lies 2 folders deep, others 1; all images must be"),
        (["dog/1.png", "photo/cat/1.png"], "photo/cat/1.png: lies 2 folders deep, others 1; "),
        (["a/b/c/1.png", "d/e/f/1.png"], "a/b/c/1.png: lies 3 folders deep; "),
        (["x.zip!/P/photo/dog/1.png", "y.zip!/P/photo/dog/1.png"], "x.zip!/P/photo/dog/1.png: lies 4 folders deep; "),
        (["1.png"], "1.png: lies 0 folders deep; all images must be <class>/<image>, or all <client>/<class>/<image>"),
    ],
)
def test_mixed_layouts_are_refused(names, message):
    assert message in refusal(class_folders, names)


@given(st.lists(st.text("a019 ", max_size=4)))
def test_natural_order_is_total(texts):
    backwards = texts[::-1]
    assert sorted(texts, key=natural) == sorted(backwards, key=natural)
    numbers = [t for t in texts if t.isdigit()]
    assert sorted(numbers, key=natural) == sorted(numbers, key=lambda t: (int(t), t))


# The cache


ARRAYS = {
    "x": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "part": np.arange(20)[::3],
    "big-endian": np.arange(3, dtype=">u4"),
    "scalar": np.array(2.5),
    "none": np.zeros((0, 5), np.float32),
    "flags": np.array([True, False]),
}


def check_arrays(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[key])
        assert array.shape == ARRAYS[key].shape
        assert array.dtype == ARRAYS[key].dtype.newbyteorder("=")


def never():
    raise AssertionError("the cache was not used")


def test_what_was_made_once_is_not_made_again(cache):
    check_arrays(cached(["a", b"b"], lambda: ARRAYS))
    loaded = cached(iter(["a", b"b"]), never)
    check_arrays(loaded)
    for array in loaded.values():
        array.fill(0)  # writable, and nobody else's
    check_arrays(cached(["a", b"b"], never))
    assert [path.suffix for path in cache.iterdir()] == [".safetensors"]  # no temporary file stays


@pytest.mark.parametrize("parts", [["a", b"c"], ["ab"], ["a", "b"], [b"a", b"b"], ["a", b"b", ""], []])
def test_other_parts_are_another_key(parts):
    cached(["a", b"b"], lambda: ARRAYS)
    assert cached(parts, lambda: {"x": np.zeros(1)}).keys() == {"x"}


def test_a_damaged_cache_is_made_anew(cache):
    cached(["k"], lambda: ARRAYS)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    damages = [b"", whole[:-1], whole + b"!", b"garbage", whole[:-1] + bytes([whole[-1] ^ 1])]
    damages += [bytes([*whole[:i], whole[i] ^ 1, *whole[i + 1 :]]) for i in range(8, len(whole), 37)]
    for blob in damages:
        path.write_bytes(blob)
        made = []
        check_arrays(cached(["k"], lambda made=made: made.append(1) or ARRAYS))
        assert made == [1]
        assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_matter(tmp_path, monkeypatch):
    put(tmp_path, {"file": b""})
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "file"))
    check_arrays(cached(["k"], lambda: ARRAYS))
    monkeypatch.setenv("FEDBR_CACHE", "/proc/nowhere")
    check_arrays(cached(["k"], lambda: ARRAYS))


def test_an_interrupted_write_leaves_nothing(cache, monkeypatch):
    def broken(_, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(files.safetensors.numpy, "save_file", broken)
    with pytest.raises(KeyboardInterrupt):
        cached(["k"], lambda: ARRAYS)
    assert list(cache.iterdir()) == []


def test_mistakes_of_the_maker_are_not_hidden(cache):
    with pytest.raises(ZeroDivisionError):
        cached(["k"], lambda: 1 / 0)
    assert not cache.exists()


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("FEDBR_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    for platform, expected in (
        ("linux", Path("/xdg/fedbr")),
        ("darwin", Path.home() / "Library/Caches/fedbr"),
        ("win32", Path("/local/fedbr/cache")),
    ):
        monkeypatch.setattr(files.sys, "platform", platform)
        monkeypatch.setenv("LOCALAPPDATA", "/local")
        assert cache_folder() == expected
    monkeypatch.setattr(files.sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/fedbr"


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
    with Tree.open(SHARED, hint) as tree:
        x, labels = read_cifar(name, tree.read(tree.need(name)), label_bytes, maximum)
    assert x.shape == (len(labels), 3, 32, 32)
    assert 100 < x.mean() < 140
    counts = np.bincount(labels[:, -1])
    assert len(counts) == np.max(maximum) + 1
    assert each is None or set(counts) == {each}


@real
def test_pacs_originals_give_the_small_images():
    with Tree.open(SHARED, "PACS-original") as originals, Tree.open(SHARED, "PACS-32px") as small:
        found, every = class_folders(originals.names), class_folders(small.names)
        assert found.clients == every.clients == ["art_painting", "cartoon", "photo", "sketch"]
        assert found.classes == every.classes == ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
        assert (len(found.items), len(every.items)) == (112, 9991)
        names = [item.name for item in found.items][::5]
        twins = [n.replace("-original-sample", "-32px").rpartition(".")[0] + ".png" for n in names]
        key = chain(["pacs"], originals.contents())
        x = cached(key, lambda: {"x": read_images(originals, names, 32)})["x"]
        np.testing.assert_array_equal(x, read_images(small, twins, 32))
