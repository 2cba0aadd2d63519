"""The page in a real browser: drawn, answering, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import FOUND, Browser
from folders import make

from fedbr.report.write import write_report

pytestmark = pytest.mark.skipif(FOUND is None, reason="no Chromium on the PATH")

CURVES = ".curves .scatterlayer .js-line"
SHOWN = f"[...document.querySelectorAll('{CURVES}')].map(path => path.getAttribute('d')).filter(d => d && d.length > 20)"
AXIS = "document.querySelector('.curves .xtitle').textContent"
EVIL = "<script>alert(1)</script><b>"
# Contrast of text with the page, as WCAG defines it.
CONTRAST = """(() => {
  const light = color => {
    const parts = color.match(/[\\d.]+/g).map(v => v / 255);
    const [r, g, b] = parts.map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const seen = 'p:not(.warn), td, th, dt, summary, figcaption, .legend button, .xtitle, .ytick text';
  return Math.min(...[...document.querySelectorAll(seen)].map(element => {
    const style = getComputedStyle(element), own = light(element instanceof SVGElement ? style.fill : style.color);
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
    drawn = browser.run(SHOWN)
    assert len(drawn) == 6  # a line and a band of each variant
    assert browser.run(AXIS) == "round"
    browser.click("[data-choice=unit] [data-value=megabytes]")
    assert browser.run(AXIS) == "megabytes sent and received"
    browser.click("[data-choice=unit] [data-value=seconds]")
    assert browser.run(AXIS) == "seconds of training"
    browser.click("[data-choice=measure] [data-value=accuracy_worst]")
    assert (
        browser.run("document.querySelector('.curves .ytitle').textContent")
        == "accuracy of the worst client, %"
    )
    browser.click(".legend button")
    assert (
        browser.run("document.querySelector('.legend button').getAttribute('aria-pressed')")
        == "false"
    )
    assert len(browser.run(SHOWN)) == 4
    browser.click(".legend button")
    assert len(browser.run(SHOWN)) == 6
    assert browser.errors == []


def test_clients_are_drawn_for_every_seed(browser: Browser, page: Path) -> None:
    browser.screen(1280)
    browser.open(page)
    written = "[...document.querySelectorAll('[data-clients] .textpoint')].map(t => t.textContent).join(' ')"
    first = browser.run(written)
    assert len(first.split()) == 27  # ten clients and three variants, but one client is not tested
    assert browser.run("document.querySelectorAll('[data-clients] .hm image').length") == 3
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
    ticks = "[...document.querySelectorAll('[data-clients] .ytick text')].map(t => t.textContent)"
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


def test_fifteen_stacks_and_runs_of_any_kind(browser: Browser, tmp_path: Path) -> None:
    folder = make(
        tmp_path / "o", labels=[f"variant {i}" for i in range(15)], rounds=40, clients=250
    )
    run = folder.run(folder.recipe.compare[3], 1)
    run.note(diverged_at={"round": 9, "client": 2, "what": "the loss is not finite"})
    run.path.joinpath("metrics.jsonl").write_text(
        "".join(f"{line}\n" for line in (run.path / "metrics.jsonl").read_text().splitlines()[:8])
    )
    browser.screen(390, phone=True)
    browser.open(write_report([folder.path]))
    assert (
        len(browser.run(SHOWN)) == 16
    )  # no bands among so many; what comes behind the divergence is thin
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.errors == []


@pytest.mark.bench
def test_fifteen_stacks_open_at_once(browser: Browser, tmp_path: Path) -> None:
    folder = make(tmp_path / "o", labels=[f"variant {i}" for i in range(15)], rounds=100)
    page = write_report([folder.path])
    browser.screen(1280)
    times = []
    for _ in range(3):
        browser.open(page)
        times.append(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 2000, times
