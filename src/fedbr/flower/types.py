"""Names for what Flower carries.

Nothing heavy is imported here: Flower starts a process for every message, and each of them reads
this file.
"""

from __future__ import annotations

from collections.abc import Mapping

Blobs = dict[str, bytes]  # a message: its header, and payloads that several nodes may share
ConfigValue = bool | float | int | str  # a value of a Flower configuration
Config = Mapping[str, ConfigValue]  # the configuration of a run, or of a node
