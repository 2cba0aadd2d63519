"""Names for tables that come from files or from users; their values have no type yet."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]  # an object of a JSON file
TomlTable = dict[str, Any]  # a table of a TOML file, such as a recipe that is not validated
Options = dict[str, Any]  # the parameters of a method or a model, by their names
