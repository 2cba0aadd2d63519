"""Methods combined, from Python and from a recipe: the listed order is the order of application."""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits

import fedbr
from fedbr.recipe import load as config
from fedbr.run import loop as experiment

digits = load_digits()
x, y = (digits.images * 15).astype("uint8")[:, None], digits.target  # bytes: pixels from 0 to 255
federation = fedbr.Federation.from_arrays(
    x[:1400], y[:1400], x[1400:], y[1400:], clients=10, partition="lda"
)
variant = [fedbr.Mixup(alpha=0.2), fedbr.FedBR(lam=0.1), fedbr.FedCM(alpha=0.5)]
run = fedbr.train(federation, "mlp", variant, rounds=5, local_steps=20, lr=0.1)
print(f"from Python: accuracy {run.accuracy[-1]:.3f}")

RECIPE = """
name = "variant"
model = { name = "mlp" }
train = { rounds = 5, local_steps = 20, lr = 0.1 }

[[compare]]
label = "FedAvg"
methods = []

[[compare]]
label = "Mixup + FedBR + FedCM"
methods = ["mixup", { name = "fedbr", lam = 0.1 }, { name = "fedcm", alpha = 0.5 }]
"""
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "variant.toml"
    file.write_text(RECIPE)
    # The same on the command line: fedbr run variant.toml --out runs/variant
    results = experiment.run(config.load(str(file)), Path(folder) / "out")
    for result in results["runs"]:
        print(f"from a recipe: {result['label']}: accuracy {result['accuracy']['final']:.3f}")
