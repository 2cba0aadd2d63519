"""Progress: a bar on a terminal, one in a notebook, few lines in a log; warnings once each."""

from __future__ import annotations

import io
import sys
import types
import warnings
from typing import Any

import pytest
from rich.console import Console

from fedbr.cli import progress as module
from fedbr.cli.progress import (
    LogDisplay,
    NotebookDisplay,
    Progress,
    TerminalDisplay,
    choose_display,
)
from fedbr.core.records import RoundRecord
from fedbr.recipe.load import load
from fedbr.run.plan import Experiment


class Clock:
    """A clock that only goes on when it is asked to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(round: int) -> RoundRecord:
    return RoundRecord(round, (0,), loss=1.0, accuracy=round / 100)


def test_a_log_gets_a_line_every_ten_seconds_and_at_the_end_of_each_run() -> None:
    clock, out = Clock(), io.StringIO()
    recipe = load("digits", ["train.rounds=40", "train.seeds=0,1"], ["fedavg"])
    first, second = Experiment(recipe).runs()
    with Progress(LogDisplay(out, clock)) as progress:
        progress.planned([first, second])
        progress.started(first)
        for round in range(1, 41):
            clock.now += 1
            progress.round_done(first, record(round))
        progress.finished(first)
        assert out.getvalue().splitlines()[:3] == [
            "FedAvg, seed 0, accuracy 10.0 %, 10 of 80 rounds in all, about 70 seconds left",
            "FedAvg, seed 0, accuracy 20.0 %, 20 of 80 rounds in all, about 60 seconds left",
            "FedAvg, seed 0, accuracy 30.0 %, 30 of 80 rounds in all, about 50 seconds left",
        ]
        assert out.getvalue().splitlines()[-1].startswith("FedAvg, seed 0: 40 of 40 rounds, accura")
        progress.resumed(second, [record(1), record(2)])
        progress.started(second)
        assert len(out.getvalue().splitlines()) == 5
        progress.finished(second)
    assert "FedAvg, seed 1: 2 of 40 rounds" in out.getvalue()


def test_a_short_run_in_a_log_is_one_line() -> None:
    clock, out = Clock(), io.StringIO()
    (run,) = Experiment(load("digits", ["train.rounds=2"], ["fedavg"])).runs()
    with Progress(LogDisplay(out, clock)) as progress:
        progress.planned([run])
        progress.started(run)
        progress.round_done(run, record(1))
        progress.round_done(run, record(2))
        progress.finished(run)
    (line,) = out.getvalue().splitlines()
    assert line.startswith("FedAvg: 2 of 2 rounds, accuracy 2.0 %, ")


def test_a_terminal_has_a_bar_and_keeps_the_lines() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    with Progress(TerminalDisplay(console)) as progress:
        progress.update("reading [b]", 1, 4, "files")
        progress.line("one [b] line")
        progress.update("reading [b]", 2, 4, "files")
    assert "reading [b]" in out.getvalue()
    assert "2/4 files" in out.getvalue()
    assert "one [b] line" in out.getvalue()


def test_a_notebook_has_one_bar_that_is_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[dict[str, str]] = []

    class Handle:
        def __init__(self, place: int) -> None:
            self.place = place

        def update(self, data: dict[str, str], raw: bool) -> None:
            outputs[self.place] = data

    def display(data: dict[str, str], raw: bool, display_id: bool = False) -> Handle:
        outputs.append(data)
        return Handle(len(outputs) - 1)

    ipython = types.ModuleType("IPython")
    ipython.__dict__["get_ipython"] = lambda: types.SimpleNamespace(kernel=object())
    shown = types.ModuleType("IPython.display")
    shown.__dict__["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    chosen = choose_display()
    assert isinstance(chosen, NotebookDisplay)
    with Progress(chosen) as progress:
        for done in (1, 2, 3):
            progress.update("FedBR", done, 3, "rounds", "accuracy 9.0 %")
    assert outputs == [{"text/plain": f"FedBR {'█' * 30} 3/3 rounds accuracy 9.0 %"}]


def test_a_pipe_is_a_log() -> None:
    assert isinstance(choose_display(), LogDisplay)  # as under pytest, whose output is captured


def test_warnings_are_lines_each_of_them_once_and_others_go_their_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = io.StringIO()
    other: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *args, **_: other.append(args[1])
        with Progress(LogDisplay(out)):
            for _ in range(2):
                warnings.warn("take care", RuntimeWarning, stacklevel=1)
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        warnings.warn("after", RuntimeWarning, stacklevel=1)
    assert out.getvalue() == "fedbr: take care\n"
    assert other == [DeprecationWarning, RuntimeWarning]


def test_the_interval_is_that_of_the_promise() -> None:
    assert module.SECONDS == 10
