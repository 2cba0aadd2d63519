"""A Flower app in one file: a pyproject.toml whose components are in the installed package."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from .. import __version__
from ..recipe.schema import Recipe
from ..util.errors import InputError, unknown
from ..util.files import write
from .settings import RUN
from .types import Config

MARK = "# A Flower app, written by fedbr flower init. The components are in the installed package."


def write_app(folder: Path, recipe: Recipe, config: Config | None = None) -> Path:
    """Write the app; the recipe is in it, as a whole, so that it travels with the run.

    Args:
        folder: of the app; it is made if it is not there.
        recipe: the recipe to train.
        config: values that differ from the defaults.

    Returns:
        The file.

    Raises:
        InputError: a key of ``config`` is unknown, or the folder has a pyproject.toml that was not
            created by fedbr.
    """
    for key in config or {}:
        if key not in RUN:
            raise unknown("run config", key, RUN)
    file = folder / "pyproject.toml"
    if file.exists() and not file.read_text("utf-8").startswith(MARK):
        raise InputError(
            f"{folder}: has a pyproject.toml that was not created by fedbr; choose another folder"
        )
    values = {
        "project": {
            "name": "fedbr-app",
            "version": "1.0.0",
            "description": f"The recipe {recipe.name} on Flower",
            "license": "Apache-2.0",
            "dependencies": [f"fedbr[flower]=={__version__}"],
        },
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": ["."]}}}},
            "flwr": {
                "app": {
                    "publisher": "fedbr",
                    "components": {
                        "serverapp": "fedbr.flower.app:server",
                        "clientapp": "fedbr.flower.app:client",
                    },
                    "config": RUN | {"recipe": recipe.to_toml()} | dict(config or {}),
                }
            },
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    write(file, f"{MARK}\n{tomli_w.dumps(values, multiline_strings=True)}")
    return file
