"""Train on arrays of your own: split them over clients, or bring clients that you already have."""

import numpy as np
from sklearn.datasets import load_wine

import fedbr

wine = load_wine()
x = ((wine.data - wine.data.mean(0)) / wine.data.std(0)).astype(np.float32)
y = wine.target
held_out = np.arange(len(y)) % 5 == 0

# One pile of samples, dealt to six clients so that their classes differ.
federation = fedbr.Federation.from_arrays(
    x[~held_out],
    y[~held_out],
    x[held_out],
    y[held_out],
    clients=6,
    partition="lda",
    alpha=0.3,
    seed=0,
)
print("effective classes per client:", federation.census.split.effective_classes)
run = fedbr.train(
    federation, "mlp", methods=[fedbr.FedBR(lam=0.1)], rounds=10, local_steps=10, hidden=(32,)
)
print(f"dealt:     accuracy {run.accuracy[-1]:.3f} after {len(run.accuracy)} rounds")

# Or every site has its own arrays, of whatever size.
sites = [(x[~held_out][i::3], y[~held_out][i::3]) for i in range(3)]
run = fedbr.train(
    fedbr.Federation.from_clients(sites, test=(x[held_out], y[held_out])),
    "mlp",
    methods=[fedbr.FedBR(lam=0.1)],
    rounds=10,
    local_steps=10,
    aggregate="samples",
)
worst = run.rounds[-1].accuracy_worst
print(f"per site:  accuracy {run.accuracy[-1]:.3f}, worst site {worst:.3f}")
