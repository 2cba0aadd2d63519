"""Data sets from files: tiny ones that the test makes, and the real ones where they are at hand."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fedbr
from fedbr.cli.app import call
from fedbr.core.rng import stream
from fedbr.core.samples import Augment, Samples
from fedbr.data import DATASETS, DataOptions, Dataset, files, load
from fedbr.data.holdout import hold_out
from fedbr.data.published import Published, md5_of
from fedbr.data.source import Source
from fedbr.data.sources import cifar, mnist, pacs
from fedbr.data.transforms import rotate
from fedbr.recipe import load as config

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
real = pytest.mark.skipif(not SHARED.exists(), reason="../shared/data is not here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(files, "data_folder", lambda: tmp_path_factory.getbasetemp() / "downloads")
    monkeypatch.delenv("FEDBR_DATA", raising=False)


def make_mnist(folder: Path, train: int = 60, test: int = 20) -> None:
    rng = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = struct.pack(">BBBBIII", 0, 0, 8, 3, count, 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(head + images.tobytes())
        )
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">BBBBI", 0, 0, 8, 1, count) + labels.tobytes()
        )


def make_cifar(
    folder: Path, name: str, files: dict[str, int], label_bytes: int, classes: int
) -> None:
    rng = np.random.default_rng(1)
    with tarfile.open(folder / f"{name}-binary.tar.gz", "w:gz") as tar:
        for file, count in files.items():
            table = rng.integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
            table[:, 0] = 0
            table[:, label_bytes - 1] = np.arange(count) % classes
            info = tarfile.TarInfo(f"{name}-batches-bin/{file}")
            info.size = table.size
            tar.addfile(info, io.BytesIO(table.tobytes()))
        if classes == 100:
            text = "".join(f"kind_{i}\n" for i in range(100)).encode()
            info = tarfile.TarInfo(f"{name}-batches-bin/fine_label_names.txt")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))


EACH = {"art_painting": 5, "cartoon": 10, "photo": 15, "sketch": 20}  # images of a class


def make_pacs(folder: Path, without: tuple[str, str] = ("", "")) -> None:
    rng = np.random.default_rng(2)
    with zipfile.ZipFile(folder / "PACS.zip", "w") as archive:
        for domain, each in EACH.items():
            for label in pacs.CLASSES:
                for i in range(each if (domain, label) != without else 0):
                    blob = io.BytesIO()
                    Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8)).save(
                        blob, "PNG"
                    )
                    archive.writestr(f"PACS/{domain}/{label}/pic_{i}.png", blob.getvalue())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All four data sets, tiny."""
    make_mnist(tmp_path)
    make_cifar(
        tmp_path,
        "cifar-10",
        {**{f"data_batch_{i}.bin": 20 for i in range(1, 6)}, "test_batch.bin": 20},
        1,
        10,
    )
    make_cifar(tmp_path, "cifar-100", {"train.bin": 200, "test.bin": 100}, 2, 100)
    make_pacs(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [n for n in DATASETS if DATASETS[n].files])
def test_every_data_set_with_files_trains_from_a_recipe(
    folder: Path, name: str, tmp_path: Path
) -> None:
    recipe = config.parse(
        {
            "data": {"name": name, "path": str(folder)},
            "model": {"name": "mlp", "hidden": [4]},
            "train": {"rounds": 1, "local_steps": 1, "batch_size": 2},
            "compare": [{"label": "FedAvg", "methods": []}],
        }
    )
    from training import train_recipe

    (run,) = train_recipe(recipe, tmp_path / "out").runs
    assert run.finished
    assert len(run.record.split.sizes) == (8 if name == "pacs" else 10)


def test_mnist_is_read_and_every_client_and_its_test_set_is_turned(folder: Path) -> None:
    source = mnist.load(str(folder))
    federation = load(DataOptions(name="rotated-mnist", path=str(folder), clients=10), 3)
    assert federation.shape == (1, 28, 28)
    for client, part in federation.train.parts.items():
        index = torch.from_numpy(part)
        assert torch.equal(
            federation.train.samples.x[index], rotate(source.train.x[index], 15.0 * client)
        )
        assert torch.equal(federation.tests[client].x, rotate(source.test.x, 15.0 * client))


