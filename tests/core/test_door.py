"""The core outside fast/ knows what is behind its door by one name only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedbr.core

FILES = sorted(Path(fedbr.core.__file__).parent.glob("*.py"))
DOOR = {"Block", "Outputs"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_core_goes_through_the_door(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fast"):
            assert node.module == "fast", f"{file.name}: import from .fast"
            assert {alias.name for alias in node.names} <= DOOR


def test_the_reference_uses_nothing_that_is_fast() -> None:
    text = Path(fedbr.core.__file__).with_name("reference.py").read_text("utf-8")
    assert "from .fast" not in text


def test_the_local_step_fits_on_half_a_screen() -> None:
    tree = ast.parse(Path(fedbr.core.__file__).with_name("client.py").read_text("utf-8"))
    (step,) = [n for n in tree.body if getattr(n, "name", "") == "local_steps"]
    assert isinstance(step, ast.FunctionDef)
    assert (step.end_lineno or 0) - step.lineno < 30
