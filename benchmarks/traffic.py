"""Count src/fedbr/methods/traffic.json anew: python -m benchmarks.traffic (make traffic)."""

from __future__ import annotations

import json
from pathlib import Path

from fedbr import bench
from fedbr.methods import METHODS

FILE = Path("src/fedbr/methods/traffic.json")


def main() -> None:
    """Train every method for two rounds, and write what was sent."""
    counts = bench.traffic(bench.DIGITS_CNN, {name: kind() for name, kind in METHODS.items()})
    lines = [f"  {json.dumps(name)}: {json.dumps(sent)}" for name, sent in counts.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