def test_rotated_cifar_has_an_angle_for_every_image_and_tests_at_all_angles(folder: Path) -> None:
    options = DataOptions(name="rotated-cifar10", path=str(folder), clients=5, rotation=1.0)
    federation = load(options, 0)
    source = cifar.load10(str(folder))
    assert len(federation.tests) == 10
    for i, test in enumerate(federation.tests):
        assert torch.equal(test.x, rotate(source.test.x, 15.0 * i))
    turned = torch.stack([rotate(source.train.x, 15.0 * i) for i in range(10)])
    shares = federation.test_plan(None, 0).shares
    assert shares is not None
    for client, part in federation.train.parts.items():
        same = (
            (turned[:, part] == federation.train.samples.x[part]).flatten(2).all(dim=2)
        )  # [angles, images]
        assert (same.sum(dim=0) == 1).all()
        assert [shares[client].get(t, 0.0) for t in range(10)] == pytest.approx(
            same.float().mean(dim=1).tolist()
        )
    assert len({tuple(row.items()) for row in shares}) == 5  # a mix of one's own
    other = load(options, 1)
    assert other.mix is not None
    assert not torch.equal(other.mix, federation.mix)  # and another for another seed
    with pytest.raises(
        fedbr.InputError, match=r"data.rotation = 0.5: clean-cifar10 has no use for it"
    ):
        config.load("digits", ["data.name=clean-cifar10", "data.rotation=0.5"])


def test_cifar_is_normalised_and_cifar100_has_fine_labels(folder: Path) -> None:
    ten, hundred = cifar.load10(str(folder)), cifar.load100(str(folder))
    assert (len(ten.train), len(ten.test), len(hundred.train), len(hundred.test)) == (
        100,
        20,
        200,
        100,
    )
    assert hundred.train.y.tolist() == [i % 100 for i in range(200)]
    assert hundred.train.augment == Augment(pad=4, flip=True)
    assert hundred.test.augment is None
    for source, *moments in (  # mean and standard deviation of the official training images
        (ten, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        (hundred, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ):
        for part in (source.train, source.test):
            mean, spread = (np.array(m)[:, None, None] for m in moments)
            wanted = (part.x[:3].numpy() / 255 - mean) / spread
            assert np.allclose(part.see(slice(0, 3), torch.float64), wanted, atol=1e-5)


def test_classes_and_clients_have_names(folder: Path) -> None:
    assert mnist.load(str(folder)).class_names == list("0123456789")
    assert list(cifar.load10(str(folder)).class_names or ())[:3] == [
        "airplane",
        "automobile",
        "bird",
    ]
    assert cifar.load100(str(folder)).class_names == [f"kind_{i}" for i in range(100)]
    shown = pacs.load(str(folder), 8, "")
    assert shown.class_names == pacs.CLASSES
    assert list(shown.client_names or ())[:3] == [
        "art_painting 0-3",
        "art_painting 4-6",
        "cartoon 0-3",
    ]
    left = load(
        DataOptions(name="pacs", path=str(folder), partition="domains", unseen="cartoon"), 0
    )
    assert left.client_names == [
        f"{d} {part}" for d in ("art_painting", "photo", "sketch") for part in ("0-3", "4-6")
    ]


def test_names_of_cifar10_that_lie_beside_the_records_are_read(tmp_path: Path) -> None:
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).write_bytes(bytes(3073))
    (tmp_path / "batches.meta.txt").write_text("".join(f"name{i}\n" for i in range(10)) + "\n")
    assert cifar.load10(str(tmp_path)).class_names == [f"name{i}" for i in range(10)]
    (tmp_path / "batches.meta.txt").write_text("too few\n")
    assert cifar.load10(str(tmp_path)).class_names == cifar.CLASSES_10


def test_augmentation_crops_and_mirrors_as_written_out() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (2, 3, 3, 6, 7), dtype=np.uint8))
    augment = Augment(pad=2, flip=True)
    moves = torch.from_numpy(augment.draw(np.random.default_rng(1), (2, 3)))
    assert moves.shape == (2, 3, 3)
    got = augment.apply(x, moves)
    assert got.dtype == torch.uint8
    for i in range(2):
        for j in range(3):
            down, right, mirrored = moves[i, j].tolist()
            padded = np.pad(x[i, j].numpy(), ((0, 0), (2, 2), (2, 2)))
            wanted = padded[:, down : down + 6, right : right + 7]
            assert np.array_equal(got[i, j], wanted[:, :, ::-1] if mirrored else wanted)
    many = augment.draw(np.random.default_rng(2), (2000,))
    assert set(many[:, 0]) == set(many[:, 1]) == set(range(5))
    assert 0.45 < many[:, 2].mean() < 0.55
    assert Augment(pad=0, flip=False).draw(np.random.default_rng(0), (5,)).sum() == 0


