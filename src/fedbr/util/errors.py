"""The errors that users are meant to read."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """The input is wrong: one line that names the key, the value and what is allowed (exit code 2)."""


class NoFiles(InputError):
    """The files of a data set are not there; other errors of input are about files that are."""


class RunError(RuntimeError):
    """The run failed for a reason that the user can read (exit code 1)."""


class Diverged(RunError):
    """A loss or a weight of one client is no longer finite."""

    def __init__(self, round: int, client: int, what: str) -> None:
        super().__init__(f"round {round}, client {client}: {what}")
        self.round, self.client, self.what = round, client, what


# What other tools call it, where spelling would not lead there.
ALIASES = {
    "learning_rate": ("lr",), "epochs": ("local_steps", "rounds"), "local_epochs": ("local_steps",),
    "num_rounds": ("rounds",), "global_rounds": ("rounds",), "communication_rounds": ("rounds",),
    "num_clients": ("clients",), "participation": ("clients_per_round",), "batch": ("batch_size",),
    "seed": ("seeds",), "wd": ("weight_decay",), "dataset": ("name",), "lambda": ("lam",),
}  # fmt: skip


def unknown(what: str, name: object, allowed: Iterable[str]) -> InputError:
    """Refuse a name, and suggest the nearest one that exists."""
    names = sorted(allowed)
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.5)
    meant = next((other for other in ALIASES.get(str(name).casefold(), ()) if other in names), None)
    meant = meant or (folded[close[0]] if close else None)
    hint = f"did you mean {meant!r}? " if meant else ""
    return InputError(
        f"{what} = {name!r} is unknown; {hint}allowed: {', '.join(names) or 'none, there are no such'}"
    )


@contextmanager
def at_its_place() -> Iterator[None]:
    """Let a mistake in the user's own code, such as a hook of a method, say in one line where it
    is.
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except Exception as error:
        # Not all of sysconfig's paths: the prefix may be /usr, and the user's code in /usr/src.
        places = {
            sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
        }
        known = [Path(__file__).parent.parent, *map(Path, places)]
        frames = traceback.extract_tb(error.__traceback__)
        own = [
            f
            for f in frames
            if not any(Path(f.filename).is_relative_to(folder) for folder in known)
        ]
        if not own:
            raise
        words = " ".join(str(error).split())
        raise RunError(
            f"{own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}: {type(error).__name__}: {words}"
        ) from error
