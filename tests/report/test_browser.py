"""The page in a real browser: drawn, answering, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from folders import diverge, interrupt, make

from fedbr.report.write import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")

# Lines have a width; the edges of a band have none.
LINES = """[...document.querySelectorAll('.curves .scatterlayer .js-line')]
  .filter(path => path.getAttribute('d') && path.style.strokeWidth !== '0px').length"""
BANDS = "document.querySelectorAll('.curves .scatterlayer .js-fill').length"
AXIS = "document.querySelector('.curves .xtitle').textContent"
LEGEND = "[...document.querySelectorAll('.legend button')].map(b => b.getAttribute('aria-pressed'))"
EVIL = "<script>alert(1)</script><b>"
# Contrast of text with the page, as WCAG defines it.
CONTRAST = """(() => {
  const light = color => {
    const parts = color.match(/[\\d.]+/g).map(v => v / 255);
    const [r, g, b] = parts.map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const seen = 'p:not(.warn), td, th, dt, summary, figcaption, .legend button, .xtitle, ' +
    '.ytick text';
  return Math.min(...[...document.querySelectorAll(seen)].map(element => {
    const style = getComputedStyle(element);
    const own = light(element instanceof SVGElement ? style.fill : style.color);
    return Math.max(own, page) / Math.min(own, page);
  }));
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make(tmp_path_factory.mktemp("runs") / "o", labels=["FedAvg", EVIL, "x" * 60])
    return write_report([made.path])


def test_curves_are_drawn_and_answer(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    assert (browser.run(LINES), browser.run(BANDS)) == (3, 3)
    assert browser.run(AXIS) == "round"
    browser.click("[data-choice=unit] [data-value=megabytes]")
    assert browser.run(AXIS) == "megabytes sent and received"
    browser.click("[data-choice=unit] [data-value=seconds]")
    assert browser.run(AXIS) == "seconds of training"
    browser.click("[data-choice=measure] [data-value=accuracy_worst]")
    title = browser.run("document.querySelector('.curves .ytitle').textContent")
    assert title == "accuracy of the worst client, %"
    assert browser.run(AXIS) == "seconds of training"
    assert browser.errors == []


def test_the_legend_hides_and_shows(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    browser.click(".legend button")
    assert browser.run(LEGEND) == ["false", "true", "true"]
    assert (browser.run(LINES), browser.run(BANDS)) == (2, 2)
    browser.click("[data-choice=unit] [data-value=seconds]")
    assert (browser.run(LINES), browser.run(BANDS)) == (2, 2)  # it stays hidden
    browser.click(".legend button")
    browser.hover("h1")
    assert (browser.run(LINES), browser.run(BANDS)) == (3, 3)
    twice = "document.querySelector('.legend button').dispatchEvent(new MouseEvent('dblclick'))"
    browser.run(twice)
    assert browser.run(LEGEND) == ["true", "false", "false"]
    assert browser.run(LINES) == 1
    browser.run(twice)
    assert browser.run(LEGEND) == ["true"] * 3
    assert browser.errors == []


def test_a_curve_stands_out_while_the_mouse_is_on_its_name(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    browser.hover(".legend button:nth-child(2)")
    faded = "[...document.querySelectorAll('.curves .trace')].map(e => e.style.opacity)"
    assert (browser.run(faded).count("0.15"), browser.run(BANDS)) == (2, 1)
    browser.hover("h1")
    assert (browser.run(faded).count("0.15"), browser.run(BANDS)) == (0, 3)


def test_points_say_what_they_are(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    browser.hover(".curves .nsewdrag", 0.5, 0.45)
    said = browser.run("document.querySelector('.curves .hovertext').textContent")
    assert said == f"{EVIL}48.22 % (47.22 to 49.22)round 5 · 3 s · 15 MB"
    hovered = "document.querySelector('[data-figure]:not(.curves) .hovertext').textContent"
    browser.hover("[data-figure]:not(.curves) .xy .nsewdrag", 0.05, 0.1)
    assert browser.run(hovered) == "FedAvgclient 023.6 %"
    browser.hover("[data-figure]:not(.curves) .xy .nsewdrag", 0.15, 0.1)
    assert browser.run(hovered) == "client 1not tested"
    browser.hover("[data-figure]:not(.curves) .xy2 .nsewdrag", 0.05, 0.05)
    assert browser.run(hovered) == "client 0, 20 samplesclass 0: 20"


def test_clients_are_drawn_for_every_seed(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    written = "[...document.querySelectorAll('.heatmap-label')].map(e => e.textContent).join(' ')"
    first = browser.run(written)
    assert len(first.split()) == 27  # ten clients and three variants, but one client is not tested
    # A row for each variant, one trace for those that were not tested, and the classes.
    assert browser.run("document.querySelectorAll('[data-figure] .hm image').length") == 5
    browser.click("[data-choice=seed] [data-value='2']")
    assert browser.run(written) != first
    assert browser.errors == []


def test_labels_are_text(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    assert (
        browser.run("[...document.querySelectorAll('.legend button')].map(b => b.textContent)")[1]
        == EVIL
    )
    ticks = "[...document.querySelectorAll('[data-figure] .ytick text')].map(t => t.textContent)"
    assert any(text.startswith("<script>alert(1)</script>") for text in browser.run(ticks))
    assert browser.run("document.querySelectorAll('script').length") == 3
    assert browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.screen(width, dark=dark, phone=width < 500)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") == width
    outside = "[...document.querySelectorAll('figure, figure svg, p, h1, h2, .wide')]"
    assert browser.run(f"Math.max(...{outside}.map(e => e.getBoundingClientRect().right))") <= width
    assert browser.run(CONTRAST) > 4.5
    assert browser.errors == []


def test_colours_follow_the_mode_without_a_reload(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    color = "getComputedStyle(document.querySelector('.curves .xtitle')).fill"
    before = browser.run(color)
    browser.screen(1280, dark=True)
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run(color) != before
    assert browser.run(CONTRAST) > 4.5


def test_fifteen_variants_and_runs_of_any_kind(browser: Browser, tmp_path: Path) -> None:
    labels = [f"variant {i}" for i in range(15)]
    folder = make(tmp_path / "o", labels=labels, rounds=40, clients=250)
    diverge(folder.path / "runs" / "variant 3-1", after=8)
    browser.screen(390, phone=True)
    browser.open(write_report([folder.path]))
    # There are no bands among so many. What comes behind the divergence is thin.
    assert (browser.run(LINES), browser.run(BANDS)) == (16, 0)
    assert browser.run("document.documentElement.scrollWidth") == 390
    for i in range(7):
        browser.click(f".legend button:nth-child({i + 1})")
    assert (browser.run(LINES), browser.run(BANDS)) == (8, 8)
    assert browser.errors == []


def test_a_finger_on_a_figure_scrolls_the_page(browser: Browser, page: Path) -> None:
    browser.screen(390, phone=True)
    browser.open(page)
    for figure in (".curves", "[data-figure]:not(.curves)"):
        touch = f"getComputedStyle(document.querySelector('{figure} .nsewdrag')).touchAction"
        assert browser.run(touch) != "none"
        assert browser.swipe_up(f"{figure} .plot") > 50


def test_figures_follow_the_width_without_a_reload(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    ticks = "[...document.querySelectorAll('[data-figure] .ytick text')].map(t => t.textContent)"
    assert any(text.startswith("x" * 27) for text in browser.run(ticks))
    browser.screen(390)
    browser.run("new Promise(done => setTimeout(done, 500))")
    assert not any(text.startswith("x" * 13) for text in browser.run(ticks))
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors == []


@pytest.mark.parametrize("clients", [3, 300])
def test_nothing_is_tested_yet(browser: Browser, tmp_path: Path, clients: int) -> None:
    folder = make(tmp_path / "o", seeds=[0], clients=clients, every=5)
    for run in (folder.path / "runs").iterdir():
        interrupt(run, after=3)
    browser.screen(1280)
    browser.open(write_report([folder.path]))
    assert browser.run("document.querySelectorAll('.curves').length") == 0
    assert browser.run("document.querySelectorAll('[data-figure] .hm').length") > 0
    assert browser.errors == []


@pytest.mark.bench
def test_fifteen_variants_open_at_once(browser: Browser, tmp_path: Path) -> None:
    folder = make(tmp_path / "o", labels=[f"variant {i}" for i in range(15)], rounds=100)
    page = write_report([folder.path])
    browser.screen(1280)
    times = []
    for _ in range(3):
        browser.open(page)
        times.append(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 2000, times
