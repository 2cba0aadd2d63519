"""A run that is submitted to a SuperLink, followed, and stopped."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..recipe.schema import Recipe
from ..run.folder import ResultFolder
from ..run.plan import Experiment, PlannedRun
from ..run.run_folder import RunFolder
from ..run.watch import Watcher
from ..util.errors import RunError
from .app_dir import write_app
from .launch import NAME, flwr, plain_words
from .programs import Programs

RUN = "the run"


@contextmanager
def programs_in(folder: Path) -> Iterator[Programs]:
    """Lend a folder to the programs of one run.

    Logs, and what the clients of a trial remember, stay there.
    """
    try:
        with Programs(folder / "home") as programs:
            _sweep(folder)
            yield programs
    finally:
        _sweep(folder)


def submit(programs: Programs, folder: Path, recipe: Recipe, config: Mapping[str, Any]) -> None:
    """Submit a run; a process stays that brings its log and ends when the run does.

    config: of the run, as Flower hands it to the server.
    """
    write_app(folder / "app", recipe, config)
    (folder / "run.log").unlink(missing_ok=True)
    programs.start(RUN, ["flwr", "run", str(folder / "app"), NAME, "--stream"], folder / "run.log")


def follow(programs: Programs, experiment: Experiment, watch: Watcher) -> None:
    """Tell of every round as it appears in the result folder, until the run ends.

    Raises RunError for a run that never began.
    """
    assert experiment.path is not None
    folder = ResultFolder(experiment.path, experiment.recipe)
    runs = experiment.runs()
    watch.planned(runs)
    followed = [_Followed(run, folder.run(run.variant, run.seed), watch) for run in runs]
    for one in followed:
        one.resume()
    while True:
        over = programs.running[RUN].poll() is not None
        for one in followed:
            one.look()
        if over:
            break
        programs.check(besides=RUN)
        time.sleep(0.5)
    for one in followed:
        one.end()
    log, code = programs.logs[RUN], programs.running[RUN].returncode
    programs.stop(RUN)
    if _run_id(log) is None:
        reason = plain_words(log.read_text("utf-8"))
        raise RunError(f"the run was not handed in (code {code}): {reason}")


def stop(home: Path, log: Path) -> None:
    """End the run that a log is of; every finished round is safe."""
    if run := _run_id(log):
        with suppress(RunError):
            flwr(home, "stop", run, NAME)


def completed(home: Path, log: Path) -> bool:
    """Ask the SuperLink whether the run that a log is of came to a good end."""
    run = _run_id(log) or ""
    return (
        "finished:completed" in flwr(home, "list", "--run-id", run, NAME, "--format", "json").stdout
    )


class _Followed:
    """A run that another process trains."""

    def __init__(self, run: PlannedRun, store: RunFolder, watch: Watcher) -> None:
        self.run, self.store, self.watch = run, store, watch
        self._size = 0  # of the file, when last read
        self._seen = 0  # rounds
        self._started = self._finished = False

    def resume(self) -> None:
        """Tell of what an earlier call trained."""
        if self._changed():
            self._seen = len(self.store.rounds)
            self._finished = self.store.finished
            self.watch.resumed(self.run, self.store.rounds)

    def look(self) -> None:
        """Tell of the rounds that are new."""
        if self._changed():
            rounds = self.store.rounds
            if len(rounds) < self._seen:  # it starts over
                self._seen = 0
            for record in rounds[self._seen :]:
                if not self._started:
                    self._started = True
                    self.watch.started(self.run)
                self.watch.round_done(self.run, record)
            self._seen = len(rounds)
        if self._seen >= self.run.rounds:
            self.end()

    def end(self) -> None:
        """Tell if it is finished."""
        if not self._started or self._finished:
            return
        self.store.forget()
        if self.store.finished:
            self._finished = True
            self.watch.finished(self.run)

    def _changed(self) -> bool:
        """Say whether there is something to read, and forget what was read before."""
        file = self.store.path / "metrics.jsonl"
        size = file.stat().st_size if file.exists() else 0
        if size == self._size:
            return False
        self._size = size
        self.store.forget()
        return True


def _sweep(folder: Path) -> None:
    """Remove what no later call needs.

    A run that goes on does so from the result folder, on a new SuperLink.
    """
    for name in ("home", "app"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("state.db*"):
        file.unlink(missing_ok=True)


def _run_id(log: Path) -> str | None:
    text = log.read_text("utf-8") if log.exists() else ""
    match = re.search(r"started run (\d+)", text)
    return match[1] if match else None