def test_augmentation_is_fresh_on_every_draw_and_does_not_depend_on_workers(folder: Path) -> None:
    federation = load(DataOptions(name="cifar100", path=str(folder), partition="lda", clients=4), 0)
    rngs = [np.random.default_rng(0) for _ in range(2)]
    first, second = (federation.train.draw([0, 1], rngs, (64,), torch.float32)[0] for _ in range(2))
    assert first.shape == (2, 64, 3, 32, 32)
    assert not torch.equal(first, second)
    options: dict[str, Any] = {
        "rounds": 2,
        "local_steps": 2,
        "batch_size": 4,
        "hidden": (3,),
        "clients_at_once": 2,
    }
    one, two = (
        fedbr.train(federation, "mlp", [fedbr.FedBR(mean_of=2)], workers=w, **options)
        for w in (1, 2)
    )
    assert one.loss == two.loss


def test_pacs_has_eight_clients_and_their_own_tests(folder: Path) -> None:
    federation = load(DataOptions(name="pacs", path=str(folder), partition="domains"), 0)
    assert (federation.shape, federation.num_classes, len(federation.train.parts)) == (
        (3, 32, 32),
        7,
        8,
    )
    assert federation.sizes == [n * each * 4 // 5 for each in EACH.values() for n in (4, 3)]
    assert [len(t) for t in federation.tests] == [
        n * each // 5 for each in EACH.values() for n in (4, 3)
    ]
    for client, part in federation.train.parts.items():
        classes = set(federation.train.samples.y[part].tolist())
        assert classes == ({0, 1, 2, 3} if client % 2 == 0 else {4, 5, 6})
        assert set(federation.tests[client].y.tolist()) == classes
    seen = federation.train.samples.see(slice(None), torch.float32)
    assert -1 <= seen.min() < -0.5 < 0.5 < seen.max() <= 1
    for domain, held in EACH.items():  # the others train on all that they have
        unseen = load(
            DataOptions(name="pacs", path=str(folder), partition="domains", unseen=domain), 0
        )
        assert unseen.sizes == [
            n * each for other, each in EACH.items() if other != domain for n in (4, 3)
        ]
        assert [len(t) for t in unseen.tests] == [7 * held]
    with pytest.warns(RuntimeWarning, match="8 clients of their own"):
        by_lda = load(DataOptions(name="pacs", path=str(folder), partition="lda", clients=5), 0)
    assert len(by_lda.train.parts) == 5
    with pytest.raises(fedbr.InputError, match=r"data.unseen = 'phot'.*photo"):
        load(DataOptions(name="pacs", path=str(folder), partition="domains", unseen="phot"), 0)


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_npz_with_everything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (30, 9, 9, 3), dtype=np.uint8)  # channels last
    y, client = np.array(["cat", "dog", "owl"] * 10), np.array(["b", "a"] * 15)
    path = save(tmp_path / "a.npz", x=x, y=y, x_test=x[:7], y_test=y[:7], client=client)
    federation = load(DataOptions(name="npz", path=path, partition="domains"), 0)
    assert federation.shape == (3, 9, 9)
    assert [p.tolist() for p in federation.train.parts.values()] == [
        list(range(1, 30, 2)),
        list(range(0, 30, 2)),
    ]
    assert torch.equal(federation.train.samples.x[4], torch.from_numpy(x[4]).permute(2, 0, 1))
    assert federation.train.samples.y[:4].tolist() == [0, 1, 2, 0]
    assert [len(t) for t in federation.tests] == [7]
    assert federation.train.samples.see(slice(None), torch.float32).max() <= 1


