"""Submit a run to a SuperLink, follow it, and stop it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..recipe.schema import Recipe
from ..run.folder import ResultFolder
from ..run.plan import Experiment, PlannedRun
from ..run.run_folder import RunFolder
from ..run.watch import Watcher
from ..util.errors import RunError
from .app_dir import write_app
from .flwr_command import NAME, clean_output, flwr
from .programs import Programs
from .types import Config

RUN = "the run"  # what the program is called that brings its log


@contextmanager
def programs_in(folder: Path) -> Iterator[Programs]:
    """Lend a folder to the programs of one run, and clean it up before and after.

    Logs, and what the clients of a trial remember, stay there.
    """
    try:
        with Programs(folder / "home") as programs:
            _clean_up(folder)
            yield programs
    finally:
        _clean_up(folder)


def submit(programs: Programs, folder: Path, recipe: Recipe, config: Config) -> None:
    """Submit a run; a program stays that brings its log and ends when the run does.

    Args:
        programs: that program becomes one of them.
        folder: for the app and the log.
        recipe: what to train.
        config: of the run, as Flower hands it to the server.
    """
    app, log = folder / "app", folder / "run.log"
    write_app(app, recipe, config)
    log.unlink(missing_ok=True)
    programs.start(RUN, ["flwr", "run", str(app), NAME, "--stream"], log)


def follow(programs: Programs, experiment: Experiment, watch: Watcher) -> None:
    """Report every round as it appears in the result folder, until the run ends.

    Args:
        programs: among them the one that brings the run's log.
        experiment: what the run trains, and where its results go.
        watch: is called when a run begins, when it ends, and after every round.

    Raises:
        RunError: the run never began, or a program of the federation ended.
    """
    assert experiment.path is not None
    folder = ResultFolder(experiment.path, experiment.recipe)
    runs = experiment.runs()
    watch.planned(runs)
    followed_runs = [_FollowedRun(run, folder.run(run.variant, run.seed), watch) for run in runs]
    for followed in followed_runs:
        followed.resume()
    over = False
    while not over:
        over = programs.running[RUN].poll() is not None
        for followed in followed_runs:
            followed.look()
        if not over:
            programs.check(besides=RUN)
            time.sleep(0.5)
    for followed in followed_runs:
        followed.end()
    log, code = programs.logs[RUN], programs.running[RUN].returncode
    programs.stop(RUN)
    if _find_run_id(log) is None:
        reason = clean_output(log.read_text("utf-8"))
        raise RunError(f"the run was not submitted (code {code}): {reason}")


def stop(home: Path, log: Path) -> None:
    """Stop a run; every finished round is safe.

    Args:
        home: the folder of Flower's own files.
        log: the run's log, in which its number is.
    """
    run_id = _find_run_id(log)
    if run_id is not None:
        with suppress(RunError):
            flwr(home, "stop", run_id, NAME)


def is_completed(home: Path, log: Path) -> bool:
    """Ask the SuperLink whether a run came to a good end; the arguments are those of ``stop``."""
    run_id = _find_run_id(log) or ""
    done = flwr(home, "list", "--run-id", run_id, NAME, "--format", "json")
    return "finished:completed" in done.stdout


class _FollowedRun:
    """A run that another process trains; what is new in its folder is reported to a watcher."""

    def __init__(self, run: PlannedRun, store: RunFolder, watch: Watcher) -> None:
        self.run, self.store, self.watch = run, store, watch
        self._size = 0  # of the file, when last read
        self._reported = 0  # rounds
        self._started = self._finished = False

    def resume(self) -> None:
        """Report what an earlier call trained."""
        if self._has_changed():
            self._reported = len(self.store.rounds)
            self._finished = self.store.finished
            self.watch.resumed(self.run, self.store.rounds)

    def look(self) -> None:
        """Report the rounds that are new."""
        if self._has_changed():
            rounds = self.store.rounds
            if len(rounds) < self._reported:  # it starts over
                self._reported = 0
            for record in rounds[self._reported :]:
                if not self._started:
                    self._started = True
                    self.watch.started(self.run)
                self.watch.round_done(self.run, record)
            self._reported = len(rounds)
        if self._reported >= self.run.rounds:
            self.end()

    def end(self) -> None:
        """Report that it is finished, if it is."""
        if not self._started or self._finished:
            return
        self.store.forget()
        if self.store.finished:
            self._finished = True
            self.watch.finished(self.run)

    def _has_changed(self) -> bool:
        """Say whether there is something new to read, and forget what was read before."""
        file = self.store.path / "metrics.jsonl"
        size = file.stat().st_size if file.exists() else 0
        if size == self._size:
            return False
        self._size = size
        self.store.forget()
        return True


def _clean_up(folder: Path) -> None:
    """Remove what no later call needs.

    A run that goes on does so from the result folder, on a new SuperLink.
    """
    for name in ("home", "app"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in folder.glob("state.db*"):
        file.unlink(missing_ok=True)


def _find_run_id(log: Path) -> str | None:
    text = log.read_text("utf-8") if log.exists() else ""
    match = re.search(r"started run (\d+)", text)
    return match[1] if match else None
