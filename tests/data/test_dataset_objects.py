"""Data set objects of others: what they hold arrives as it is, what makes no sense is refused in
words.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from making import refusal
from PIL import Image

from fedbr import Federation


class Rows(list[Any]):
    """What a Hugging Face data set looks like from outside: rows, and perhaps features."""

    features: Any = None


def rows(labels: Any, **columns: Any) -> Rows:
    made = [{"x": np.full(3, float(i)), "label": label} for i, label in enumerate(labels)]
    for column, values in columns.items():
        for row, value in zip(made, values, strict=True):
            row[column] = value
    return Rows(made)


def both(train: Any, test: Any = None, **options: Any) -> Federation:
    return Federation.from_datasets(
        train, train if test is None else test, **{"clients": 2, "partition": "iid"} | options
    )


# Labels


def test_words_are_numbered_in_their_order() -> None:
    federation = both(rows(["dog", "cat", "owl", "cat"]), rows(["owl", "cat"]))
    assert federation.train.samples.y.tolist() == [1, 0, 2, 0]
    assert federation.tests[0].y.tolist() == [2, 0]
    assert (federation.num_classes, federation.class_names) == (3, ["cat", "dog", "owl"])


@pytest.mark.parametrize(
    "form",
    [
        int,
        float,
        np.int16,
        np.float32,
        torch.tensor,
        lambda i: torch.tensor([i]),
        lambda i: np.array([i]),
    ],
)
@pytest.mark.filterwarnings("ignore:labels")
def test_numbers_stay_what_they_are(form: Any) -> None:
    federation = both([(np.zeros(2), form(i)) for i in (0, 3, 1)])
    assert federation.train.samples.y.tolist() == [0, 3, 1]
    assert (federation.num_classes, federation.class_names) == (4, None)
    assert both([(np.zeros(2), bool(i)) for i in (0, 1)]).train.samples.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1.5, 1], "train: label has 1.5; expected whole numbers or words"),
        ([0, float("nan")], "train: label has nan"),
        (
            [0, None],
            "train: label of row 1 is None; expected whole numbers or words, one in each row",
        ),
        ([[0, 1], [1, 0]], "train: label of row 0 is [0, 1];"),
        ([np.eye(3)[0], np.eye(3)[1]], "train: label of row 0 is an array of shape (3,);"),
        ([torch.eye(3)[0]], "train: label of row 0 is an array of shape (3,);"),
        ([0, "cat"], "train: label of row 1 is 'cat';"),
        (["cat", 0], "train: label of row 1 is 0;"),
        ([0, -1], "train: label: has -1; expected whole numbers from 0"),
        ([{"a": 1}], "train: label of row 0 is {'a': 1};"),
    ],
)
def test_labels_that_are_none(labels: list[Any], words: str) -> None:
    assert refusal(both, rows(labels), rows([0])).startswith(words)
    assert refusal(both, [(np.zeros(3), label) for label in labels], rows([0])).startswith(words)


def test_labels_of_the_test_that_do_not_fit() -> None:
    assert (
        refusal(both, rows(["a", "b"]), rows(["c"]))
        == "test: label has 'c', which train: label lacks"
    )
    assert refusal(both, rows(["a", "b"]), rows([0])).startswith(
        "test: label is of type int64, train: label of <U1;"
    )
    assert refusal(both, rows([0, 1]), rows(["a"])).startswith("test: label: type <U1")


def test_the_names_of_a_class_label() -> None:
    train = rows([0, 2, 1])
    train.features = {"x": None, "label": SimpleNamespace(names=["a", "b", "c", "d"])}
    federation = both(train, rows([0]))
    assert (federation.num_classes, federation.class_names) == (4, ["a", "b", "c", "d"])
    train.features = {"x": None, "label": SimpleNamespace(names=["a"])}  # not those of these labels
    assert both(train, rows([0])).class_names is None
    train.features = np.zeros(3)  # something else of the same name
    assert both(train, rows([0])).class_names is None


def test_a_dictionary_of_splits() -> None:
    splits = {"test": rows([0]), "train": rows([0])}
    assert (
        refusal(both, splits, rows([0]))
        == "train: holds train, test; choose a split, such as ds['train']"
    )
    assert (
        refusal(both, rows([0]), splits)
        == "test: holds test, train; choose a split, such as ds['test']"
    )
    assert (
        refusal(both, {"all": rows([0])}) == "train: holds all; choose a split, such as ds['all']"
    )
    assert refusal(both, {}, rows([0])).endswith("choose a split, such as ds['train']")


# Owners


def test_every_owner_is_tested_on_its_own() -> None:
    train = rows([0, 1] * 4, site=["b", "a", "b", "a", "c", "c", "b", "a"])
    options: dict[str, Any] = {"owner": "site", "partition": "domains", "clients": None}
    federation = both(train, rows([0, 1, 1], site=["c", "a", "c"]), **options)
    assert federation.client_names == ["a", "b", "c"]
    assert [p.tolist() for p in federation.train.parts.values()] == [[1, 3, 7], [0, 2, 6], [4, 5]]
    assert [t.x[:, 0].tolist() for t in federation.tests] == [[1.0], [], [0.0, 2.0]]
    for test in (
        rows([0, 1], site=["a", "z"]),
        rows([0, 1]),
    ):  # somebody else, or nobody: one for all
        assert [len(t) for t in both(train, test, **options).tests] == [2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(both(train, rows([0], site=["a"]), owner="site").tests) == 1
    numbers = rows([0, 1, 0], site=[7, 9, 7])
    assert both(numbers, **options).client_names == ["7", "9"]


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (["a", None], "train: site of row 1 is None; expected whole numbers or words"),
        ([1.0, float("nan")], "train: site has nan"),
        ([1, "a"], "train: site of row 1 is 'a'"),
    ],
)
def test_owners_that_are_none(sites: list[Any], words: str) -> None:
    train = rows([0, 1], site=sites)
    assert refusal(
        both, train, rows([0]), owner="site", partition="domains", clients=None
    ).startswith(words)


# Samples


def images(*made: Any) -> list[tuple[Any, int]]:
    return [(image, i % 2) for i, image in enumerate(made)]


@pytest.mark.parametrize("height", [1, 2, 3, 4])  # could be taken for channels
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_pictures_of_all_kinds_become_grey_or_rgb(height: int, width: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    colour = Image.fromarray(values)
    rgb = torch.from_numpy(values).permute(2, 0, 1)
    alpha = colour.copy()
    alpha.putalpha(7)
    palette = colour.quantize(16)
    indexed = torch.from_numpy(np.array(palette.convert("RGB"))).permute(2, 0, 1)
    grey = colour.convert("L")
    level = torch.from_numpy(np.array(grey))[None]
    bits = colour.convert("1")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 256 + 5)
    cases: list[tuple[Any, torch.Tensor]] = [
        (colour, rgb),
        (alpha, rgb),
        (palette, indexed),
        (colour.convert("CMYK"), rgb),
        (grey, level),
        (deep, level),
        (grey.convert("LA"), level.expand(3, -1, -1)),
        (bits, torch.from_numpy(np.array(bits))[None] * 255),
    ]
    for image, expected in cases:
        x = both(images(image, image)).train.samples.x
        assert x.dtype == torch.uint8
        assert torch.equal(x[0], expected.to(torch.uint8)), image.mode
    mixed = both(images(grey, colour)).train.samples.x
    assert torch.equal(mixed[0], level.expand(3, -1, -1))
    assert torch.equal(mixed[1], rgb)


def test_pictures_of_floats_are_refused() -> None:
    message = refusal(both, images(Image.new("L", (4, 4)), Image.new("F", (4, 4))))
    assert message.startswith("train: the image of row 1 cannot be used (mode F, 32 bits a pixel")


def test_tensors_have_their_channels_first_already() -> None:
    tensor = (
        torch.arange(2 * 8 * 3).view(1, 2, 8, 3).repeat(1, 4, 1, 1)[0]
    )  # eight channels of 8 x 3
    for kind in (torch.uint8, torch.float32, torch.bfloat16):
        assert both(images(tensor.to(kind), tensor.to(kind))).shape == (8, 8, 3)
        assert (
            both(images(*[tensor.to(kind).numpy()] * 2)).shape == (3, 8, 8)
            if kind != torch.bfloat16
            else True
        )
    grey = torch.zeros(5, 4, dtype=torch.uint8)
    assert both(images(grey, grey)).shape == (1, 5, 4)


def test_samples_that_are_none() -> None:
    assert "samples of type object" in refusal(both, images(None, None))
    assert "train: shape (2,)" in refusal(both, images(1.0, 2.0))
    assert "expected 1 or 3 channels" in refusal(both, images(*[np.zeros((8, 8, 4), np.uint8)] * 2))