def test_npz_without_a_test_set_holds_one_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = save(
        tmp_path / "a.npz",
        x=rng.normal(size=(100, 5)),
        y=np.arange(100) % 4,
        client=np.arange(100) % 2,
    )
    with pytest.warns(RuntimeWarning, match="2 clients of their own"):
        federation = load(DataOptions(name="npz", path=path, partition="lda", clients=3), 0)
    assert sum(federation.sizes) == 80
    assert torch.bincount(federation.tests[0].y).tolist() == [5] * 4
    natural = load(DataOptions(name="npz", path=path, partition="domains"), 0)
    assert [len(t) for t in natural.tests] == [10, 10]  # each client its own
    tuning = load(DataOptions(name="npz", path=path, partition="domains", holdout=0.25), 1)
    assert sum(tuning.sizes) == 60


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 2))}, "has no array 'y', only x"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4, int)}, "y has shape (4,)"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3, int), "x_test": np.zeros((3, 2))}, "go together"),
        (
            {"x": np.zeros((3, 2)), "y": np.zeros(3, int), "client": np.zeros(2, int)},
            "client has shape (2,)",
        ),
        ({"x": np.full((30, 2), np.nan), "y": np.zeros(30, int)}, "not finite"),
        ({"x": np.zeros((30, 2), complex), "y": np.zeros(30, int)}, "complex128"),
        ({"x": np.array([{}]), "y": np.zeros(1, int)}, "not an .npz of plain arrays"),
        ({"x": np.zeros((1, 2)), "y": np.zeros(1, int)}, "too few"),
        ({"x": np.zeros((30, 2)), "y": np.full(30, np.nan)}, "y has nan"),
        ({"x": np.zeros((30, 2)), "y": np.full(30, 0.5)}, "y has 0.5"),
        (
            {
                "x": np.zeros((9, 2)),
                "y": np.zeros(9, int),
                "x_test": np.zeros((9, 2)),
                "y_test": np.ones(9, int),
            },
            "lacks",
        ),
        (
            {
                "x": np.zeros((9, 2)),
                "y": np.zeros(9, int),
                "x_test": np.zeros((9, 3)),
                "y_test": np.zeros(9, int),
            },
            "x_test",
        ),
    ],
)
def test_wrong_npz_files_are_refused_in_words(
    tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    path = save(tmp_path / "a.npz", **arrays)
    with pytest.raises(fedbr.InputError) as caught:
        load(DataOptions(name="npz", path=path, partition="iid", clients=2), 0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_single_array_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(fedbr.InputError, match="a single array"):
        load(DataOptions(name="npz", path=str(tmp_path / "a.npy"), partition="iid"), 0)


def test_natural_clients_are_not_dealt_anew_without_a_word(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.npz", x=np.zeros((40, 3)), y=np.arange(40) % 2, client=np.arange(40) % 4
    )
    with pytest.warns(
        RuntimeWarning, match="name 4 clients of their own; iid deals their samples anew"
    ):
        load(DataOptions(name="npz", path=path, partition="iid", clients=3), 0)


@pytest.mark.filterwarnings("ignore:labels")
def test_a_test_set_of_other_classes_is_refused() -> None:
    x = np.zeros((10, 3))
    with pytest.raises(fedbr.InputError, match="none of its classes"):
        fedbr.Federation.from_arrays(x, np.zeros(10, int), x, np.ones(10, int), clients=2)


def test_the_trained_model_predicts_what_it_was_trained_on() -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 5), dtype=np.uint8)
    y = (x[:, 0] > 127).astype(int)
    run = fedbr.train(
        fedbr.Federation.from_arrays(x, y, x, y, clients=2, partition="iid"),
        "mlp",
        rounds=3,
        local_steps=20,
        lr=0.5,
    )
    right = (run.model.predict(x) == torch.from_numpy(y)).float().mean()
    assert float(right) == pytest.approx(run.accuracy[-1])
    assert torch.equal(run.model.predict(x), run.model.predict(torch.from_numpy(x / 255)))


def png(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (10, 8), shade).save(path)


