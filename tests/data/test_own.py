"""Files of users: an .npz or folders of images, read as they are meant or refused in one line."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from making import make_zip, refusal
from PIL import Image

from fedbr.data import DataOptions, load
from fedbr.data.sources import folder, npz


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "cache"))


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


# npz


def test_the_names_of_classes_and_clients(tmp_path: Path) -> None:
    x, i = np.zeros((40, 3)), np.arange(40)
    words = save(
        tmp_path / "a.npz",
        x=x,
        y=np.array(["dog", "cat"])[i % 2],
        client=np.array(["b", "a"])[i // 20],
    )
    federation = load(DataOptions(name="npz", path=words, partition="domains"), 0)
    assert (federation.class_names, federation.client_names) == (["cat", "dog"], ["a", "b"])
    with pytest.warns(RuntimeWarning, match="2 clients of their own"):
        assert (
            load(DataOptions(name="npz", path=words, partition="iid", clients=4), 0).client_names
            is None
        )
    source = npz.load(
        save(tmp_path / "b.npz", x=x, y=np.array([b"dog", b"c\xc3\xa4t"])[i % 2], client=i % 2 + 7)
    )
    assert (source.class_names, source.client_names) == (["cät", "dog"], ["7", "8"])
    assert (
        npz.load(save(tmp_path / "c.npz", x=x, y=i % 3)).class_names is None
    )  # numbers from 0 say it all
    assert npz.load(save(tmp_path / "d.npz", x=x, y=5.0 * (i % 3) + 1)).class_names == [
        "1",
        "6",
        "11",
    ]


@pytest.mark.parametrize("kind", [">f8", ">f4", np.longdouble, np.float16])
def test_floats_of_any_kind(tmp_path: Path, kind: Any) -> None:
    x, y = (
        np.random.default_rng(0).normal(size=(40, 3)).astype(kind),
        (np.arange(40) % 2).astype(">i8"),
    )
    source = npz.load(save(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y))
    assert np.array_equal(
        source.train.x.numpy(), x.astype(float).astype(source.train.x.numpy().dtype)
    )
    assert source.train.x.dtype in (torch.float64, torch.float32, torch.float16)


X, Y = np.zeros((9, 2)), np.arange(9) % 2
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"y_test": Y[:, None]}, "y_test has shape (9, 1); expected one value for each of 9 samples"),
    ({"y_test": Y[:4]}, "y_test has shape (4,)"),
    ({"y": np.array(3)}, "y has shape ()"),
    ({"x": np.array(3.0)}, "x: shape (); expected samples with one value or more each"),
    ({"x": np.zeros(9)}, "x: shape (9,)"),
    ({"x": X.astype(">i4")}, "x: samples of type >i4; expected bytes (pixels) or floats"),
    ({"x_test": X.astype(bool)}, "x_test: samples of type bool"),
    (
        {"x_test": X.astype(np.float32)},
        "x_test: samples of shape (2,) and type torch.float32; those of x have",
    ),
    ({"x_test": X + np.inf}, "x_test: some samples are not finite"),
    ({"y": Y.astype(str), "y_test": (Y + 1).astype(str)}, "y_test has '2', which y lacks"),
    ({"y_test": Y + 1}, "y_test has 2, which y lacks"),
    (
        {"y_test": Y.astype(str)},
        "y_test is of type <U21, y of int64; expected numbers or words, but the same",
    ),
    ({"y": Y + 1e300}, "y has 1e+300; expected whole numbers"),
    ({"client": np.full(9, np.nan)}, "client has nan"),
    ({"client": Y.astype("M8[s]")}, "client is of type datetime64[s]"),
]


@pytest.mark.parametrize(("wrong", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_wrong_arrays_are_refused_by_name(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    path = save(tmp_path / "a.npz", **{"x": X, "y": Y, "x_test": X, "y_test": Y} | wrong)
    message = refusal(npz.load, path)
    assert message.startswith(f"data.path = {path!r}: {words}")


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    def why(content: bytes) -> str:
        path = tmp_path / "a.npz"
        path.write_bytes(content)
        message = refusal(npz.load, str(path))
        assert message.startswith(f"data.path = {str(path)!r}: not an .npz of plain arrays (")
        return message.partition("(")[2]

    whole = Path(save(tmp_path / "b.npz", x=X, y=Y)).read_bytes()
    assert why(b"sepal length,sepal width\n") == "it is another kind of file)"
    assert why(pickle.dumps({"x": 1})) == "it is another kind of file)"
    assert why(make_zip({"x": b"abc", "y": b"abc"})) == "x is not in NumPy's format)"
    assert why(b"")
    assert why(whole[:-40])
    objects = Path(save(tmp_path / "c.npz", x=X, y=np.array(["a", None]))).read_bytes()
    assert why(objects) == "it holds Python objects; save labels as y.astype(str))"
    np.savez_compressed(
        tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(99, 9)), y=np.arange(99)
    )
    damaged = bytearray((tmp_path / "d.npz").read_bytes())
    damaged[500:600] = bytes(100)
    assert why(bytes(damaged))
    assert "cannot be read (Is a directory)" in refusal(npz.load, str(tmp_path))
    assert "cannot be read (No such file" in refusal(npz.load, str(tmp_path / "no.npz"))


def test_arrays_that_nobody_asked_for_do_not_matter(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2, notes=np.array([{}]))
    assert len(npz.load(path).train) == 16


# Folders


def png(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), shade).save(path)


def shades(*parts: Any) -> list[int]:
    return sorted(shade for samples in parts for shade in samples.x[:, 0, 0, 0].tolist())


def test_an_archive_beside_its_folder_is_not_read(tmp_path: Path) -> None:
    for i in range(20):
        png(tmp_path / "d" / "photos" / "ab"[i % 2] / f"{i}.png", i)
    with zipfile.ZipFile(tmp_path / "d" / "photos.zip", "w") as archive:
        for file in (tmp_path / "d" / "photos").rglob("*.png"):
            archive.write(file, file.relative_to(tmp_path / "d"))
    source = folder.load(str(tmp_path / "d"), 4)
    assert shades(source.train, source.test) == list(range(20))
    assert (source.class_names, source.client_names, source.owner) == (["a", "b"], None, None)
    for file in (tmp_path / "d" / "photos").rglob("*.png"):
        file.unlink()
    source = folder.load(str(tmp_path / "d"), 4)
    assert shades(source.train, source.test) == list(range(20))


def test_the_names_of_folders(tmp_path: Path) -> None:
    for i in range(40):
        png(tmp_path / f"site{i % 2 + 9}" / f"class{i // 2 % 2 + 9}" / f"{i}.png", i)
    federation = load(
        DataOptions(name="folder", path=str(tmp_path), partition="domains", size=4), 0
    )
    assert (federation.class_names, federation.client_names) == (
        ["class9", "class10"],
        ["site9", "site10"],
    )


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("Training", "TESTING"),
        ("train", "val"),
        ("TRAIN", "valid"),
        ("training", "Validation"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_train_and_test_are_a_split_and_no_clients(
    tmp_path: Path, train: str, test: str, packed: bool
) -> None:
    for i in range(6):
        png(tmp_path / "d" / train / "abc"[i % 3] / f"{i}.png", i)
    for i in range(6, 8):
        png(tmp_path / "d" / test / "abc"[i % 3] / f"{i}.png", i)
    if packed:
        with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
            for file in (tmp_path / "d").rglob("*.png"):
                archive.write(file, file.relative_to(tmp_path))
    source = folder.load(str(tmp_path / ("d.zip" if packed else "d")), 4)
    assert (shades(source.train), shades(source.test)) == ([0, 1, 2, 3, 4, 5], [6, 7])
    assert source.train.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert source.test.y.tolist() == [0, 1]
    assert (source.num_classes, source.owner, source.class_names) == (3, None, ["a", "b", "c"])


def test_train_and_test_folders_that_do_not_go_together(tmp_path: Path) -> None:
    png(tmp_path / "train" / "a" / "1.png", 1)
    png(tmp_path / "test" / "b" / "2.png", 2)
    message = refusal(folder.load, str(tmp_path), 4)
    assert message.endswith("test/b/2.png is of class 'b', which is not trained on")
    png(tmp_path / "train" / "b" / "1.png", 1)
    png(tmp_path / "val" / "b" / "2.png", 2)
    message = refusal(folder.load, str(tmp_path), 4)
    assert message.endswith("has test, train, val; expected train and one of the others")
    for i in range(4):
        png(tmp_path / "Oslo" / "b" / f"{i}.png", i)  # then they are clients with strange names
    assert folder.load(str(tmp_path), 4).client_names == ["Oslo", "test", "train", "val"]


def test_images_of_sixteen_bits_do_not_come_from_an_old_cache(tmp_path: Path) -> None:
    for i in range(10):
        path = tmp_path / "d" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 200 + 256 * i, np.uint16)).save(path)
    for _ in range(2):
        source = folder.load(str(tmp_path / "d"), 4)
        assert shades(source.train, source.test) == list(range(10))


def test_a_misspelt_array_is_not_ignored(tmp_path: Path) -> None:
    x, y = np.zeros((20, 4), np.float32), np.arange(20) % 2
    for name, meant in (("clients", "client"), ("X_test", "x_test")):
        path = save(tmp_path / "a.npz", x=x, y=y, **{name: y})
        assert refusal(npz.load, path).endswith(f"has an array {name!r}; did you mean {meant!r}?")
    npz.load(
        save(tmp_path / "a.npz", x=x, y=y, notes=y)
    )  # what is nothing like ours is not ours to judge
