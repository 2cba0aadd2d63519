"""The log of a federation, in its result folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..util.errors import InputError, RunError
from .messages import one_line

log = logging.getLogger("fedbr.flower")


class _Lines(logging.Formatter):
    """One line for each event, whatever a node may have written into it."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


@contextmanager
def log_to(file: Path) -> Iterator[None]:
    """Append what is logged meanwhile to a file, and the error if it ends with one."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError | RunError):
            log.error("%s", error)
        else:
            log.error("%s: %s", type(error).__name__, error)
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