def test_folders_of_classes_and_of_clients(tmp_path: Path) -> None:
    for i in range(10):
        for c, label in enumerate(("class2", "class10")):
            png(tmp_path / "plain" / label / f"{i}.png", 20 * c + i)
            png(tmp_path / "sites" / f"site{i % 2}" / label / f"{i}.png", 20 * c + i)
    plain = load(
        DataOptions(
            name="folder", path=str(tmp_path / "plain"), partition="lda", clients=3, size=16
        ),
        0,
    )
    assert (plain.shape, plain.num_classes, sum(plain.sizes)) == ((3, 16, 16), 2, 16)
    dark = plain.train.samples.x.flatten(1).float().mean(dim=1) < 20
    assert torch.equal(dark, plain.train.samples.y == 0)  # class2 before class10
    sites = load(DataOptions(name="folder", path=str(tmp_path / "sites"), partition="domains"), 0)
    assert sites.sizes == [8, 8]
    assert [len(t) for t in sites.tests] == [2, 2]


PAGE = b"\n<!DOCTYPE html><html>Sign in to go on</html>"


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        ("rotated-mnist", "train-images-idx3-ubyte.gz", None, "has no train-images-idx3-ubyte"),
        (
            "rotated-mnist",
            "t10k-labels-idx1-ubyte",
            b"\0\0\x08\x01\0\0\0\x14123",
            "ends at byte 11",
        ),
        (
            "rotated-mnist",
            "t10k-labels-idx1-ubyte",
            b"\0\0\x08\x01\0\0\0\x02\x09\x0a",
            "byte 9: label 10, at most 9",
        ),
        ("rotated-mnist", "train-images-idx3-ubyte.gz", PAGE, "a web page"),
        ("clean-cifar10", "cifar-10-binary.tar.gz", b"nothing", "cannot be read"),
        ("clean-cifar10", "cifar-10-binary.tar.gz", PAGE, "a web page"),
        ("clean-cifar10", "data_batch_1.bin", b"", "is empty"),
        ("cifar100", "cifar-100-binary.tar.gz", None, "has no train.bin"),
        ("pacs", "PACS.zip", None, "has no PACS"),
        ("pacs", "PACS.zip", PAGE, "a web page"),
    ],
)
def test_missing_and_damaged_files_are_named_with_what_helps(
    folder: Path, name: str, file: str, content: bytes | None, words: str
) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(fedbr.InputError) as caught:
        load(DataOptions(name=name, path=str(folder), partition=DATASETS[name].partition), 0)
    message = str(caught.value)
    assert words in message
    assert message.startswith(str(folder if content is None else folder / file))
    assert f"fedbr data get {DATASETS[name].files}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "other"),
    [("clean-cifar10", "cifar-10-batches-py/data_batch_1"), ("cifar100", "cifar-100-python/train")],
)
def test_the_python_version_of_cifar_is_recognised(tmp_path: Path, name: str, other: str) -> None:
    (tmp_path / other).parent.mkdir()
    (tmp_path / other).write_bytes(b"")
    with pytest.raises(
        fedbr.InputError,
        match=f"only {other.split('/')[0]}; expected the binary version; .*data get",
    ):
        load(DataOptions(name=name, path=str(tmp_path)), 0)


