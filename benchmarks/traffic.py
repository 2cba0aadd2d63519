"""Count src/fedbr/methods/traffic.json anew: python -m benchmarks.traffic (make traffic)."""

from __future__ import annotations

import json
from pathlib import Path

from fedbr import bench
from fedbr.methods import METHODS

FILE = Path("src/fedbr/methods/traffic.json")

if __name__ == "__main__":
    found = bench.traffic(bench.DIGITS_CNN, {name: cls() for name, cls in METHODS.items()})
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in found.items()
    )
    FILE.write_text(f"{{\n{rows}\n}}\n", "utf-8")
