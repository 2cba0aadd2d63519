"""The errors that users are meant to read."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """The input is wrong (exit code 2); the line names the key, the value and what is allowed."""


class NoFiles(InputError):
    """The files of a data set are not there."""


class RunError(RuntimeError):
    """The run failed (exit code 1); the line names the reason."""


class Diverged(RunError):
    """A loss or a weight of one client is no longer finite.

    >>> raise Diverged(3, 0, "the loss is nan")
    Traceback (most recent call last):
        ...
    fedbr.util.errors.Diverged: round 3, client 0: the loss is nan
    """

    def __init__(self, round: int, client: int, what: str) -> None:
        super().__init__(f"round {round}, client {client}: {what}")
        self.round, self.client, self.what = round, client, what


# Names that other tools use, where the spelling would not lead to ours.
ALIASES = {
    "learning_rate": ("lr",), "epochs": ("local_steps", "rounds"), "local_epochs": ("local_steps",),
    "num_rounds": ("rounds",), "global_rounds": ("rounds",), "communication_rounds": ("rounds",),
    "num_clients": ("clients",), "participation": ("clients_per_round",), "batch": ("batch_size",),
    "seed": ("seeds",), "wd": ("weight_decay",), "dataset": ("name",), "lambda": ("lam",),
}  # fmt: skip


def unknown(what: str, name: object, allowed: Iterable[str]) -> InputError:
    """Make the error for an unknown name; it suggests the nearest name that exists.

    Args:
        what: the key that has the name.
        allowed: the names that exist.

    >>> print(unknown("model.name", "cnnn", ["cnn", "mlp"]))
    model.name = 'cnnn' is unknown; did you mean 'cnn'? allowed: cnn, mlp
    """
    names = sorted(allowed)
    meant = _find_nearest(str(name).casefold(), names)
    hint = f"did you mean {meant!r}? " if meant else ""
    listed = ", ".join(names) or "none, there are no such"
    return InputError(f"{what} = {name!r} is unknown; {hint}allowed: {listed}")


def _find_nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that was probably meant; None if none is similar."""
    for alias in ALIASES.get(name, ()):
        if alias in names:
            return alias
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name, folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None


@contextmanager
def locate_errors() -> Iterator[None]:
    """Turn an exception in the user's own code into a RunError that names the file and line.

    Exceptions that come from fedbr or an installed package alone pass unchanged.
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except Exception as error:
        # Not all of sysconfig's paths: the prefix may be /usr, and the user's code in /usr/src.
        kinds = ("stdlib", "platstdlib", "purelib", "platlib")
        installed = [Path(__file__).parent.parent, *(Path(sysconfig.get_path(k)) for k in kinds)]
        user_frame = None
        for frame in traceback.extract_tb(error.__traceback__):
            if not any(Path(frame.filename).is_relative_to(folder) for folder in installed):
                user_frame = frame
        if user_frame is None:
            raise
        place = f"{user_frame.filename}, line {user_frame.lineno}, in {user_frame.name}"
        message = " ".join(str(error).split())
        raise RunError(f"{place}: {type(error).__name__}: {message}") from error
