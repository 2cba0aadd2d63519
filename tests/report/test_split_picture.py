"""The picture of a split: what is drawn and written is what the clients have."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_gallery import federation, named

import fedbr
from fedbr.report import gallery, split_picture, split_table
from fedbr.report.split_picture import draw_split, split_figure
from fedbr.report.split_table import draw_bubbles, draw_heat_map


def test_the_area_of_a_bubble_is_the_count() -> None:
    figure = Figure()
    axes = figure.add_subplot()
    counts = gallery.count_samples(federation(), named(3))
    draw_bubbles(figure, axes, counts, 0.5)
    (bubbles,) = axes.collections
    sizes = np.asarray(bubbles.get_sizes())
    assert (sizes / sizes[0]).tolist() == pytest.approx([1, 1 / 3, 2 / 3, 4])
    assert np.asarray(bubbles.get_offsets()).tolist() == [[0, 0], [2, 0], [1, 1], [2, 2]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["1", "2", "10 samples"]
    areas = [handle.get_markersize() ** 2 for handle in legend.legend_handles]
    assert areas == pytest.approx([sizes[0] * n / 3 for n in (1, 2, 10)])


def test_a_heat_map_has_the_counts() -> None:
    figure = Figure()
    axes, below = figure.subplots(2)
    counts = gallery.count_samples(federation(), named(3))
    draw_heat_map(figure, axes, below, counts)
    assert np.array_equal(axes.images[0].get_array(), counts.table)
    many = np.arange(2200).reshape(1100, 2)
    table, each = split_table.group_rows(many)
    assert each == 3
    assert np.allclose(table[0], many[:3].mean(axis=0))
    assert np.allclose(table[-1], many[1098:].mean(axis=0))


def test_scales_are_whole_numbers() -> None:
    assert [split_table.legend_counts(n) for n in (1, 8, 22, 5958)] == [
        [1],
        [1, 8],
        [1, 4, 20],
        [200, 1000, 5000],
    ]
    for most, ticks in ((1, [0, 1]), (3, [0, 1, 2, 3]), (60, [0, 15, 30, 45, 60])):
        figure = Figure()
        axes, below = figure.subplots(2)
        counts = gallery.count_samples(federation([(0,) * most] + [(1,)] * 59), named(60))
        draw_heat_map(figure, axes, below, counts)
        low, high = below.get_xlim()
        assert [tick for tick in below.get_xticks() if low <= tick <= high] == ticks
        clients = [tick for tick in axes.get_yticks() if 0 <= tick < 60]
        assert clients == [0, 15, 30, 45]


def test_rows_and_columns_have_their_size_whatever_stands_beside_them() -> None:
    for names in (named(3), ["a client with a long name"] * 3):
        figure = split_figure(federation(), "title", names)
        figure.draw_without_rendering()
        inches = figure.dpi_scale_trans.inverted()
        _, table, _, _, images, _ = figure.axes
        box = table.get_window_extent().transformed(inches)
        assert box.width == pytest.approx(3 * split_table.COLUMN, rel=0.01)
        assert box.height == pytest.approx(3 * split_picture.CELL, rel=0.01)
        image = images.images[0].get_window_extent().transformed(inches)
        assert image.width == pytest.approx(image.height, rel=0.01)  # as square as it is


def written(path: Path) -> list[str]:
    """Return the texts of an SVG: matplotlib notes each beside its letters."""
    return re.findall(r"<!-- (.*?) -->", path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (
            federation(),
            [
                "client 1",
                "12",
                "1.8",
                "RSM of 10",
                "fewer than 10",
                "samples as the model sees them",
            ],
        ),
        (federation([(0, 1)] * 12), ["client 11", "clients 0 to 9", "of 12"]),
        (
            federation([(0,) * (i + 1) for i in range(41)]),
            ["clients 0 to 9", "of 41", "41", "client 9", "RSM of 10"],
        ),
        (federation([tuple(range(30))] * 2), ["class", "samples", "30.0"]),
    ],
)
def test_what_is_written_in_the_picture(
    tmp_path: Path, shown: fedbr.Federation, words: list[str]
) -> None:
    clients = len(shown.train.parts)
    draw_split(shown, tmp_path / "a.svg", "a $title$ of mine", named(clients))
    texts = written(tmp_path / "a.svg")
    assert "a $title$ of mine" in texts
    assert [word for word in words if word not in texts] == []
    assert ("client 10" in texts) == (11 <= clients <= split_table.BUBBLES[0])
    draw_split(shown, tmp_path / "a.png", "title", named(clients))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_samples_that_are_no_images_are_left_out(tmp_path: Path) -> None:
    draw_split(federation(shape=(5,)), tmp_path / "a.svg", "title", named(3))
    assert "client 2" in written(tmp_path / "a.svg")
    assert not [
        text for text in written(tmp_path / "a.svg") if "RSM" in text or "model sees" in text
    ]