def test_the_first_place_that_has_the_files_is_taken(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(path: str = "") -> int:
        return len(load(DataOptions(name="rotated-mnist", clients=2, path=path), 0).train.samples)

    help_ = r"fedbr data get mnist.*data.path or \$FEDBR_DATA"
    with pytest.raises(fedbr.InputError, match=f"nothing was downloaded.*{help_}"):
        count()
    monkeypatch.setenv("FEDBR_DATA", str(folder / "nowhere"))
    with pytest.raises(
        fedbr.InputError, match=rf"\$FEDBR_DATA = '.*nowhere': there is no such.*{help_}"
    ):
        count()
    monkeypatch.setenv("FEDBR_DATA", str(folder))
    assert count() == 60
    empty, downloads = tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("downloads")
    monkeypatch.setenv("FEDBR_DATA", str(empty))
    monkeypatch.setattr(files, "data_folder", lambda: downloads)
    with pytest.raises(
        fedbr.InputError, match=rf"\$FEDBR_DATA = '{empty}' has no.*nor has {downloads}; .*{help_}"
    ):
        count()
    make_mnist(downloads, train=30)
    assert count() == 30
    monkeypatch.setenv("FEDBR_DATA", str(folder))
    assert count() == 60
    with pytest.raises(fedbr.InputError, match=f"{empty}: has no train-images.*{help_}"):
        count(str(empty))  # what is named is not replaced by something else


def verdict(published: Published | None, name: str, folder: Path) -> str:
    assert published is not None
    source = DATASETS[name].load(DataOptions(name=name, path=str(folder)))
    return published.verdict(str(folder), source)


def test_mnist_is_compared_with_what_is_published(folder: Path) -> None:
    name, published = "rotated-mnist", mnist.PUBLISHED
    few = "not the official files: 60 of 60,000 training and 20 of 10,000 test records"
    assert verdict(published, name, folder) == few
    published = replace(published, records=(60, 20))
    other = "not the official files: as many records, but another checksum"
    assert verdict(published, name, folder) == other
    ours = []
    for file in published.files:
        plain = folder / file.name.removesuffix(".gz")
        if plain.exists():
            content = plain.read_bytes()
        else:
            content = gzip.decompress((folder / file.name).read_bytes())
        ours.append(replace(file, content_md5=hashlib.md5(content).hexdigest()))
    same = "official, complete: the checksums are the published ones"
    assert verdict(replace(published, files=ours), name, folder) == same


def test_cifar_is_compared_with_what_is_published(folder: Path) -> None:
    name, published = "clean-cifar10", cifar.PUBLISHED_10
    few = "not the official files: 100 of 50,000 training and 20 of 10,000 test records"
    assert verdict(published, name, folder) == few
    (file,) = published.files
    archive = folder / "cifar-10-binary.tar.gz"
    published = replace(published, files=[replace(file, md5=md5_of(archive))], records=(100, 20))
    same = "official, complete: the checksums are the published ones"
    assert verdict(published, name, folder) == same
    assert verdict(published, name, archive) == same
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    assert "they are unpacked" in verdict(published, name, folder)


def test_what_a_pacs_lacks_is_said(tmp_path: Path) -> None:
    make_pacs(tmp_path, without=("sketch", "horse"))
    assert verdict(pacs.PUBLISHED, "pacs", tmp_path).startswith(
        "not complete: 330 of 9,991 images; art_painting has 5 of 379 dog, "
    )
    small = replace(pacs.PUBLISHED, counts={domain: (each,) * 7 for domain, each in EACH.items()})
    missing = "not complete: 330 of 350 images; sketch has no horse"
    assert verdict(small, "pacs", tmp_path) == missing
    make_pacs(tmp_path)
    complete = "complete: all 350 images (checksums are not published)"
    assert verdict(small, "pacs", tmp_path) == complete


class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A torch data set as people write them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((1, 4, 4), float(i)), i % 3


def rows(count: int) -> list[dict[str, Any]]:
    """What a Hugging Face data set gives: rows with a picture, a label and whatever else."""
    return [
        {"image": Image.new("RGB", (5, 4), (i, 0, 0)), "label": i % 3, "hospital": "AB"[i % 2]}
        for i in range(count)
    ]


def test_data_set_objects_of_others() -> None:
    federation = fedbr.Federation.from_datasets(Pairs(30), Pairs(9), clients=3, partition="iid")
    assert (federation.shape, federation.num_classes, federation.sizes) == (
        (1, 4, 4),
        3,
        [10, 10, 10],
    )
    assert federation.train.samples.x[7].unique().tolist() == [7.0]
    by_hospital = fedbr.Federation.from_datasets(
        rows(20), rows(6), partition="domains", owner="hospital"
    )
    assert (by_hospital.shape, by_hospital.sizes) == ((3, 4, 5), [10, 10])
    assert [p.tolist() for p in by_hospital.train.parts.values()] == [
        list(range(0, 20, 2)),
        list(range(1, 20, 2)),
    ]
    fedbr.train(by_hospital, "mlp", rounds=1, local_steps=1)


@pytest.mark.parametrize(
    ("train", "options", "words"),
    [
        (iter([1]), {}, "map-style"),
        ([], {}, "empty"),
        ([1, 2], {}, "pairs (x, y)"),
        ([{"picture": 1, "label": 0}], {}, "one of image"),
        (rows(3), {"owner": "ward"}, "no column 'ward', only image, label, hospital"),
        (Pairs(3), {"owner": "ward"}, "has no columns"),
        ([(np.zeros((1, 2)), 0), (np.zeros((1, 3)), 0)], {}, "different shapes"),
    ],
)
def test_wrong_data_set_objects_are_refused_in_words(
    train: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(fedbr.InputError) as caught:
        fedbr.Federation.from_datasets(train, Pairs(3), **options)
    assert words in str(caught.value)


def test_ten_thousand_clients_are_index_arrays() -> None:
    x = torch.zeros(60000, 1, 28, 28, dtype=torch.uint8)
    federation = fedbr.Federation.from_arrays(
        x, torch.arange(60000) % 10, x[:10], torch.arange(10), clients=10000, partition="iid"
    )
    assert federation.train.samples.x.data_ptr() == x.data_ptr()
    assert federation.train.samples.x.dtype == torch.uint8
    assert len(federation.train.parts) == 10000


@real
def test_the_real_files() -> None:
    options = DataOptions(name="rotated-mnist", path=str(SHARED), clients=10, shrink=4)  # is quick
    federation = load(options, 0)
    assert len(federation.train.samples) == 60000
    assert [len(t) for t in federation.tests] == [10000] * 10
    ten = load(DataOptions(name="clean-cifar10", path=str(SHARED), clients=10), 0)
    assert (len(ten.train.samples), len(ten.tests[0])) == (5000, 2000)
    hundred = load(DataOptions(name="cifar100", path=str(SHARED), partition="lda", clients=10), 0)
    assert torch.bincount(hundred.train.samples.y).tolist() == [60] * 100
    styles = load(
        DataOptions(name="pacs", path=str(SHARED / "PACS-32px.zip"), partition="domains"), 0
    )
    assert sum(styles.sizes) + sum(len(t) for t in styles.tests) == 9991
    with pytest.warns(
        RuntimeWarning, match=r"more than once .* PACS-32px\.zip is taken, .* \(9,991\)"
    ):
        same = load(DataOptions(name="pacs", path=str(SHARED), partition="domains"), 0)
    assert same.content == styles.content
    assert list(Path(os.environ["FEDBR_CACHE"]).glob("*.safetensors"))  # rotated and decoded once
    same = verdict(mnist.PUBLISHED, "rotated-mnist", SHARED)
    assert same.startswith("official, complete")
    whole = verdict(pacs.PUBLISHED, "pacs", SHARED / "PACS-32px.zip")
    assert whole.startswith("complete: all 9,991 images")
    for federation in (ten, hundred):  # normalised
        x = federation.train.samples.see(slice(None), torch.float32)
        assert x.mean(dim=(0, 2, 3)).abs().max() < 0.05
        assert (x.std(dim=(0, 2, 3)) - 1).abs().max() < 0.05


def test_a_data_set_is_one_file_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CONTRIBUTING promises to who adds one: recipes, fedbr list, check and show know it."""

    def load_dots(path: str) -> Source:
        x = torch.arange(24, dtype=torch.uint8).view(24, 1, 1, 1).repeat(1, 1, 4, 4)
        train, test = hold_out(Samples(x, torch.arange(24) % 3), 0.25, stream(0, "dots"))
        return Source(train, test, num_classes=3, peak=255.0)

    dots = Dataset(
        summary="dots of 24 shades",
        load=lambda options: load_dots(options.path),
        published=Published("dots", by_hand="ask for them, and put them into {target}"),
        uses=frozenset({"path"}),
    )
    monkeypatch.setitem(DATASETS, "dots", dots)
    recipe = config.load("digits", ["data.name=dots", "data.path=somewhere"])
    assert len(load(recipe.data, 0).census.sizes) == 10
    for line, expected in (
        (["list", "data"], "needs files: fedbr data get dots"),
        (["data", "check", "dots"], "18 samples of 1 x 4 x 4"),
        (["data", "get", "dots", "--path", str(tmp_path)], f"put them into {tmp_path}"),
        (["data", "check", "dotz"], "did you mean 'dots'?"),
    ):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            call(line)
        assert expected in out.getvalue() + err.getvalue()
